// See distserve.h.
#include "planner/strategies/distserve/distserve.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/perf/transfer_times.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/distserve/distserve_units.h"

namespace windlass::search {
namespace {

constexpr double kNegligible = 0.1;   // share of the TTFT objective that a cache transfer may take
constexpr double kEnough = 1 - 1e-9;  // a goodput of exactly the rate needs one instance
constexpr int kMaxRepairs = 40;
constexpr double kMaxInstances = 1e6;

enum class Phase { kPrefill, kDecode, kBoth };

struct Counts {
  int prefill = 1, decode = 1;
};

// Result of the search for one way to split: kinds and goodputs.
struct Split {
  int prefill = 0, decode = 0;  // kinds
  double prefill_per_s = 0, decode_per_s = 0;
  int segments = 1;
};

int instances(double requests_per_s, double goodput_per_s) {
  if (!(goodput_per_s > 0)) return 1;
  return static_cast<int>(std::clamp(std::ceil(requests_per_s / goodput_per_s * kEnough), 1.0, kMaxInstances));
}

Result<void> check(const Problem& problem, const DistServeOptions& options) {
  const auto wrong = [&](const char* field, double found, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: distserve.{}: must be {} (got {})", problem.name, field, allowed, found)};
  };
  if (options.requests_per_probe < 0)
    return wrong("requestsPerProbe", static_cast<double>(options.requests_per_probe),
                 "at least 1, or 0 for the problem's number");
  if (!(options.tolerance > 0 && options.tolerance <= 1)) return wrong("tolerance", options.tolerance, "above 0 and at most 1");
  if (options.prefill_batch_tokens < 0)
    return wrong("prefillBatchTokens", options.prefill_batch_tokens, "at least 1, or 0 for the kinds' own");
  if (!(options.saturation > 0 && options.saturation <= 1))
    return wrong("saturation", options.saturation, "above 0 and at most 1");
  return validate(problem);
}

class DistServe {
 public:
  DistServe(const Problem& problem, const Effort& effort, const DistServeOptions& options)
      : problem_(problem),
        effort_(effort),
        options_(options),
        requests_(options.requests_per_probe > 0 ? options.requests_per_probe : problem.requests_per_trial),
        units_(problem, options, requests_) {}

  Result<DistServeChoice> choice() {
    WINDLASS_RETURN_IF_ERROR(choose_affinity());
    WINDLASS_RETURN_IF_ERROR(search(options_.prune));
    DistServeChoice choice;
    choice.affinity = affinity_;
    choice.why = why_;
    choice.prefill_kind = split_.prefill;
    choice.decode_kind = split_.decode;
    choice.prefill_per_s = split_.prefill_per_s;
    choice.decode_per_s = split_.decode_per_s;
    choice.one = deployment({1, 1});
    choice.trials = answers_.trials;
    choice.iterations = answers_.iterations;
    return choice;
  }

  Result<Offer> plan() {
    WINDLASS_RETURN_IF_ERROR(choose_affinity());
    WINDLASS_RETURN_IF_ERROR(search(options_.prune));
    plan_.reasons.push_back(why_);
    bool holds = split_.prefill_per_s > 0 && split_.decode_per_s > 0;
    if (!holds) plan_.reasons.push_back(no_goodput());
    counts_ = asked();
    if (auto room = check_room(problem_, deployment(counts_)); !room.ok()) {
      plan_.reasons.push_back(fmt::format("{} {}", describe(deployment(counts_)), room.error().message));
      WINDLASS_ASSIGN_OR_RETURN(const bool fits, find_room());
      holds = holds && fits;
    }
    say_split();
    WINDLASS_ASSIGN_OR_RETURN(const bool together, simulate(holds));
    plan_.holds = holds && together;
    WINDLASS_RETURN_IF_ERROR(predict_capacity());
    fill();
    return std::move(plan_);
  }

 private:
  [[nodiscard]] bool low() const { return affinity_ == NodeAffinity::kLow; }
  [[nodiscard]] double prefill_rate() const {
    return split_.prefill_per_s > 0 ? split_.prefill_per_s : units_.prefill_screen(split_.prefill).ceiling_per_s;
  }
  [[nodiscard]] double decode_rate() const {
    return split_.decode_per_s > 0 ? split_.decode_per_s : units_.decode_screen(split_.decode).ceiling_per_s;
  }
  // Instances for the rate; pairs have the same number of both.
  [[nodiscard]] Counts asked() const {
    Counts counts{instances(problem_.requests_per_s, prefill_rate()), instances(problem_.requests_per_s, decode_rate())};
    if (low()) counts.prefill = counts.decode = std::max(counts.prefill, counts.decode);
    return counts;
  }
  [[nodiscard]] Deployment deployment(const Counts& counts) const {
    return units_.deployment(split_.prefill, split_.decode, counts.prefill, counts.decode, low());
  }
  [[nodiscard]] const WorkerKind& kind(int index) const { return problem_.kinds[static_cast<std::size_t>(index)]; }

