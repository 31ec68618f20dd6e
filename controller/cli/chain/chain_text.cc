// Formats chains and transitions; see chain_text.h.
#include "controller/cli/chain/chain_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "controller/cli/console/text_table.h"
#include "planner/base/duration.h"
#include "planner/chain/gbp_cr.h"

namespace windlass::cli {
namespace {

using chain::BlockRange;
using chain::Composition;
using chain::Instance;

constexpr std::size_t kMaxChains = 10;
constexpr std::size_t kMaxHops = 8;
constexpr std::size_t kMaxNames = 8;
constexpr std::size_t kMaxSteps = 12;  // printed per wave

std::string count_text(std::size_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }

std::string rate_text(double per_s) { return fmt::format("{:.4g}", per_s); }

std::string blocks_text(int first, int last) {
  return first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last);
}

std::string objective_text(chain::Tuning tuning, double objective) {
  return tuning == chain::Tuning::kSurrogate ? fmt::format("{:.6g}", objective) : seconds_text(objective);
}

const char* tuning_words(chain::Tuning tuning) {
  switch (tuning) {
    case chain::Tuning::kLowerBound: return "the lower bound on the mean response time";
    case chain::Tuning::kUpperBound: return "the upper bound on the mean response time";
    case chain::Tuning::kSurrogate: return "the surrogate c K(c)";
  }
  return "";
}

// The runners-up for c, best first.
std::string runners_up_text(const ChosenChains& chosen) {
  auto others = chosen.composition.considered;
  std::erase_if(others, [&](const auto& judged) { return judged.capacity == chosen.composition.capacity; });
  std::stable_sort(others.begin(), others.end(), [](const auto& a, const auto& b) { return a.objective < b.objective; });
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, others.size()); ++i) {
    text += fmt::format("{}c = {}: {}", i == 0 ? "" : ", ", others[i].capacity,
                        objective_text(*chosen.tuning, others[i].objective));
  }
  return text;
}

std::string choice_text(const ChosenChains& chosen) {
  const Composition& composition = chosen.composition;
  if (chosen.placement == "cg-bp")
    return fmt::format("placement: CG-BP for a design load of {}\n",
                       count_text(static_cast<std::size_t>(composition.capacity), "concurrent request"));
  if (chosen.placement == "petals") return "placement: PETALS, servers join one at a time\n";
  std::string text = fmt::format("placement: GBP-CR, memory reserved for c = {} on every block",
                                 count_text(static_cast<std::size_t>(composition.capacity), "concurrent request"));
  if (!chosen.tuning) return text + " (given)\n";
  const auto& considered = composition.considered;
  const auto best = std::find_if(considered.begin(), considered.end(),
                                 [&](const auto& judged) { return judged.capacity == composition.capacity; });
  if (best == considered.end()) {
    return text + fmt::format("\n  no c from 1 to {} carries the demand; this one has the highest total rate\n",
                              chain::max_capacity(chosen.instance));
  }
  text += fmt::format("\n  best of 1 to {} for {}: {}\n", chain::max_capacity(chosen.instance), tuning_words(*chosen.tuning),
                      objective_text(*chosen.tuning, best->objective));
  const std::string others = runners_up_text(chosen);
  if (!others.empty()) text += "  next best: " + others + "\n";
  return text;
}

std::string load_text(const Instance& instance, const Composition& composition) {
  const double lambda = instance.arrival_rate_per_s;
  const double nu = composition.total_service_rate_per_s;
  std::string text = fmt::format("load: {} of the total service rate at {} requests/s; the limit is {}\n",
                                 percent_text(lambda / nu), rate_text(lambda), percent_text(instance.max_load));
  if (!composition.stable) {
    text += fmt::format("NOT STABLE: {} requests/s arrive and at most {} are served, so the queue grows without bound\n",
                        rate_text(lambda), rate_text(nu));
  } else if (!composition.meets_max_load) {
    text += fmt::format("above the load limit: {} requests/s of total service rate would meet it\n",
                        rate_text(lambda / instance.max_load));
  }
  if (composition.mean_response_lower_s && composition.mean_response_upper_s) {
    text += fmt::format("mean response time under JFFC: {} to {} (Poisson arrivals, exponential sizes)\n",
                        seconds_text(composition.mean_response_lower_s), seconds_text(composition.mean_response_upper_s));
  }
  return text;
}

// Whether GBP-CR stopped before it used all servers that could hold a block.
bool stop_rule_left_some(const ChosenChains& chosen) {
  if (chosen.placement != "gbp-cr" || chosen.all_servers) return false;
  for (std::size_t j = 0; j < chosen.composition.placement.size(); ++j) {
    if (chosen.composition.placement[j].blocks > 0) continue;
    if (chain::blocks_for_capacity(chosen.instance, chosen.instance.servers[j].memory_gb, chosen.composition.capacity) > 0)
      return true;
  }
  return false;
}

std::string server_name(const Instance& instance, int server) {
  return instance.servers[static_cast<std::size_t>(server)].name;
}

std::string ranges_text(const std::vector<BlockRange>& ranges) {
  std::string text;
  for (const BlockRange& range : ranges) text += (text.empty() ? "" : ", ") + blocks_text(range.first, range.last());
  return text;
}

std::string step_text(const Instance& instance, const chain::TransitionStep& step) {
  std::string text = server_name(instance, step.server) + ":";
  if (!step.drops.empty()) text += fmt::format(" drops {}", ranges_text(step.drops));
  if (!step.loads.empty()) {
    text +=
        fmt::format("{} loads {} in {}", step.drops.empty() ? "" : ",", ranges_text(step.loads), seconds_text(step.seconds));
  }
  return text;
}

