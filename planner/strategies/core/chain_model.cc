// See chain_model.h.
#include "planner/strategies/core/chain_model.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "planner/deployment/chains.h"
#include "planner/strategies/core/stage_cost.h"

namespace windlass::hetero {

Result<ChainModel> ChainModel::make(const planner::ModelShape& shape, const GpuCluster& cluster, const planner::Chain& chain) {
  int max_gpus = 1;
  for (const planner::Hop& hop : chain.hops) max_gpus = std::max(max_gpus, static_cast<int>(hop.gpus.size()));
  // Requests of one and of two tokens show the cost of a token; one output token is one iteration.
  const double memory_share = kMemoryShare;
  WINDLASS_ASSIGN_OR_RETURN(const InferenceTask one, inference_task(shape, 1, 1, max_gpus, memory_share));
  WINDLASS_ASSIGN_OR_RETURN(const InferenceTask two, inference_task(shape, 2, 1, max_gpus, memory_share));
  ChainModel model;
  model.kv_capacity_tokens_ = std::numeric_limits<double>::infinity();
  int before = -1;  // node of the previous hop
  for (const planner::Hop& hop : chain.hops) {
    const int node = cluster.node_of(hop.gpus.front());
    const ClusterNode& at = cluster.nodes[static_cast<std::size_t>(node)];
    const int tensor_parallel = static_cast<int>(hop.gpus.size());
    const StageFigures of_one = stage_figures(one, at.accelerator, at.within, tensor_parallel);
    const StageFigures of_two = stage_figures(two, at.accelerator, at.within, tensor_parallel);
    const double token_s = of_two.prefill_layer_s - of_one.prefill_layer_s;
    model.per_prompt_token_s_ += hop.layers * token_s;
    model.prefill_s_ += hop.layers * (of_one.prefill_layer_s - token_s);
    model.decode_s_ += hop.layers * of_one.decode_layer_s;
    model.per_decode_s_ += hop.layers * of_one.decode_layer_request_s;
    if (before >= 0) {
      const Link& link = cluster.link(before, node);
      const double prompt_s = prefill_hop_s(one, link), decode_s = decode_hop_s(one, link, 1);
      const double hop_token_s = prefill_hop_s(two, link) - prompt_s, hop_decode_s = decode_hop_s(one, link, 2) - decode_s;
      model.per_prompt_token_s_ += hop_token_s;
      model.prefill_s_ += prompt_s - hop_token_s;
      model.per_decode_s_ += hop_decode_s;
      model.decode_s_ += decode_s - hop_decode_s;
    }
    before = node;
    // Tokens of both requests: Table 1's memory limit counts both.
    const double tokens = one.input_tokens + one.output_tokens;
    const double token_bytes = (hop.layers * of_one.kv_bytes + of_one.activation_bytes) / tokens;
    model.kv_capacity_tokens_ =
        std::min(model.kv_capacity_tokens_, (of_one.memory_bytes - hop.layers * of_one.weight_bytes) / token_bytes);
  }
  if (!std::isfinite(model.prefill_s_ + model.per_prompt_token_s_ + model.decode_s_ + model.per_decode_s_)) {
    std::string names;
    for (const std::string& name : planner::gpu_names(cluster, chain.gpus())) names += (names.empty() ? "" : " ") + name;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("chain {}: GPUs: must be connected by links and able to compute in {}", names,
                             planner::to_string(shape.dtype))};
  }
  // Differences of equal costs may be slightly negative from rounding.
  for (double* time : {&model.prefill_s_, &model.decode_s_}) *time = std::max(0.0, *time);
  return model;
}

}  // namespace windlass::hetero