  // Section 3.3: whether caches may cross nodes.
  Result<void> choose_affinity() {
    const double tokens = problem_.requests->mean_input_tokens();
    const double bytes_per_token = planner::kv_bytes_per_token(problem_.shape);
    double between_s = 0;
    for (const WorkerKind& decode : problem_.kinds) {
      between_s = std::max(between_s, planner::kv_transfer_s(problem_.path_to(decode, false), tokens, bytes_per_token));
    }
    const PhaseBounds bounds = phase_bounds(problem_.objectives);
    const double allowed_s = kNegligible * std::min(bounds.ttft_s, bounds.tpot_s * problem_.requests->mean_output_tokens());
    const std::string cache = fmt::format(
        "a mean prompt's cache ({:.4g} MB) takes {:.3g} ms between nodes; at most {:.3g} ms are negligible for the "
        "objectives",
        tokens * bytes_per_token / 1e6, between_s * 1e3, allowed_s * 1e3);
    affinity_ = options_.affinity;
    if (affinity_ != NodeAffinity::kAuto) {
      why_ = fmt::format("{} node affinity, as requested", low() ? "low" : "high");
    } else if (units_.one_node()) {
      affinity_ = NodeAffinity::kHigh;
      why_ = "all GPUs are on one node, so no cache leaves it (Algorithm 1)";
    } else if (between_s <= allowed_s) {
      affinity_ = NodeAffinity::kHigh;
      why_ = fmt::format("high node affinity (Algorithm 1): {}", cache);
    } else if (units_.pairs().empty()) {
      affinity_ = NodeAffinity::kHigh;
      why_ = fmt::format(
          "{}; but no prefill and decoding instance fit together on a node, so caches must leave it (Algorithm 1)", cache);
    } else {
      affinity_ = NodeAffinity::kLow;
      why_ = fmt::format("low node affinity (Algorithm 2): {}", cache);
    }
    if (low() && units_.pairs().empty()) {
      return Error{ErrorCode::kNotFound, fmt::format("{}: no prefill and decoding instance fit together on a node of {} GPUs",
                                                     problem_.name, problem_.accelerators.front().spec.gpus_per_node)};
    }
    return {};
  }

  Result<void> search(bool prune) {
    families_.clear();
    if (low()) {
      families_ = {units_.pair_units()};
    } else {
      families_ = {units_.prefill(), units_.decode()};
    }
    const UnitSearchOptions options{requests_, problem_.seed, options_.tolerance, prune, options_.finals};
    const std::int64_t trials = answers_.trials, iterations = answers_.iterations;
    WINDLASS_ASSIGN_OR_RETURN(answers_, search_units(families_, options, effort_));
    answers_.trials += trials;
    answers_.iterations += iterations;
    if (low()) {
      split_ = pair(answers_.families[0].best.value_or(fastest(families_[0])));
    } else {
      const std::size_t prefill = answers_.families[0].best.value_or(fastest(families_[0]));
      const std::size_t decode = answers_.families[1].best.value_or(fastest(families_[1]));
      split_ = apart(prefill, decode);
    }
    return {};
  }

  // If no unit is feasible at any rate: the one with the highest ceiling, first in order among ties.
  static std::size_t fastest(const std::vector<Unit>& units) {
    const auto by_ceiling = [](const Unit& a, const Unit& b) { return a.ceiling_per_s < b.ceiling_per_s; };
    return static_cast<std::size_t>(std::max_element(units.begin(), units.end(), by_ceiling) - units.begin());
  }

  [[nodiscard]] Split pair(std::size_t unit) const {
    const DistServeUnits::Pair& of = units_.pairs()[unit];
    const double per_s = answers_.families[0].goodputs[unit].requests_per_s;
    return {of.prefill, of.decode, per_s, per_s, of.segments};
  }
  [[nodiscard]] Split apart(std::size_t prefill, std::size_t decode) const {
    return {static_cast<int>(prefill), static_cast<int>(decode), answers_.families[0].goodputs[prefill].requests_per_s,
            answers_.families[1].goodputs[decode].requests_per_s, 1};
  }

