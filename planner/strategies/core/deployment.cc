// See deployment.h.
#include "planner/strategies/core/deployment.h"

#include <map>
#include <optional>

#include <fmt/format.h>

#include "planner/deployment/pool_name.h"

namespace windlass::search {
namespace {

// A sum over the pools' workers.
template <class Of>
auto sum(const Problem& problem, const Deployment& deployment, const Of& of) {
  decltype(of(problem.kinds.front())) total = 0;
  for (const PlannedPool& pool : deployment.pools) total += pool.workers * of(kind_of(problem, pool));
  return total;
}

std::string worker_text(const Problem& problem, const WorkerKind& kind) {
  const std::string name = planner::pool_name(problem.spec(kind).name, kind.gpus());
  return kind.pipeline_stages == 1 ? name : fmt::format("{} (PP {})", name, kind.pipeline_stages);
}

sim::ServingPool serving_pool(const Problem& problem, const PlannedPool& from) {
  const WorkerKind& kind = kind_of(problem, from);
  const planner::AcceleratorSpec& spec = problem.spec(kind);
  sim::ServingPool pool;
  const std::string role = from.role == dispatch::Role::kUnified ? "" : fmt::format("{} ", dispatch::to_string(from.role));
  pool.name = role + worker_text(problem, kind);
  pool.accelerator = spec.name;
  pool.role = from.role;
  pool.workers = from.workers;
  pool.model = from.model ? from.model.get() : kind.model.get();
  pool.engine = from.engine;
  if (pool.engine.kv_blocks == 0) {
    pool.engine.kv_blocks = static_cast<std::int64_t>(kind.kv_capacity_tokens) / pool.engine.block_tokens;
  }
  pool.gpus_per_worker = kind.gpus();
  pool.price_per_gpu_hour = spec.price_per_hour;
  pool.power_per_gpu_watts = spec.power_watts * from.power_share;
  return pool;
}

// A service has one path: of those to its decode workers the slowest.
planner::KvTransferPath path_of(const Problem& problem, const Deployment& deployment) {
  std::optional<planner::KvTransferPath> path;
  for (const PlannedPool& pool : deployment.pools) {
    if (pool.role != dispatch::Role::kDecode) continue;
    const planner::KvTransferPath& own = problem.path_to(kind_of(problem, pool), deployment.pairs_share_a_node);
    path = path ? planner::slower_of(*path, own) : own;
  }
  return path.value_or(deployment.pairs_share_a_node ? problem.within_node : problem.between_nodes);
}

}  // namespace

const WorkerKind& kind_of(const Problem& problem, const PlannedPool& pool) {
  return problem.kinds[static_cast<std::size_t>(pool.kind)];
}

int gpus_of(const Problem& problem, const Deployment& deployment) {
  return sum(problem, deployment, [](const WorkerKind& kind) { return kind.gpus(); });
}

double cost_per_hour(const Problem& problem, const Deployment& deployment) {
  return sum(problem, deployment, [&](const WorkerKind& kind) { return problem.price_per_hour(kind); });
}

double power_watts(const Problem& problem, const Deployment& deployment) {
  double watts = 0;
  for (const PlannedPool& pool : deployment.pools) {
    watts += pool.workers * problem.power_watts(kind_of(problem, pool)) * pool.power_share;
  }
  return watts;
}

double worth_of(const Problem& problem, const Deployment& deployment) {
  constexpr double kOfGpu = 1e-6;  // of equals fewer GPUs are less, where prices are 0 too
  const int gpus = gpus_of(problem, deployment);
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
  for (const PlannedPool& pool : deployment.pools) {
    const WorkerKind& kind = kind_of(problem, pool);
    gpus[kind.accelerator] += pool.workers * kind.gpus();
  }
  for (const auto& [accelerator, wanted] : gpus) {
    const AcceleratorChoice& choice = problem.accelerators[static_cast<std::size_t>(accelerator)];
    if (wanted > choice.gpus) {
      return refused(fmt::format("needs {} GPUs of {}, {} may be used", wanted, choice.spec.name, choice.gpus));
    }
  }
  const int all = gpus_of(problem, deployment);
  if (all > problem.max_gpus) return refused(fmt::format("needs {} GPUs, {} may be used", all, problem.max_gpus));
  const double cost = cost_per_hour(problem, deployment);
  if (cost > problem.max_cost_per_hour) {
    return refused(fmt::format("costs {:.6g} an hour, {:.6g} may be spent", cost, problem.max_cost_per_hour));
  }
  return {};
}

std::string describe(const Problem& problem, const Deployment& deployment) {
  std::string text;
  for (const PlannedPool& pool : deployment.pools) {
    if (!text.empty()) text += " + ";
    if (pool.role != dispatch::Role::kUnified) text += fmt::format("{} ", dispatch::to_string(pool.role));
    text += fmt::format("{} x {}", pool.workers, worker_text(problem, kind_of(problem, pool)));
    if (pool.power_share != 1) text += fmt::format(" (at {:.0f} % of its power)", 100 * pool.power_share);
  }
  return text;
}

sim::ServingService serving_service(const Problem& problem, const Deployment& deployment) {
  sim::ServingService service;
  service.name = problem.name;
  for (const PlannedPool& pool : deployment.pools) service.pools.push_back(serving_pool(problem, pool));
  service.link.path = path_of(problem, deployment);
  service.link.kv_bytes_per_token = planner::kv_bytes_per_token(problem.shape);
  service.dispatch = deployment.dispatch;
  service.objectives = problem.objectives.both;
  service.slowdown_reference = problem.slowdown_reference.get();
  return service;
}

}  // namespace windlass::search
