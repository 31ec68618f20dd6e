// See hexgen2.h.
#include "planner/strategies/hexgen2/hexgen2.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/strategies/core/deployment.h"
#include "planner/strategies/hexgen2/hexgen2_exhaustive.h"
#include "planner/strategies/hexgen2/hexgen2_partition.h"
#include "planner/strategies/hexgen2/hexgen2_refine.h"
#include "planner/strategies/hexgen2/hexgen_genetic.h"

namespace windlass::hetero {
namespace {

constexpr int kMaxExhaustive = 12;         // GPUs
constexpr std::size_t kRandomStarts = 48;  // groups; up to this number, all chains except the first start at random
constexpr std::int64_t kIdle = 20'000;

int rounds_for(int groups, const Hexgen2Options& options) {
  if (options.rounds > 0) return options.rounds;
  return groups <= static_cast<int>(kFewGroups) ? 60 : 100;
}

// Steps after which a chain no longer leaves local optima; a search of 64 GPUs then ends within a second.
std::int64_t shake_steps(const GpuCluster& cluster) {
  return std::min<std::int64_t>(2'000'000, 50'000 + 2'000 * static_cast<std::int64_t>(cluster.gpus()));
}

struct SwapChain {
  std::unique_ptr<StrategyTable> table;
  Placement groups;
  std::int64_t flow = 0, first_flow = 0, steps = 0, improvements = 0;
  bool stopped = false;
};

SwapChain run_chain(const GpuCluster& cluster, const InferenceTask& task, int groups, std::uint64_t seed, std::size_t index,
                    std::int64_t max_steps, const search::Effort& effort, const Hexgen2Options& options) {
  SwapChain chain;
  chain.table = std::make_unique<StrategyTable>(cluster, task);
  StrategyTable& table = *chain.table;
  Rng rng(seed, fmt::format("hexgen2 {}", index));
  BipartiteFlow flow;
  const std::int64_t idle = options.idle > 0 ? options.idle : kIdle;
  if (options.search == Hexgen2Search::kGenetic) {
    GeneticOptions genetic;
    genetic.idle = idle;
    genetic.keep_groups = !options.fewer_groups;
    genetic.max_groups = groups;
    genetic.max_steps = max_steps;
    genetic.stop = effort.stop;
    Evolved evolved = evolve(
        table, groups, {}, [&](Placement& placement) { return second_phase(table, placement, flow); }, genetic, std::move(rng));
    chain.groups = std::move(evolved.groups);
    chain.flow = second_phase(table, chain.groups, flow);
    chain.steps = evolved.steps;
    chain.stopped = evolved.stopped;
    return chain;
  }
  const bool guided = options.search == Hexgen2Search::kMaxFlowGuided;
  Placement start = index > 0 && static_cast<std::size_t>(groups) <= kRandomStarts ? random_placement(table, groups, rng)
                                                                                   : first_phase(table, groups);
  Placement first = start;
  chain.first_flow = second_phase(table, first, flow);
  RefineOptions refinement;
  refinement.guided = guided;
  refinement.may_empty = options.fewer_groups;
  refinement.rounds = guided ? rounds_for(groups, options) : static_cast<int>(std::min<std::int64_t>(idle, 1'000'000'000));
  refinement.shake_until = shake_steps(cluster);
  refinement.max_steps = max_steps;
  refinement.stop = effort.stop;
  Refined refined = refine(table, std::move(start), refinement, std::move(rng));
  chain.groups = std::move(refined.groups);
  chain.flow = refined.flow;
  chain.steps = refined.steps;
  chain.improvements = refined.improvements;
  chain.stopped = refined.stopped;
  if (chain.first_flow > chain.flow) {
    chain.groups = std::move(first);
    chain.flow = chain.first_flow;
  }
  return chain;
}

Result<Scheduled> exhaust(const GpuCluster& cluster, const InferenceTask& task, int groups, const search::Effort& effort,
                          const Hexgen2Options& options) {
  if (cluster.gpus() > kMaxExhaustive) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("exhaustive search: must have at most {} GPUs (got {})", kMaxExhaustive, cluster.gpus())};
  }
  Scheduled scheduled;
  scheduled.table = std::make_unique<StrategyTable>(cluster, task);
  scheduled.max_groups = groups;
  for (int count = options.fewer_groups ? 2 : groups; count <= groups; ++count) {
    WINDLASS_ASSIGN_OR_RETURN(Exhausted exhausted, exhaustive_placement(*scheduled.table, count, effort.stop));
    scheduled.steps += exhausted.placements;
    if (exhausted.flow <= scheduled.flow) continue;
    scheduled.flow = exhausted.flow;
    scheduled.groups = std::move(exhausted.groups);
  }
  return scheduled;
}

// Describes what limits the flow.
std::string bottleneck(const PlacementNetwork& network, std::int64_t flow) {
  std::int64_t prefill = 0, decode = 0;
  for (const std::int64_t units : network.flow.prefill) prefill += units;
  for (const std::int64_t units : network.flow.decode) decode += units;
  const auto rate = [](std::int64_t units) { return static_cast<double>(units) / kFlowUnitsPerRequest; };
  const std::string both = fmt::format("{} prefill groups serve {:.4g} requests/s, {} decode groups {:.4g}",
                                       network.prefill.size(), rate(prefill), network.decode.size(), rate(decode));
  if (flow < std::min(prefill, decode)) return both + ": the transfer of KV caches between them is the bottleneck";
  return both + (prefill <= decode ? ": prefill is the bottleneck" : ": decode is the bottleneck");
}

}  // namespace

const char* to_string(Hexgen2Search search) {
  switch (search) {
    case Hexgen2Search::kMaxFlowGuided: return "max-flow guided";
    case Hexgen2Search::kRandomSwaps: return "random swaps";
    case Hexgen2Search::kGenetic: return "genetic";
    case Hexgen2Search::kExhaustive: return "exhaustive";
  }
  return "";
}

Result<Scheduled> hexgen2_schedule(const GpuCluster& cluster, const InferenceTask& task, std::uint64_t seed,
                                   const search::Effort& effort, const Hexgen2Options& options) {
  WINDLASS_RETURN_IF_ERROR(validate(cluster));
  const auto wrong = [](std::string what) { return Error{ErrorCode::kInvalidArgument, std::move(what)}; };
  const int gpus = cluster.gpus();
  if (gpus < 2) return wrong(fmt::format("cluster: must have at least 2 GPUs, one per phase (got {})", gpus));
  if (options.groups != 0 && (options.groups < 2 || options.groups > gpus)) {
    return wrong(fmt::format("groups: must be from 2 to {}, or 0 to compute it from memory (got {})", gpus, options.groups));
  }
  if (options.chains < 1) return wrong(fmt::format("chains: must be at least 1 (got {})", options.chains));
  if (options.rounds < 0) return wrong(fmt::format("rounds: must be at least 0 (got {})", options.rounds));
  if (options.idle < 0) return wrong(fmt::format("idle: must be at least 0 (got {})", options.idle));
  const int groups = options.groups > 0 ? options.groups : std::clamp(groups_by_memory(task, cluster), 2, gpus);
  if (options.search == Hexgen2Search::kExhaustive) return exhaust(cluster, task, groups, effort, options);
  const auto chains = static_cast<std::size_t>(options.chains);
  std::vector<std::optional<SwapChain>> done(chains);
  const std::int64_t max_steps = std::max<std::int64_t>(1, effort.max_iterations / options.chains);
  const auto run = [&](std::size_t index) {
    if (!stop_requested(effort.stop)) done[index] = run_chain(cluster, task, groups, seed, index, max_steps, effort, options);
  };
  SerialExecutor own;
  (effort.executor != nullptr ? *effort.executor : own).run(chains, run);
  Scheduled scheduled;
  scheduled.max_groups = groups;
  for (std::optional<SwapChain>& chain : done) {
    if (!chain) {
      scheduled.stopped = true;
      continue;
    }
    scheduled.steps += chain->steps;
    scheduled.improvements += chain->improvements;
    scheduled.stopped = scheduled.stopped || chain->stopped;
    if (scheduled.first_flow == 0) scheduled.first_flow = chain->first_flow;
    if (scheduled.table && chain->flow <= scheduled.flow) continue;
    scheduled.flow = chain->flow;
    scheduled.groups = std::move(chain->groups);
    scheduled.table = std::move(chain->table);
  }
  if (!scheduled.table) return Error{ErrorCode::kCancelled, "stopped before anything was placed"};
  return scheduled;
}

Result<void> validate_task(const Problem& problem) {
  const auto wrong = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: {}", problem.name, what)};
  };
  if (problem.requests == nullptr) return wrong("workload: must be set (got none)");
  if (!(problem.requests_per_s > 0)) {
    return wrong(fmt::format("workload.requestsPerSecond: must be above 0 (got {})", problem.requests_per_s));
  }
  return search::validate_cluster(problem);
}