  [[nodiscard]] std::string no_goodput() const {
    const auto none = [&](std::size_t family, const char* what) {
      return answers_.families[family].best ? std::string()
                                            : fmt::format("no {} meets the objectives for enough requests at any rate", what);
    };
    if (low()) return none(0, "pair");
    const std::string prefill = none(0, "prefill instance"), decode = none(1, "decoding instance");
    return prefill.empty() || decode.empty() ? prefill + decode : prefill + "; " + decode;
  }

  // The best split is too large. Takes the cheapest split that has room. If none has room at this rate, takes the one with the
  // highest rate and returns false.
  Result<bool> find_room() {
    if (options_.prune) {
      WINDLASS_RETURN_IF_ERROR(search(false));
    }
    std::vector<Split> splits;
    if (low()) {
      for (std::size_t unit = 0; unit < families_[0].size(); ++unit) splits.push_back(pair(unit));
    } else {
      for (std::size_t p = 0; p < families_[0].size(); ++p) {
        for (std::size_t d = 0; d < families_[1].size(); ++d) splits.push_back(apart(p, d));
      }
    }
    std::optional<std::pair<Split, Counts>> least, most;
    double least_worth = std::numeric_limits<double>::infinity(), max_per_s = -1;
    for (const Split& split : splits) {
      split_ = split;
      Counts counts = asked();
      const bool goodput = split.prefill_per_s > 0 && split.decode_per_s > 0;
      const double worth = counts.prefill * units_.worth(split.prefill) + counts.decode * units_.worth(split.decode);
      if (goodput && worth < least_worth && check_room(problem_, deployment(counts)).ok()) {
        least_worth = worth;
        least = {split, counts};
      }
      if (least || !check_room(problem_, deployment({1, 1})).ok()) continue;
      counts = fill_room();
      const double per_s = goodput ? std::min(counts.prefill * prefill_rate(), counts.decode * decode_rate()) : 0;
      if (per_s > max_per_s) {
        max_per_s = per_s;
        most = {split, counts};
      }
    }
    if (!least && !most) {
      return Error{ErrorCode::kNotFound,
                   fmt::format("{}: no room for one prefill and one decoding instance of any kind", problem_.name)};
    }
    std::tie(split_, counts_) = least ? *least : *most;
    plan_.reasons.push_back(least ? "the cheapest of all kinds that has room at this rate"
                                  : "no room for this rate; this deployment serves the most");
    return least.has_value();
  }

  // Fills the room with instances of the split where they help most, up to the rate.
  [[nodiscard]] Counts fill_room() const {
    Counts counts;
    while (true) {
      const double prefill = counts.prefill * prefill_rate(), decode = counts.decode * decode_rate();
      if (std::min(prefill, decode) >= problem_.requests_per_s) return counts;
      Counts more = counts;
      if (low() || prefill <= decode) ++more.prefill;
      if (low() || prefill > decode) ++more.decode;
      if (!check_room(problem_, deployment(more)).ok()) return counts;
      counts = more;
    }
  }

  void say_split() {
    const auto instance = [&](const char* phase, int index, double per_s) {
      const WorkerKind& of = kind(index);
      return fmt::format("{}: {}, TP {}{}: {:.4g} requests/s, {:.4g} per GPU", phase, problem_.spec(of).name,
                         of.tensor_parallel, of.pipeline_stages > 1 ? fmt::format(" x PP {}", of.pipeline_stages) : "", per_s,
                         per_s / of.gpus());
    };
    if (low()) {
      const double gpus = kind(split_.prefill).gpus() + kind(split_.decode).gpus();
      plan_.reasons.push_back(fmt::format(
          "{}; {}; together {:.4g} requests/s, {:.4g} per GPU{}", instance("prefill", split_.prefill, split_.prefill_per_s),
          instance("decode", split_.decode, split_.decode_per_s), split_.prefill_per_s, split_.prefill_per_s / gpus,
          split_.segments > 1 ? fmt::format(", with each stage of both on one of {} nodes", split_.segments) : ""));
    } else {
      plan_.reasons.push_back(instance("prefill", split_.prefill, split_.prefill_per_s));
      plan_.reasons.push_back(instance("decode", split_.decode, split_.decode_per_s));
    }
    plan_.reasons.push_back(fmt::format("prompts batch up to {} tokens (L_m)", units_.batch_tokens(split_.prefill)));
    plan_.reasons.push_back(fmt::format("{:.4g} requests/s need {} prefill and {} decoding instances", problem_.requests_per_s,
                                        counts_.prefill, counts_.decode));
  }

