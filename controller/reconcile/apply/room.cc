// room decides whether a pool may get more workers. Four limits apply: the service's cost limit, its maximum number of workers,
// its maximum number of GPUs per class, and the class's free GPUs.
#include <algorithm>
#include <string>
#include <vector>

#include "controller/reconcile/apply/step.h"
#include "planner/policy/capacity.h"

namespace windlass::controller {
namespace {

double price(const Observation& observation, const std::string& accelerator) {
  const auto found = observation.classes.find(accelerator);
  return found == observation.classes.end() ? 0.0 : found->second->spec.price_per_hour.value_or(0);
}

// GPUs of the class that our workers hold, over all services.
std::int64_t held_gpus(const Observation& observation, const std::string& accelerator, bool elastic) {
  std::int64_t held = 0;
  const auto add = [&](const Worker& worker) {
    // The nodes' capacity excludes lost nodes and nodes being emptied, so exclude the GPUs held there too.
    const bool counted = elastic || (worker.trouble != planner::WorkerTrouble::kNodeLost && !worker.node_leaving);
    if (worker.accelerator == accelerator && !worker.finished && counted) held += worker.gpus;
  };
  for (const auto& [uid, workers] : observation.workers) std::for_each(workers.begin(), workers.end(), add);
  std::for_each(observation.orphans.begin(), observation.orphans.end(), add);
  std::for_each(observation.strays.begin(), observation.strays.end(), add);
  return held;
}

// Whether `more` workers of the pool find nodes next to all workers that exist or were requested in this step. True if no node
// of the class is known.
bool fits_on_nodes(const Observation& observation, const ServiceStep& own, const planner::Pool& pool, int more) {
  const std::string& accelerator = pool.spec.accelerator;
  planner::FreeByNode free;
  bool known = false;
  for (const planner::NodeState& node : observation.snapshot.nodes) {
    if (node.accelerator != accelerator) continue;
    known = true;
    if (!node.unschedulable) free[node.name] = node.allocatable_gpus - node.used_by_others;
  }
  if (!known) return true;
  std::vector<int> without_node;  // GPUs of each server
  for (const auto& [uid, workers] : observation.workers) {
    for (const Worker& worker : workers) {
      if (worker.accelerator != accelerator || worker.finished) continue;
      for (const std::string& at : worker.nodes()) {
        if (at.empty()) {
          without_node.push_back(worker.gpus_of_server());
        } else if (const auto node = free.find(at); node != free.end()) {
          node->second -= worker.gpus_of_server();
        }
      }
    }
  }
  for (const AskedFor& worker : own.asked_for) {
    if (worker.accelerator != accelerator) continue;
    without_node.insert(without_node.end(), static_cast<std::size_t>(worker.split.stages), worker.split.tensor_parallel);
  }
  std::sort(without_node.rbegin(), without_node.rend());
  for (const int gpus : without_node) planner::place_workers(free, gpus, 1);
  return planner::place_workers(free, pool.spec.split(), more) == more;
}

}  // namespace

// Whether `more` workers of the pool fit the service's budget and its shares of classes.
bool inside_budget(const ApplyStep& step, const ServiceStep& own, const planner::Pool& pool, int more) {
  const Observation& observation = step.context.observation;
  double cost = more * pool.spec.gpus() * price(observation, pool.spec.accelerator);
  std::int64_t of_service = std::int64_t{more} * pool.spec.gpus();
  const auto add = [&](const std::string& accelerator, int gpus) {
    cost += gpus * price(observation, accelerator);
    if (accelerator == pool.spec.accelerator) of_service += gpus;
  };
  for (const Worker* worker : own.active) add(worker->accelerator, worker->gpus);
  for (const Worker* worker : own.lost) add(worker->accelerator, worker->gpus);
  for (const AskedFor& worker : own.asked_for) add(worker.accelerator, worker.split.gpus());
  constexpr double kRounding = 1e-9;
  const api::ModelServiceSpec& spec = own.service.spec;
  if (spec.scaling.max_cost_per_hour && cost > *spec.scaling.max_cost_per_hour + kRounding) return false;
  return std::none_of(spec.accelerators.begin(), spec.accelerators.end(), [&](const auto& choice) {
    return choice.accelerator_class == pool.spec.accelerator && choice.max_gpus && of_service > *choice.max_gpus;
  });
}

// Whether `more` workers of the pool fit the budget, the service's worker limits and the class's free GPUs, each worker on one
// node.
bool has_room(const ApplyStep& step, const ServiceStep& own, const Wanted& wanted, int more) {
  const Observation& observation = step.context.observation;
  const planner::Pool& pool = wanted.pool;
  const auto& most = own.service.spec.scaling.max_workers;
  const std::size_t there = own.active.size() + own.lost.size() + own.asked_for.size();
  if (most && static_cast<std::int64_t>(there) + more > *most) return false;
  if (!inside_budget(step, own, pool, more)) return false;
  const auto capacity = observation.capacity.find(pool.spec.accelerator);
  if (capacity == observation.capacity.end()) return false;
  const api::CapacitySpec& promised = wanted.accelerator.spec.capacity;
  const bool elastic = promised.mode == api::CapacityMode::kElastic;
  std::int64_t held = std::int64_t{more} * pool.spec.gpus() + held_gpus(observation, pool.spec.accelerator, elastic);
  for (const AskedFor& worker : own.asked_for) held += worker.accelerator == pool.spec.accelerator ? worker.split.gpus() : 0;
  const std::int64_t limit = elastic ? promised.max_gpus.value_or(0) : capacity->second.allocatable;
  if (held + capacity->second.used_by_others > limit) return false;
  // A lost worker's GPUs may come back, so its replacement waits for a node without giving it up.
  return elastic || !own.lost.empty() || fits_on_nodes(observation, own, pool, more);
}

}  // namespace windlass::controller