Result<InferenceTask> task_of(const Problem& problem, double memory_share) {
  int max_gpus = 1;
  for (const ClusterNode& node : problem.cluster->nodes) max_gpus = std::max(max_gpus, node.gpus);
  WINDLASS_ASSIGN_OR_RETURN(InferenceTask task, inference_task(problem.shape, problem.requests->mean_input_tokens(),
                                                               problem.requests->mean_output_tokens(), max_gpus, memory_share));
  task.max_batch = problem.engine.max_sequences;
  return task;
}

planner::Deployment deployment_of(const Problem& problem, const Placement& groups, bool unified) {
  std::vector<int> next;  // next unassigned GPU of each node
  int first = 0;
  for (const ClusterNode& node : problem.cluster->nodes) {
    next.push_back(first);
    first += node.gpus;
  }
  planner::Deployment deployment;
  deployment.dispatch = search::dispatch_of_chains(problem, unified);
  for (const PlacedGroup& group : groups) {
    const PhaseStrategy& strategy = unified ? group.entry->strategies->unified : group.strategy();
    if (!(strategy.capacity_requests_per_s > 0)) continue;
    Chain chain;
    chain.role = unified ? dispatch::Role::kUnified : group.prefill ? dispatch::Role::kPrefill : dispatch::Role::kDecode;
    chain.requests_per_s = strategy.capacity_requests_per_s;
    chain.latency_s = strategy.latency_s;
    chain.batch = strategy.batch;
    std::vector<planner::WorkerSpec> specs;
    for (const OrderedStage& stage : strategy.orders[group.order]) {
      const auto node = static_cast<std::size_t>(group.entry->nodes[static_cast<std::size_t>(stage.slot)]);
      Hop& hop = chain.hops.emplace_back();
      hop.layers = stage.layers;
      for (int i = 0; i < stage.tensor_parallel; ++i) hop.gpus.push_back(next[node]++);
      specs.push_back({problem.cluster->nodes[node].accelerator.name, stage.tensor_parallel, 1, problem.engine});
    }
    add_chain(deployment, std::move(chain), specs);
  }
  return deployment;
}