  // The phase that exceeds its objective by more.
  [[nodiscard]] Phase lagging(const sim::ServingResult& result) const {
    if (low()) return Phase::kBoth;
    const PhaseBounds bounds = phase_bounds(problem_.objectives);
    const double prefill = at_percentile(result.ttft, 100 * bounds.share) / bounds.ttft_s,
                 decode = at_percentile(result.tpot, 100 * bounds.share) / bounds.tpot_s;
    return prefill >= decode ? Phase::kPrefill : Phase::kDecode;
  }

  // Simulates the whole deployment at the rate, with requests that the search has not seen. Adds instances while it is not
  // feasible.
  Result<bool> simulate(bool repair) {
    const Trial trial{problem_.requests_per_s, problem_.requests_per_trial, problem_.seed + 1};
    int added_prefill = 0, added_decode = 0;
    bool holds = false;
    for (int turn = 0;; ++turn) {
      if (turn > 0 && (stop_requested(effort_.stop) || answers_.iterations >= effort_.max_iterations)) {
        answers_.stopped = true;
        break;
      }
      WINDLASS_ASSIGN_OR_RETURN(result_, try_out(problem_, deployment(counts_), trial));
      ++answers_.trials;
      answers_.iterations += result_.iterations;
      const Verdict verdict = judge(problem_, result_);
      holds = verdict.holds;
      if (holds || !repair || turn == kMaxRepairs) {
        if (!holds) plan_.reasons.push_back(fmt::format("misses the objectives: {}", verdict.broken));
        break;
      }
      const Phase phase = lagging(result_);
      Counts more = counts_;
      const auto grow = [turn](int count) { return std::max(1, turn < 4 ? 1 : count / 16); };
      if (phase != Phase::kDecode) more.prefill += grow(counts_.prefill);
      if (phase != Phase::kPrefill) more.decode += grow(counts_.decode);
      if (auto room = check_room(problem_, deployment(more)); !room.ok()) {
        plan_.reasons.push_back(
            fmt::format("misses the objectives: {}; one more instance {}", verdict.broken, room.error().message));
        break;
      }
      added_prefill += more.prefill - counts_.prefill;
      added_decode += more.decode - counts_.decode;
      counts_ = more;
    }
    if (added_prefill + added_decode > 0) {
      plan_.reasons.push_back(
          fmt::format("{} more prefill and {} more decoding instances, because each phase alone meets its objective, but they "
                      "miss it for different requests",
                      added_prefill, added_decode));
    }
    return holds;
  }

  // Determines the deployment's capacity by simulation, if it is feasible.
  Result<void> predict_capacity() {
    plan_.predicted.capacity_requests_per_s = plan_.holds ? problem_.requests_per_s : 0;
    if (!plan_.holds || answers_.stopped) return {};
    CapacitySearch search;
    search.requests = problem_.requests_per_trial;
    search.seed = problem_.seed + 1;
    search.tolerance = options_.tolerance;
    search.first_guess_per_s = std::min(counts_.prefill * prefill_rate(), counts_.decode * decode_rate());
    search.least_per_s = problem_.requests_per_s;
    search.max_per_s =
        std::max(problem_.requests_per_s, std::min(counts_.prefill * units_.prefill_screen(split_.prefill).ceiling_per_s,
                                                   counts_.decode * units_.decode_screen(split_.decode).ceiling_per_s));
    search.figures = false;
    search.stop = effort_.stop;
    const auto capacity = capacity_of(problem_, deployment(counts_), search);
    if (!capacity.ok() && capacity.error().code == ErrorCode::kCancelled) return {};
    if (!capacity.ok()) return capacity.error();
    plan_.predicted.capacity_requests_per_s = std::max(problem_.requests_per_s, capacity->requests_per_s);
    answers_.trials += capacity->trials;
    answers_.iterations += capacity->iterations;
    return {};
  }

  void fill() {
    Offer plan = plan_of(problem_, "distserve", deployment(counts_));
    plan.holds = plan_.holds;
    plan.reasons = std::move(plan_.reasons);
    plan.predicted = predict(problem_, {&result_, 1});
    plan.predicted.capacity_requests_per_s = plan_.predicted.capacity_requests_per_s;
    plan_ = std::move(plan);
    plan_.trials = answers_.trials;
    plan_.iterations = answers_.iterations;
    plan_.stopped = answers_.stopped;
    consider();
  }

