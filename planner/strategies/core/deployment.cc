// See deployment.h.
#include "planner/strategies/core/deployment.h"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "planner/strategies/core/worker_models.h"

namespace windlass::search {
namespace {

sim::ServingPool serving_pool(const Problem& problem, const Pool& from, const planner::IterationModel& model) {
  const WorkerKind& kind = kind_of(problem, from.spec);
  const planner::AcceleratorSpec& spec = problem.spec(kind);
  sim::ServingPool pool;
  const std::string role = from.role == dispatch::Role::kUnified ? "" : fmt::format("{} ", dispatch::to_string(from.role));
  pool.name = role + worker_text(from.spec);
  pool.accelerator = spec.name;
  pool.role = from.role;
  pool.workers = from.workers;
  pool.model = &model;
  pool.engine = from.spec.engine;
  if (pool.engine.kv_blocks == 0) {
    pool.engine.kv_blocks = static_cast<std::int64_t>(kind.kv_capacity_tokens) / pool.engine.block_tokens;
  }
  pool.gpus_per_worker = kind.gpus();
  pool.price_per_gpu_hour = spec.price_per_hour;
  pool.power_per_gpu_watts = spec.power_watts * from.spec.power_share;
  return pool;
}

// A service has one path: of those to its decode workers the slowest.
planner::KvTransferPath path_of(const Problem& problem, const Deployment& deployment) {
  std::optional<planner::KvTransferPath> path;
  for (const Pool& pool : deployment.pools) {
    if (pool.role != dispatch::Role::kDecode) continue;
    const planner::KvTransferPath& own = problem.path_to(kind_of(problem, pool.spec), deployment.pairs_share_a_node);
    path = path ? planner::slower_of(*path, own) : own;
  }
  return path.value_or(deployment.pairs_share_a_node ? problem.within_node : problem.between_nodes);
}

}  // namespace

double cost_per_hour(const Problem& problem, const Deployment& deployment) {
  double cost = 0;
  for (const Pool& pool : deployment.pools) cost += pool.workers * problem.price_per_hour(kind_of(problem, pool.spec));
  return cost;
}

double power_watts(const Problem& problem, const Deployment& deployment) {
  double watts = 0;
  for (const Pool& pool : deployment.pools) {
    watts += pool.workers * problem.power_watts(kind_of(problem, pool.spec)) * pool.spec.power_share;
  }
  return watts;
}

double worth_of(const Problem& problem, const Deployment& deployment) {
  constexpr double kOfGpu = 1e-6;  // of equals fewer GPUs are less, where prices are 0 too
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
      return refused(fmt::format("needs {} GPUs of {}, {} may be used", wanted, choice.spec.name, choice.gpus));
    }
  }
  const int all = gpus_of(deployment);
  if (all > problem.max_gpus) return refused(fmt::format("needs {} GPUs, {} may be used", all, problem.max_gpus));
  const double cost = cost_per_hour(problem, deployment);
  if (cost > problem.max_cost_per_hour) {
    return refused(fmt::format("costs {:.6g} an hour, {:.6g} may be spent", cost, problem.max_cost_per_hour));
  }
  return {};
}

Served serving_service(const Problem& problem, const Deployment& deployment) {
  Served served;
  sim::ServingService& service = served.service;
  service.name = problem.name;
  for (const Pool& pool : deployment.pools) {
    served.models.push_back(model_of(problem, pool.spec));
    service.pools.push_back(serving_pool(problem, pool, *served.models.back()));
  }
  service.link.path = path_of(problem, deployment);
  service.link.kv_bytes_per_token = planner::kv_bytes_per_token(problem.shape);
  service.dispatch = deployment.dispatch;
  service.objectives = problem.objectives.both;
  service.slowdown_reference = problem.slowdown_reference.get();
  return served;
}

}  // namespace windlass::search