void complete(const Problem& problem, Offer& plan) {
  plan.gpus = gpus_of(plan.deployment);
  plan.cost_per_hour = cost_per_hour(problem, plan.deployment);
  plan.power_watts = power_watts(problem, plan.deployment);
  const double rate = problem.requests_per_s, capacity = plan.predicted.capacity_requests_per_s;
  plan.holds = capacity >= rate;
  if (!plan.holds) {
    plan.reasons.push_back(fmt::format("the cluster serves {:.4g} requests/s, {:.4g} fewer than the required {:.4g}", capacity,
                                       rate - capacity, rate));
  }
  const int idle = problem.cluster->gpus() - plan.gpus;
  if (idle > 0) plan.reasons.push_back(fmt::format("{} of {} GPUs have no group", idle, problem.cluster->gpus()));
}

Error does_not_fit(const Problem& problem, const InferenceTask& task, int copies, const std::string& strategy) {
  constexpr std::size_t kMaxNamed = 8;
  std::vector<std::string> nodes;
  int layers = 0;
  for (const ClusterNode& node : problem.cluster->nodes) {
    const int held = node.gpus * stage_figures(task, node.accelerator, node.within, 1).max_layers(1, task.layers);
    layers += held;
    if (nodes.size() < kMaxNamed) {
      nodes.push_back(fmt::format("{} ({} x {}) {}", node.name, node.gpus, node.accelerator.name, held));
    }
  }
  if (problem.cluster->nodes.size() > kMaxNamed) {
    nodes.push_back(fmt::format("and {} more nodes", problem.cluster->nodes.size() - kMaxNamed));
  }
  const std::string found = fmt::format("layers of {} that fit: {}", task.layers, fmt::join(nodes, ", "));
  const std::string need = copies == 1 ? "a group needs all of them" : "two groups, one for each phase, need all of them";
  const int missing = copies * task.layers - layers;
  if (missing > 0) {
    return {ErrorCode::kNotFound,
            fmt::format("{}: {}: {}; {}: room for {} layers with a request's KV cache, {:.1f} GB, is missing", problem.name,
                        strategy, found, need, missing, missing * (task.layer_weight_bytes + task.layer_kv_bytes) / 1e9)};
  }
  return {ErrorCode::kNotFound,
          fmt::format("{}: {}: {}; {}: memory is sufficient, but no partition has links between all stages and groups",
                      problem.name, strategy, found, need)};
}