std::string serves_text(const char* when, const Instance& instance, const Composition& composition) {
  if (composition.chains.empty()) return fmt::format("{}: no full chain\n", when);
  return fmt::format("{}: {}, {} requests/s at most, load {}, mean response time {}\n", when,
                     count_text(composition.chains.size(), "chain"), rate_text(composition.total_service_rate_per_s),
                     percent_text(instance.arrival_rate_per_s / composition.total_service_rate_per_s),
                     composition.stable ? "at least " + seconds_text(composition.mean_response_lower_s) : "unbounded");
}

}  // namespace

std::string names_text(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(kMaxNames, names.size()); ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kMaxNames) text += fmt::format(" and {} more", names.size() - kMaxNames);
  return text;
}

std::string hops_text(const Instance& instance, const chain::ServerChain& chain) {
  const std::size_t hops = chain.servers.size();
  std::string text;
  int first = 1;
  for (std::size_t i = 0; i < hops; ++i) {
    const int last = first + chain.blocks[i] - 1;
    const bool shown = hops <= kMaxHops || i < kMaxHops - 2 || i == hops - 1;
    if (shown) {
      text += fmt::format("{}{} {}", i == 0 ? "" : " > ", server_name(instance, chain.servers[i]), blocks_text(first, last));
    } else if (i == kMaxHops - 2) {
      text += fmt::format(" > ({} more)", hops - kMaxHops + 1);
    }
    first = last + 1;
  }
  return text;
}

std::string composition_text(const ChosenChains& chosen) {
  const Instance& instance = chosen.instance;
  const Composition& composition = chosen.composition;
  std::string text = choice_text(chosen);
  if (chosen.caches == "ilp") {
    text += fmt::format("capacities: the smallest that keep to the load limit on these chains, {}\n",
                        chosen.proved ? "proved" : "not proved");
  }
  if (!chosen.note.empty()) text += wrapped("note: " + chosen.note, 0);

  TextTable table({"CHAIN", "CAPACITY", "SERVICE TIME", "REQUESTS/S", "SERVERS AND THEIR BLOCKS"});
  const std::size_t shown = std::min(kMaxChains, composition.chains.size());
  for (std::size_t k = 0; k < shown; ++k) {
    const chain::ServerChain& chain = composition.chains[k];
    table.add({std::to_string(k + 1), std::to_string(chain.capacity), seconds_text(chain.service_time_s),
               rate_text(chain.capacity * chain.service_rate_per_s()), hops_text(instance, chain)});
  }
  text += "\n" + table.text();
  if (shown < composition.chains.size()) {
    long capacity = 0;
    double rate = 0;
    for (std::size_t k = shown; k < composition.chains.size(); ++k) {
      capacity += composition.chains[k].capacity;
      rate += composition.chains[k].capacity * composition.chains[k].service_rate_per_s();
    }
    text += fmt::format("and {} with capacity {} and {} requests/s (-o json lists them)\n",
                        count_text(composition.chains.size() - shown, "more chain"), capacity, rate_text(rate));
  }

  text += fmt::format("\ntotal: {}, {}, {} requests/s\n", count_text(composition.chains.size(), "chain"),
                      count_text(static_cast<std::size_t>(composition.total_capacity), "concurrent request"),
                      rate_text(composition.total_service_rate_per_s));
  text += load_text(instance, composition);
  std::vector<std::string> unplaced;
  for (std::size_t j = 0; j < composition.placement.size(); ++j) {
    if (composition.placement[j].blocks == 0) unplaced.push_back(instance.servers[j].name);
  }
  if (!unplaced.empty()) {
    text += fmt::format(
        "without blocks: {}: {}{}\n", count_text(unplaced.size(), "server"), names_text(unplaced),
        stop_rule_left_some(chosen) ? "; the chains above already keep to the load limit; --all-servers uses these too" : "");
  }
  return text;
}

std::string transition_text(const Instance& instance, const chain::Transition& transition) {
  std::string text = wrapped((transition.proposed ? "Recompose: " : "Stay: ") + transition.reason, 0);
  text += serves_text("\ncurrent chains", instance, transition.current) + serves_text("new chains", instance, transition.next);
  if (!transition.gone.empty()) text += fmt::format("removed servers: {}\n", names_text(transition.gone));
  if (transition.waves.empty()) return text;
  text += fmt::format("\nTransition: {}, {:.4g} GB loaded in {}; {}\n", count_text(transition.changes.size(), "server"),
                      transition.loaded_gb, seconds_text(transition.seconds),
                      transition.interrupted ? "no full chain serves for " + seconds_text(transition.interrupted_s)
                                             : "at least one full chain serves at all times");
  for (std::size_t w = 0; w < transition.waves.size(); ++w) {
    const auto& wave = transition.waves[w];
    text += fmt::format("  wave {}, {}: {} requests/s meanwhile{}\n", w + 1,
                        wave.seconds > 0 ? seconds_text(wave.seconds) : "immediate", rate_text(wave.total_service_rate_per_s),
                        wave.interrupted_s > 0 ? ", no full chain for " + seconds_text(wave.interrupted_s) : "");
    for (std::size_t s = 0; s < std::min(kMaxSteps, wave.steps.size()); ++s)
      text += "    " + step_text(instance, wave.steps[s]) + "\n";
    if (wave.steps.size() > kMaxSteps)
      text += fmt::format("    and {} more\n", count_text(wave.steps.size() - kMaxSteps, "server"));
  }
  text += fmt::format("benefit: {:.4g} request-seconds saved over {}, {:.4g} {} during the transition\n",
                      transition.gain_request_s, print_duration(transition.horizon_s), std::abs(transition.cost_request_s),
                      transition.cost_request_s < 0 ? "also saved" : "lost");
  return text;
}

}  // namespace windlass::cli
