// Implements hexgen.h.
#include "tests/reference/papers/hexgen.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/hexgen2/hexgen2_partition.h"
#include "planner/strategies/hexgen2/hexgen_genetic.h"

namespace windlass::hetero {
namespace {

std::int64_t capacity_of(const Placement& groups) {
  std::int64_t sum = 0;
  for (const PlacedGroup& group : groups) sum += flow_units(group.entry->strategies->unified.capacity_requests_per_s);
  return sum;
}

struct GeneticChain {
  std::unique_ptr<StrategyTable> table;
  Evolved evolved;
};

}  // namespace

Result<Scheduled> hexgen_schedule(const GpuCluster& cluster, const InferenceTask& task, std::uint64_t seed,
                                  const search::Effort& effort, const HexgenOptions& options) {
  WINDLASS_RETURN_IF_ERROR(validate(cluster));
  const auto wrong = [](std::string what) { return Error{ErrorCode::kInvalidArgument, std::move(what)}; };
  if (options.chains < 1) return wrong(fmt::format("chains: must be at least 1 (got {})", options.chains));
  if (options.idle < 1) return wrong(fmt::format("idle: must be at least 1 (got {})", options.idle));
  const int groups = std::clamp(groups_by_memory(task, cluster), 1, cluster.gpus());
  std::vector<std::optional<GeneticChain>> done(static_cast<std::size_t>(options.chains));
  const auto run = [&](std::size_t index) {
    if (stop_requested(effort.stop)) return;
    GeneticChain chain;
    chain.table = std::make_unique<StrategyTable>(cluster, task, Service::kUnified);
    GeneticOptions genetic;
    genetic.idle = options.idle;
    genetic.max_steps = std::max<std::int64_t>(1, effort.max_iterations / options.chains);
    genetic.keep_groups = false;
    genetic.phases = false;
    genetic.stop = effort.stop;
    chain.evolved = evolve(*chain.table, groups, {first_phase(*chain.table, groups)}, capacity_of, genetic,
                           Rng(seed, fmt::format("hexgen {}", index)));
    done[index] = std::move(chain);
  };
  SerialExecutor own;
  (effort.executor != nullptr ? *effort.executor : own).run(done.size(), run);
  Scheduled scheduled;
  scheduled.max_groups = groups;
  for (std::optional<GeneticChain>& chain : done) {
    if (!chain) {
      scheduled.stopped = true;
      continue;
    }
    scheduled.steps += chain->evolved.steps;
    scheduled.stopped = scheduled.stopped || chain->evolved.stopped;
    if (scheduled.table && chain->evolved.fitness <= scheduled.flow) continue;
    scheduled.flow = chain->evolved.fitness;
    scheduled.groups = std::move(chain->evolved.groups);
    scheduled.table = std::move(chain->table);
  }
  if (!scheduled.table) return Error{ErrorCode::kCancelled, "stopped before the first placement"};
  // Orders belong to phases, which do not exist here.
  for (PlacedGroup& group : scheduled.groups) group.order = 0;
  return scheduled;
}

Result<Offer> hexgen_plan(const Problem& problem, const search::Effort& effort, const HexgenOptions& options) {
  WINDLASS_RETURN_IF_ERROR(validate_task(problem));
  WINDLASS_ASSIGN_OR_RETURN(const InferenceTask task, task_of(problem, options.memory_share));
  auto scheduled = hexgen_schedule(*problem.cluster, task, problem.seed, effort, options);
  if (!scheduled.ok()) return scheduled.error().within(problem.name + ": hexgen");
  if (scheduled->flow == 0) {
    if (scheduled->stopped) return Error{ErrorCode::kCancelled, "stopped before a placement that serves was found"};
    return does_not_fit(problem, task, 1, "hexgen");
  }
  Offer plan;
  plan.strategy = "hexgen";
  plan.deployment = deployment_of(problem, scheduled->groups, true);
  for (const Chain& chain : plan.deployment.chains) plan.predicted.capacity_requests_per_s += chain.requests_per_s;
  plan.iterations = scheduled->steps;
  plan.stopped = scheduled->stopped;
  plan.reasons.push_back(fmt::format("{} groups alternate between both phases", plan.deployment.chains.size()));
  complete(problem, plan);
  return plan;
}

}  // namespace windlass::hetero