Result<Offer> hexgen2_plan(const Problem& problem, const search::Effort& effort, const Hexgen2Options& options) {
  WINDLASS_RETURN_IF_ERROR(validate_task(problem));
  WINDLASS_ASSIGN_OR_RETURN(const InferenceTask task, task_of(problem, options.memory_share));
  if (problem.cluster->gpus() < 2) return does_not_fit(problem, task, 2, "hexgen2");
  if (effort.progress) effort.progress("hexgen2: partition and refinement", 0);
  auto scheduled = hexgen2_schedule(*problem.cluster, task, problem.seed, effort, options);
  if (!scheduled.ok()) return scheduled.error().within(problem.name + ": hexgen2");
  if (scheduled->flow == 0) {
    if (scheduled->stopped) return Error{ErrorCode::kCancelled, "stopped before a feasible placement was found"};
    return does_not_fit(problem, task, 2, "hexgen2");
  }
  if (effort.progress) effort.progress("hexgen2: flow", 0.9);
  Offer plan;
  plan.strategy = "hexgen2";
  plan.deployment = deployment_of(problem, scheduled->groups, false);
  const PlacementNetwork network = network_of(*scheduled->table, scheduled->groups);
  const Flow flow = preflow_push(network.flow);
  // Positions among the serving groups, which are those of the plan.
  std::vector<int> planned(scheduled->groups.size(), -1);
  int position = 0;
  for (std::size_t i = 0; i < scheduled->groups.size(); ++i) {
    if (scheduled->groups[i].serves()) planned[i] = position++;
  }
  for (std::size_t p = 0; p < network.prefill.size(); ++p) {
    for (std::size_t d = 0; d < network.decode.size(); ++d) {
      const std::size_t at = p * network.decode.size() + d;
      if (flow.edges[at] == 0) continue;
      plan.deployment.pairs.push_back({planned[network.prefill[p]], planned[network.decode[d]],
                                       static_cast<double>(flow.edges[at]) / kFlowUnitsPerRequest,
                                       static_cast<double>(network.flow.edges[at]) / kFlowUnitsPerRequest,
                                       static_cast<double>(flow.edges[at]) / static_cast<double>(flow.value)});
    }
  }
  plan.predicted.capacity_requests_per_s = static_cast<double>(flow.value) / kFlowUnitsPerRequest;
  plan.iterations = scheduled->steps;
  plan.stopped = scheduled->stopped;
  plan.reasons.push_back(
      fmt::format("at most {} groups: the cluster's memory divided by that of a copy with {} requests ({:.1f} GB)",
                  scheduled->max_groups, kConcurrentRequests, task.replica_bytes() / 1e9));
  plan.reasons.push_back(bottleneck(network, flow.value));
  if (options.search == Hexgen2Search::kMaxFlowGuided) {
    const double first = static_cast<double>(scheduled->first_flow) / kFlowUnitsPerRequest;
    plan.reasons.push_back(
        fmt::format("the partition by bandwidth and memory alone serves {:.4g} requests/s; {} exchanges raised this to {:.4g}",
                    first, scheduled->improvements, plan.predicted.capacity_requests_per_s));
  }
  complete(problem, plan);
  if (effort.progress) effort.progress("hexgen2", 1);
  return plan;
}

}  // namespace windlass::hetero
