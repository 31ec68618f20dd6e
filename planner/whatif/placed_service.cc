// See placed_service.h.
#include "planner/whatif/placed_service.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/clusters/placed_pools.h"
#include "planner/strategies/core/worker_kinds.h"
#include "planner/strategies/hexgen2/group_model.h"

namespace windlass::hetero {
namespace {

using Model = std::shared_ptr<const planner::IterationModel>;

const ClusterNode& node_of(const GpuCluster& cluster, int gpu) {
  return cluster.nodes[static_cast<std::size_t>(cluster.node_of(gpu))];
}

Result<Model> model_of(const ClusterProblem& problem, const Group& group) {
  const planner::ModelShape& shape = problem.search->shape;
  if (group.role == dispatch::Role::kUnified && group.stages.size() == 1) {
    WINDLASS_ASSIGN_OR_RETURN(
        auto kind, search::roofline_models(shape)(node_of(problem.cluster, group.stages.front().gpus.front()).accelerator,
                                                  group.tensor_parallel(), 1));
    return Model(std::move(kind.model));
  }
  WINDLASS_ASSIGN_OR_RETURN(GroupModel model, GroupModel::make(shape, problem.cluster, group));
  return Model(std::make_shared<const GroupModel>(std::move(model)));
}

sim::ServingPool pool_of(const ClusterProblem& problem, const Group& group, const planner::IterationModel& model) {
  const std::vector<int> gpus = gpus_of(group);
  sim::ServingPool pool;
  for (const std::string& name : gpu_names(problem.cluster, gpus)) pool.name += (pool.name.empty() ? "" : " ") + name;
  pool.role = group.role;
  pool.model = &model;
  pool.engine = problem.search->engine;
  pool.engine.max_sequences = std::max(1, group.batch);
  pool.engine.kv_blocks = 0;  // what the model's capacity gives
  pool.gpus_per_worker = static_cast<int>(gpus.size());
  double price = 0, power = 0;
  for (const int gpu : gpus) {
    const planner::AcceleratorSpec& spec = node_of(problem.cluster, gpu).accelerator;
    if (pool.accelerator.find(spec.name) == std::string::npos)
      pool.accelerator += (pool.accelerator.empty() ? "" : " + ") + spec.name;
    price += spec.price_per_hour;
    power += spec.power_watts;
  }
  pool.price_per_gpu_hour = price / pool.gpus_per_worker;
  pool.power_per_gpu_watts = power / pool.gpus_per_worker;
  return pool;
}

}  // namespace

Result<PlacedService> to_serving(const ClusterProblem& problem, const ClusterPlan& plan) {
  const search::Problem& search = *problem.search;
  const auto wrong = [&](const char* what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("the plan of {}: {}", plan.strategy, what)};
  };
  if (plan.groups.empty()) return wrong("found no groups, allowed is at least one");
  const bool unified = plan.groups.front().role == dispatch::Role::kUnified;
  std::vector<bool> used(plan.groups.size(), unified);
  for (const FlowEdge& edge : plan.flow) {
    if (!(edge.requests_per_s > 0)) continue;
    used[static_cast<std::size_t>(edge.from)] = used[static_cast<std::size_t>(edge.to)] = true;
  }
  PlacedService placed;
  sim::ServingService& service = placed.service;
  service.name = search.name;
  std::vector<int> pool_of_group(plan.groups.size(), -1);
  for (std::size_t g = 0; g < plan.groups.size(); ++g) {
    if (!used[g]) continue;
    WINDLASS_ASSIGN_OR_RETURN(Model model, model_of(problem, plan.groups[g]));
    pool_of_group[g] = static_cast<int>(service.pools.size());
    service.pools.push_back(pool_of(problem, plan.groups[g], *model));
    placed.models.push_back(std::move(model));
  }
  if (service.pools.empty()) return wrong("found prefill and decode groups without flow between them, allowed are some with");
  service.link.kv_bytes_per_token = planner::kv_bytes_per_token(search.shape);
  service.objectives = search.objectives.both;
  service.slowdown_reference = search.slowdown_reference.get();
  if (unified) {
    service.dispatch.policy = dispatch::PolicyKind::kHuawei;
    service.dispatch.huawei.assumed_output_tokens = search.requests->mean_output_tokens();
    return placed;
  }
  service.dispatch.decode_choice = dispatch::DecodeChoice::kPairs;
  for (const FlowEdge& edge : plan.flow) {
    if (!(edge.requests_per_s > 0)) continue;
    sim::PoolPair& pair = service.pairs.emplace_back();
    pair.prefill = pool_of_group[static_cast<std::size_t>(edge.from)];
    pair.decode = pool_of_group[static_cast<std::size_t>(edge.to)];
    pair.weight = edge.requests_per_s;
    pair.path.bandwidth_bytes_per_s =
        edge.capacity_requests_per_s * search.requests->mean_input_tokens() * service.link.kv_bytes_per_token;
  }
  return placed;
}

}  // namespace windlass::hetero
