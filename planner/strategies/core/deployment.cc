// See deployment.h.
#include "planner/strategies/core/deployment.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/deployment/chains.h"
#include "planner/perf/scaled_model.h"
#include "planner/strategies/core/chain_model.h"
#include "planner/strategies/core/staged_model.h"
#include "planner/strategies/core/worker_kinds.h"
#include "planner/strategies/core/worker_models.h"

namespace windlass::search {
namespace {

sim::ServingPool serving_pool(const Problem& problem, const Pool& from, const planner::IterationModel& model) {
  const WorkerKind& kind = kind_of(problem, from.spec);
  const planner::AcceleratorSpec& spec = problem.spec(kind);
  sim::ServingPool pool;
  const std::string role = from.role == dispatch::Role::kUnified ? "" : fmt::format("{} ", dispatch::to_string(from.role));
  pool.name = role + worker_text(from.spec);
  static_cast<Pool&>(pool) = from;
  pool.model = &model;
  if (pool.spec.engine.kv_blocks == 0) {
    pool.spec.engine.kv_blocks = static_cast<std::int64_t>(kind.kv_capacity_tokens) / pool.spec.engine.block_tokens;
  }
  pool.price_per_gpu_hour = spec.price_per_hour;
  pool.power_per_gpu_watts = spec.power_watts * from.spec.power_share;
  return pool;
}

// A service has one path: the slowest one to its decode workers.
planner::KvTransferPath path_of(const Problem& problem, const Deployment& deployment) {
  std::optional<planner::KvTransferPath> path;
  for (const Pool& pool : deployment.pools) {
    if (pool.role != dispatch::Role::kDecode) continue;
    const planner::KvTransferPath& own = problem.path_to(kind_of(problem, pool.spec), deployment.pairs_share_a_node);
    path = path ? planner::slower_of(*path, own) : own;
  }
  return path.value_or(deployment.pairs_share_a_node ? problem.within_node : problem.between_nodes);
}

using Model = std::shared_ptr<const planner::IterationModel>;

const hetero::ClusterNode& node_of(const Problem& problem, int gpu) {
  return problem.cluster->nodes[static_cast<std::size_t>(problem.cluster->node_of(gpu))];
}

Result<Model> model_of(const Problem& problem, const Chain& chain) {
  const planner::AcceleratorSpec& spec = node_of(problem, chain.hops.front().gpus.front()).accelerator;
  Model model;
  if (chain.role == dispatch::Role::kUnified && chain.hops.size() == 1) {
    WINDLASS_ASSIGN_OR_RETURN(auto kind, roofline_models(problem.shape)(spec, chain.tensor_parallel(), 1));
    model = std::move(kind.model);
  } else if (chain.role == dispatch::Role::kUnified) {
    WINDLASS_ASSIGN_OR_RETURN(auto made, hetero::StagedModel::make(problem.shape, *problem.cluster, chain));
    model = std::make_shared<const hetero::StagedModel>(std::move(made));
  } else {
    WINDLASS_ASSIGN_OR_RETURN(auto made, hetero::ChainModel::make(problem.shape, *problem.cluster, chain));
    model = std::make_shared<const hetero::ChainModel>(std::move(made));
  }
  const planner::TimeErrors errors = planner::sheet_errors(problem.shape, spec, planner::EngineType::kWindlass);
  return planner::at_end(std::move(model), errors, problem.times);
}

sim::ServingPool serving_pool(const Problem& problem, const Deployment& deployment, const Chain& chain,
                              const planner::IterationModel& model) {
  const std::vector<int> gpus = chain.gpus();
  sim::ServingPool pool;
  pool.name = fmt::format("{}", fmt::join(planner::gpu_names(*problem.cluster, gpus), " "));
  pool.role = chain.role;
  pool.workers = 1;
  pool.model = &model;
  pool.spec.engine = deployment.pools[static_cast<std::size_t>(chain.hops.front().pool)].spec.engine;
  pool.spec.engine.max_sequences = std::max(1, chain.batch);
  pool.spec.engine.kv_blocks = 0;  // computed from the model's capacity
  pool.spec.tensor_parallel = static_cast<int>(gpus.size());
  double price = 0, power = 0;
  for (const int gpu : gpus) {
    const planner::AcceleratorSpec& spec = node_of(problem, gpu).accelerator;
    std::string& accelerators = pool.spec.accelerator;
    if (accelerators.find(spec.name) == std::string::npos) accelerators += (accelerators.empty() ? "" : " + ") + spec.name;
    price += spec.price_per_hour;
    power += spec.power_watts;
  }
  pool.price_per_gpu_hour = price / pool.spec.gpus();
  pool.power_per_gpu_watts = power / pool.spec.gpus();
  return pool;
}

Result<void> add_chains(const Problem& problem, const Deployment& deployment, Served& served) {
  const bool unified = deployment.chains.front().role == dispatch::Role::kUnified;
  std::vector<bool> used(deployment.chains.size(), unified);
  for (const PairShare& pair : deployment.pairs) {
    if (!(pair.requests_per_s > 0)) continue;
    used[static_cast<std::size_t>(pair.from)] = used[static_cast<std::size_t>(pair.to)] = true;
  }
  sim::ServingService& service = served.service;
  std::vector<int> pool_of(deployment.chains.size(), -1);
  for (std::size_t c = 0; c < deployment.chains.size(); ++c) {
    if (!used[c]) continue;
    WINDLASS_ASSIGN_OR_RETURN(Model model, model_of(problem, deployment.chains[c]));
    pool_of[c] = static_cast<int>(service.pools.size());
    service.pools.push_back(serving_pool(problem, deployment, deployment.chains[c], *model));
    served.models.push_back(std::move(model));
  }
  if (service.pools.empty()) {
    return Error{ErrorCode::kInvalidArgument, "deployment: prefill and decode chains: must share some flow (got none)"};
  }
  for (const PairShare& share : deployment.pairs) {
    if (!(share.requests_per_s > 0)) continue;
    sim::PoolPair& pair = service.pairs.emplace_back();
    pair.prefill = pool_of[static_cast<std::size_t>(share.from)];
    pair.decode = pool_of[static_cast<std::size_t>(share.to)];
    pair.weight = share.requests_per_s;
    pair.path.bandwidth_bytes_per_s =
        share.capacity_requests_per_s * problem.requests->mean_input_tokens() * service.link.kv_bytes_per_token;
  }
  return {};
}

// A data-sheet figure, summed over the GPUs of all chains.
double sum_over_gpus(const Problem& problem, const Deployment& deployment, double planner::AcceleratorSpec::*figure) {
  const std::vector<int> nodes = problem.cluster->node_of_each_gpu();
  double sum = 0;
  for (const Chain& chain : deployment.chains) {
    for (const int gpu : chain.gpus()) {
      const auto node = static_cast<std::size_t>(nodes[static_cast<std::size_t>(gpu)]);
      sum += problem.cluster->nodes[node].accelerator.*figure;
    }
  }
  return sum;
}

}  // namespace

double cost_per_hour(const Problem& problem, const Deployment& deployment) {
  if (!deployment.chains.empty()) return sum_over_gpus(problem, deployment, &planner::AcceleratorSpec::price_per_hour);
  double cost = 0;
  for (const Pool& pool : deployment.pools) cost += pool.workers * problem.price_per_hour(kind_of(problem, pool.spec));
  return cost;
}

double power_watts(const Problem& problem, const Deployment& deployment) {
  if (!deployment.chains.empty()) return sum_over_gpus(problem, deployment, &planner::AcceleratorSpec::power_watts);
  double watts = 0;
  for (const Pool& pool : deployment.pools) {
    watts += pool.workers * problem.power_watts(kind_of(problem, pool.spec)) * pool.spec.power_share;
  }
  return watts;
}

double worth_of(const Problem& problem, const Deployment& deployment) {
  constexpr double kOfGpu = 1e-6;  // tie-breaker: fewer GPUs are better, also if prices are 0
  const int gpus = gpus_of(deployment);
  switch (problem.goal) {
    case Goal::kCost: return cost_per_hour(problem, deployment) + kOfGpu * gpus;
    case Goal::kPower: return power_watts(problem, deployment) + kOfGpu * gpus;
    case Goal::kThroughput: return gpus;
  }
  return 0;
}

Result<void> check_room(const Problem& problem, const Deployment& deployment) {
  const auto refused = [](const std::string& what) { return Error{ErrorCode::kResourceExhausted, what}; };
  std::map<int, int> gpus;
  for (const Pool& pool : deployment.pools) {
    const WorkerKind& kind = kind_of(problem, pool.spec);
    gpus[kind.accelerator] += pool.workers * kind.gpus();
  }
  for (const auto& [accelerator, wanted] : gpus) {
    const AcceleratorChoice& choice = problem.accelerators[static_cast<std::size_t>(accelerator)];
    if (wanted > choice.gpus) {
      return refused(fmt::format("needs {} GPUs of {}, but only {} may be used", wanted, choice.spec.name, choice.gpus));
    }
  }
  const int all = gpus_of(deployment);
  if (all > problem.max_gpus) return refused(fmt::format("needs {} GPUs, but only {} may be used", all, problem.max_gpus));
  const double cost = cost_per_hour(problem, deployment);
  if (cost > problem.max_cost_per_hour) {
    return refused(fmt::format("costs {:.6g} per hour, but only {:.6g} may be spent", cost, problem.max_cost_per_hour));
  }
  return {};
}

dispatch::DispatchSettings dispatch_of_chains(const Problem& problem, bool unified) {
  dispatch::DispatchSettings settings;
  if (unified) {
    settings.policy = dispatch::PolicyKind::kHuawei;
    settings.huawei.assumed_output_tokens = problem.requests->mean_output_tokens();
  } else {
    settings.decode_choice = dispatch::DecodeChoice::kPairs;
  }
  return settings;
}

Result<Served> serving_service(const Problem& problem, const Deployment& deployment) {
  if (deployment.pools.empty()) {
    return Error{ErrorCode::kInvalidArgument, "deployment: must have at least one worker (got none)"};
  }
  Served served;
  sim::ServingService& service = served.service;
  service.name = problem.name;
  service.link.kv_bytes_per_token = planner::kv_bytes_per_token(problem.shape);
  service.objectives = problem.objectives.both;
  service.slowdown_reference = problem.slowdown_reference.get();
  service.dispatch = deployment.dispatch;
  if (!deployment.chains.empty()) {
    WINDLASS_RETURN_IF_ERROR(add_chains(problem, deployment, served));
    return served;
  }
  service.link.path = path_of(problem, deployment);
  for (const Pool& pool : deployment.pools) {
    served.models.push_back(model_of(problem, pool.spec));
    service.pools.push_back(serving_pool(problem, pool, *served.models.back()));
  }
  return served;
}

}  // namespace windlass::search
