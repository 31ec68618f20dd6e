// See staged_model.h.
#include "planner/strategies/core/staged_model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/catalog/efficiency.h"
#include "planner/deployment/chains.h"
#include "planner/perf/operator_model.h"
#include "planner/perf/operator_times.h"
#include "planner/perf/profile_operators.h"
#include "planner/strategies/core/stage_cost.h"

namespace windlass::hetero {

Result<std::shared_ptr<const planner::IterationModel>> roofline_instance(const planner::ModelShape& shape,
                                                                         const ClusterNode& machine, int tensor_parallel,
                                                                         const planner::EngineOverhead& overhead) {
  planner::AcceleratorSpec spec = machine.accelerator;
  spec.intra_link_bandwidth_bytes_per_s = machine.within.bytes_per_s;
  spec.intra_link_latency_s = machine.within.latency_s;
  const planner::OperatorHardware hardware = planner::operator_hardware(spec);
  planner::AcceleratorEfficiency efficiency = planner::efficiency_of(spec.name, hardware.flops_8bit > 0).efficiency;
  // A step of an all-reduce takes at least a message's latency.
  efficiency.collective_hop_s = std::max(efficiency.collective_hop_s, machine.within.latency_s);
  planner::OperatorModelOptions options;
  options.tensor_parallel = tensor_parallel;
  options.overhead = overhead;
  WINDLASS_ASSIGN_OR_RETURN(options.weights, planner::gemm_kind(shape));
  const planner::OperatorTimes times(hardware, efficiency, {});
  WINDLASS_ASSIGN_OR_RETURN(auto model, planner::OperatorModel::make(shape, spec, times, options));
  return std::shared_ptr<const planner::IterationModel>(std::make_shared<planner::OperatorModel>(std::move(model)));
}

planner::HopTimes hop_times(const planner::ModelShape& shape, const Link& link) {
  return planner::hop_times(shape, link.bytes_per_s, link.latency_s);
}

StageBytes stage_bytes(const planner::ModelShape& shape, int layers, int tensor_parallel) {
  const double share = static_cast<double>(layers) / shape.layers;
  return {share * planner::weight_bytes(shape) / tensor_parallel,
          share * planner::kv_bytes_per_token(shape) / std::min(tensor_parallel, planner::kv_shards(shape))};
}

Result<StagedModel> StagedModel::make(const planner::ModelShape& shape, const GpuCluster& cluster,
                                      const planner::Chain& chain) {
  StagedModel model;
  model.kv_capacity_tokens_ = std::numeric_limits<double>::infinity();
  std::map<std::pair<int, int>, std::size_t> known;  // stage, by node and tensor parallelism
  int before = -1;                                   // node of the previous hop
  for (const planner::Hop& hop : chain.hops) {
    const int node = cluster.node_of(hop.gpus.front());
    const ClusterNode& at = cluster.nodes[static_cast<std::size_t>(node)];
    const int tensor_parallel = static_cast<int>(hop.gpus.size());
    const auto [stage, added] = known.try_emplace({node, tensor_parallel}, model.stages_.size());
    if (added) {
      WINDLASS_ASSIGN_OR_RETURN(auto whole, roofline_instance(shape, at, tensor_parallel));
      model.stages_.push_back({std::move(whole), 0});
    }
    model.stages_[stage->second].share += static_cast<double>(hop.layers) / shape.layers;
    if (before >= 0) {
      const planner::HopTimes times = hop_times(shape, cluster.link(before, node));
      model.hops_.latency_s += times.latency_s;
      model.hops_.s_per_token += times.s_per_token;
    }
    before = node;
    const StageBytes bytes = stage_bytes(shape, hop.layers, tensor_parallel);
    model.kv_capacity_tokens_ =
        std::min(model.kv_capacity_tokens_, (kMemoryShare * at.accelerator.memory_bytes - bytes.weights) / bytes.per_token);
  }
  if (!std::isfinite(model.hops_.latency_s)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("chain {}: servers must be connected by links",
                                                          fmt::join(planner::gpu_names(cluster, chain.gpus()), " "))};
  }
  return model;
}

double StagedModel::iteration_s(const planner::Batch& batch) const {
  double seconds = hops_.at(batch.prefill_tokens + batch.decode_sequences);
  for (const Stage& stage : stages_) seconds += stage.share * stage.whole->iteration_s(batch);
  return seconds;
}

}  // namespace windlass::hetero