  // Lists other kinds in place of the winner's, best first.
  void consider() {
    struct Other {
      Split split;
      double share;  // upper bound
      bool beaten;
      const char* phase;
    };
    std::vector<Other> others;
    const auto add = [&](std::size_t family, std::size_t unit, const Split& split, double winner_share, const char* phase) {
      const UnitGoodput& goodput = answers_.families[family].goodputs[unit];
      const double worth = families_[family][unit].worth;
      const double share = goodput.beaten ? std::min(winner_share, families_[family][unit].ceiling_per_s / worth)
                                          : goodput.requests_per_s / worth;
      others.push_back({split, share, goodput.beaten, phase});
    };
    double shares[2] = {0, 0};
    for (std::size_t family = 0; family < families_.size(); ++family) {
      const UnitAnswer& answer = answers_.families[family];
      if (answer.best) {
        shares[family] = answer.goodputs[*answer.best].requests_per_s / families_[family][*answer.best].worth;
      }
      for (std::size_t unit = 0; unit < families_[family].size(); ++unit) {
        Split split = split_;
        if (low()) {
          split = pair(unit);
          if (split.prefill == split_.prefill && split.decode == split_.decode) continue;
        } else {
          (family == 0 ? split.prefill : split.decode) = static_cast<int>(unit);
          if (split.prefill == split_.prefill && split.decode == split_.decode) continue;
          (family == 0 ? split.prefill_per_s : split.decode_per_s) = answer.goodputs[unit].requests_per_s;
        }
        add(family, unit, split, shares[family], low() ? "pair" : family == 0 ? "prefill" : "decode");
      }
    }
    std::stable_sort(others.begin(), others.end(), [](const Other& a, const Other& b) { return a.share > b.share; });
    if (others.size() > kMaxConsidered) others.resize(kMaxConsidered);
    const Split chosen = split_;
    for (const Other& other : others) {
      split_ = other.split;
      // A beaten unit has at most the share that it had to beat.
      const double worth = low()                   ? units_.worth(split_.prefill) + units_.worth(split_.decode)
                           : other.phase[0] == 'p' ? units_.worth(split_.prefill)
                                                   : units_.worth(split_.decode);
      const double per_s = other.share * worth;
      if (low()) {
        split_.prefill_per_s = split_.decode_per_s = per_s;
      } else {
        (other.phase[0] == 'p' ? split_.prefill_per_s : split_.decode_per_s) = per_s;
      }
      Rejection considered;
      considered.deployment = deployment(
          {instances(problem_.requests_per_s, split_.prefill_per_s), instances(problem_.requests_per_s, split_.decode_per_s)});
      considered.cost_per_hour = cost_per_hour(problem_, considered.deployment);
      considered.predicted.simulated = true;
      considered.predicted.capacity_requests_per_s = std::min(considered.deployment.pools[0].workers * split_.prefill_per_s,
                                                              considered.deployment.pools[1].workers * split_.decode_per_s);
      const double winner = other.phase[0] == 'd' ? shares[1] : shares[0];
      considered.rejected_because = per_s > 0
                                        ? fmt::format("{}: {}{:.4g} requests/s per {}, the plan {:.4g}", other.phase,
                                                      other.beaten ? "at most " : "", other.share, unit_of_worth(), winner)
                                        : fmt::format("{}: meets the objectives at no rate", other.phase);
      plan_.considered.push_back(std::move(considered));
    }
    split_ = chosen;
  }

  [[nodiscard]] const char* unit_of_worth() const {
    switch (problem_.goal) {
      case Goal::kCost: return "dollar per hour";
      case Goal::kPower: return "watt";
      case Goal::kThroughput: return "GPU";
    }
    return "";
  }

  const Problem& problem_;
  const Effort& effort_;
  const DistServeOptions options_;
  const std::int64_t requests_;
  const DistServeUnits units_;
  NodeAffinity affinity_ = NodeAffinity::kAuto;
  std::string why_;
  std::vector<std::vector<Unit>> families_;
  UnitAnswers answers_;
  Split split_;
  Counts counts_;
  sim::ServingResult result_;
  Offer plan_;
};

}  // namespace

double DistServeChoice::goodput_per_worth(double prefill_worth, double decode_worth) const {
  if (!(prefill_per_s > 0 && decode_per_s > 0)) return 0;
  if (affinity == NodeAffinity::kLow) return prefill_per_s / (prefill_worth + decode_worth);
  return 1 / (prefill_worth / prefill_per_s + decode_worth / decode_per_s);
}

Result<DistServeChoice> distserve_choice(const Problem& problem, const Effort& effort, const DistServeOptions& options) {
  WINDLASS_RETURN_IF_ERROR(check(problem, options));
  return DistServe(problem, effort, options).choice();
}

Result<Offer> distserve_plan(const Problem& problem, const Effort& effort, const DistServeOptions& options) {
  WINDLASS_RETURN_IF_ERROR(check(problem, options));
  return DistServe(problem, effort, options).plan();
}

Result<Offer> distserve_plan(const Problem& problem, const Effort& effort) { return distserve_plan(problem, effort, {}); }

}  // namespace windlass::search
