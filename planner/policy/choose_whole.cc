// Chooses a configuration among workers that each process whole requests. See choose_configuration.h.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/policy/choose_configuration.h"
#include "planner/policy/costly_change.h"
#include "planner/policy/explain_choice.h"
#include "planner/policy/infeasible.h"
#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"
#include "planner/sizing/replicated.h"

namespace windlass::planner {
namespace {

// Accelerator and GPUs of the whole workers and chains that run: the last choice if any of its workers exist, otherwise those
// of most workers.
std::optional<WorkerSpec> running_configuration(const Service& service, const PolicyMemory& memory) {
  std::map<std::tuple<std::string, int, int>, int> counts;  // by accelerator, tensor parallelism and stages
  for (const Worker& worker : service.workers) {
    if (!holds_gpus(worker) || worker.role != dispatch::Role::kUnified) continue;
    const GpuSplit split = worker.split();
    if (!memory.prefill_share && worker.pool == memory.configuration)
      return WorkerSpec{worker.accelerator, split.tensor_parallel, split.stages};
    ++counts[{worker.accelerator, split.tensor_parallel, split.stages}];
  }
  const auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most == counts.end()) return std::nullopt;
  const auto& [accelerator, tensor_parallel, stages] = most->first;
  return WorkerSpec{accelerator, tensor_parallel, stages};
}

// Input of place_replicated(), and one thing it does not take: the GPUs of each class that the whole service may hold.
struct Asked {
  ReplicatedInput input;
  std::map<std::string, std::optional<int>> max_gpus;
};

Asked ask(const ConfigurationInput& given, ConfigurationChoice& choice) {
  const Service& service = *given.service;
  const Snapshot& snapshot = *given.snapshot;
  Asked asked;
  ReplicatedInput& input = asked.input;
  input.shape = *service.shape;
  input.objective = objective_of(service);
  input.lengths = Lengths{service.workload.input_tokens, service.workload.output_tokens};
  input.requests_per_s = service.workload.requests_per_s;
  input.max_context_tokens = service.max_context_tokens;
  input.max_gpus_per_worker = service.max_gpus_per_worker;
  input.engine = service.engine;
  input.estimates = service.estimates;
  input.chained = service.scaling.strategy == Family::kChained;
  for (const AllowedAccelerator& allowed : allowed_of(service, snapshot)) {
    const AcceleratorState* state = find_accelerator(snapshot, allowed.accelerator);
    if (state == nullptr) {
      std::vector<std::string> known;
      for (const AcceleratorState& other : snapshot.accelerators) known.push_back(other.spec.name);
      choice.reasons.push_back(
          Reason{"UnknownAccelerator",
                 fmt::format("spec.accelerators: must name known AcceleratorClasses (got {}); known: {}", allowed.accelerator,
                             known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "))),
                 {{"accelerator", allowed.accelerator}}});
      continue;
    }
    if (!asked.max_gpus.emplace(allowed.accelerator, allowed.max_gpus).second) continue;  // of two entries the first counts
    // A chain's servers may be on any nodes.
    const int available = input.chained ? available_to(service, *given.capacities, allowed.accelerator)
                                        : available_to_worker(service, *given.capacities, allowed.accelerator);
    const int most = input.chained ? std::max(available, state->spec.gpus_per_node) : state->spec.gpus_per_node;
    input.accelerators.push_back(AcceleratorOption{state->spec, allowed.max_gpus.value_or(most), available});
  }
  return asked;
}

// The running configuration, if it still meets the objective and the winner is not worth a change.
std::optional<Candidate> keep_running(const ConfigurationInput& given, const Asked& asked, const WorkerSpec& running,
                                      const Candidate& winner, ConfigurationChoice& choice) {
  const auto& options = asked.input.accelerators;
  const auto option = std::find_if(options.begin(), options.end(),
                                   [&](const AcceleratorOption& o) { return o.spec.name == running.accelerator; });
  ReplicatedInput only = asked.input;
  only.accelerators = {*option};
  // Measured times are noisy: keep a running configuration that is slightly over the objective.
  only.objective.ttft_s *= kKeptSlack;
  only.objective.tpot_s *= kKeptSlack;
  auto kept = replicated_candidate(only, running.split());
  if (!kept) return std::nullopt;
  const WorkerConfig& to = winner.config;
  const bool clearly_cheaper = winner.has_room && winner.cost_per_hour < kSwitchCostShare * kept->cost_per_hour;
  Reason objection;
  if (!clearly_cheaper) {
    objection = Reason{
        "KeptConfiguration",
        fmt::format("{} runs and meets the objective; {} would cost {:.4g} per hour instead of {:.4g}, but a change needs less "
                    "than {:.0f} % of the cost",
                    text_of(running), text_of(to.spec), winner.cost_per_hour, kept->cost_per_hour, kSwitchCostShare * 100),
        {}};
  } else {
    const double price = to.spec.gpus() * find_accelerator(*given.snapshot, to.spec.accelerator)->spec.price_per_hour;
    objection =
        objection_to_change(given, {fmt::format("from {} to {}", text_of(kept->config.spec), text_of(to.spec)),
                                    kept->cost_per_hour,
                                    winner.cost_per_hour,
                                    kept->config.times.service_s,
                                    {{to.spec.accelerator, to.spec.split(), price, asked.max_gpus.at(to.spec.accelerator)}}});
  }
  if (objection.code.empty()) return std::nullopt;
  choice.reasons.push_back(std::move(objection));
  return kept;
}

Configuration configuration_of(const ConfigurationInput& given, const Asked& asked, const WorkerConfig& config) {
  const int may_run = max_concurrency_of(*given.service, config.kv_capacity_tokens);
  Configuration made = make_configuration(given, find_accelerator(*given.snapshot, config.spec.accelerator)->spec,
                                          config.spec.split(), may_run, pool_name(config.spec));
  made.max_gpus = asked.max_gpus.at(config.spec.accelerator);
  return made;
}

// The best configuration of every class but this one, cheapest per request first.
std::vector<Configuration> other_classes_of(const ConfigurationInput& given, const Asked& asked, const ReplicatedResult& result,
                                            const std::string& accelerator) {
  std::vector<Configuration> others;
  for (const Candidate& candidate : result.candidates) {
    const WorkerConfig& config = candidate.config;
    const bool listed = std::any_of(others.begin(), others.end(), [&](const Configuration& other) {
      return other.pool.spec.accelerator == config.spec.accelerator;
    });
    if (config.spec.accelerator == accelerator || listed) continue;
    others.push_back(configuration_of(given, asked, config));
  }
  const auto price_per_request = [](const Configuration& of) { return of.price_per_hour / requests_per_s(of); };
  std::stable_sort(others.begin(), others.end(),
                   [&](const Configuration& a, const Configuration& b) { return price_per_request(a) < price_per_request(b); });
  return others;
}

// No configuration meets the objective: take the closest; if only its data sheet says that it misses, run it to measure it.
// Returns whether there is one.
bool take_closest(const ConfigurationInput& given, const Asked& asked, const std::optional<WorkerSpec>& running,
                  ReplicatedResult& result, ConfigurationChoice& choice) {
  explain_infeasible(result, asked.input, given, choice);
  weigh(result, std::nullopt, asked.input, choice);
  const auto closest = closest_of(result, asked.input, running);
  if (!closest) return false;
  result.candidates.push_back(*closest);
  const WorkerConfig& config = closest->config;
  if (find_estimate(given.service->estimates, config.spec.accelerator, config.spec.split()) == nullptr) {
    choice.feasible.status = Truth::kUnknown;
    choice.feasible.reason = "NotMeasured";
    choice.feasible.message = fmt::format("according to the data sheet only ({} runs first, to be measured): {}",
                                          text_of(config.spec), choice.feasible.message);
  }
  return true;
}

void explain_winner(const WorkerConfig& config, ConfigurationChoice& choice) {
  choice.feasible = Hint{Truth::kTrue, "ObjectiveCanBeMet",
                         fmt::format("up to {} concurrent requests on each worker of {}", config.batch, text_of(config.spec))};
  choice.reasons.push_back(Reason{
      "WorkerConfiguration",
      fmt::format("{} runs up to {} requests at once at {:.4g} tokens/s per accelerator (limit: {}), {:.4g} ms per token",
                  text_of(config.spec), config.batch, config.tokens_per_s_per_gpu, to_string(config.limit),
                  config.times.tpot_s * 1e3),
      {{"accelerator", config.spec.accelerator},
       {"gpusPerWorker", std::to_string(config.spec.gpus())},
       {"batch", std::to_string(config.batch)},
       {"limit", to_string(config.limit)},
       {"tokensPerSPerGpu", figure(config.tokens_per_s_per_gpu)},
       {"kvCacheTokens", figure(config.kv_capacity_tokens)},
       {"prefillS", figure(config.times.prefill_s)},
       {"tpotS", figure(config.times.tpot_s)},
       {"serviceS", figure(config.times.service_s)}}});
}

}  // namespace

std::vector<Configuration> other_classes(const ConfigurationInput& given, const std::string& accelerator) {
  ConfigurationChoice unread;  // a class that cannot be read is explained elsewhere
  const Asked asked = ask(given, unread);
  return other_classes_of(given, asked, place_replicated(asked.input), accelerator);
}

ConfigurationChoice choose_whole(const ConfigurationInput& given) {
  const Service& service = *given.service;
  const Snapshot& snapshot = *given.snapshot;
  ConfigurationChoice choice;
  const auto running = running_configuration(service, *given.memory);
  if (running && may_use(service, running->accelerator) && find_accelerator(snapshot, running->accelerator) == nullptr) {
    choice.feasible = Hint{Truth::kUnknown, "RunningClassUnknown",
                           fmt::format("workers run on AcceleratorClass {}, which cannot be read; they are left unchanged",
                                       running->accelerator.empty() ? "(none named)" : running->accelerator)};
    choice.reasons.push_back(Reason{choice.feasible.reason, choice.feasible.message, {{"accelerator", running->accelerator}}});
    return choice;
  }

  const Asked asked = ask(given, choice);
  ReplicatedResult result = place_replicated(asked.input);
  const bool infeasible = result.candidates.empty();
  if (infeasible && !take_closest(given, asked, running, result, choice)) return choice;
  Candidate winner = result.candidates.front();

  const bool under_way = !given.memory->prefill_share && given.memory->configuration == pool_name(winner.config.spec);
  const bool differs = running && !under_way && *running != winner.config.spec;
  if (differs && asked.max_gpus.contains(running->accelerator)) {
    if (auto kept = keep_running(given, asked, *running, winner, choice)) winner = *std::move(kept);
  }

  choice.chosen = configuration_of(given, asked, winner.config);
  if (service.scaling.strategy == Family::kAuto)
    choice.others = other_classes_of(given, asked, result, winner.config.spec.accelerator);
  if (!infeasible) explain_winner(winner.config, choice);
  explain_belief(service, find_accelerator(snapshot, winner.config.spec.accelerator)->spec, *choice.chosen, given.believed,
                 choice);
  if (infeasible) return choice;
  explain_losers(result, winner, choice);
  weigh(result, winner, asked.input, choice);
  return choice;
}

}  // namespace windlass::planner
