// See stage_cost.h.
#include "planner/strategies/core/stage_cost.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "planner/catalog/weight_matrices.h"
#include "planner/sizing/worker_config.h"

namespace windlass::hetero {
namespace {

// Time of a message of `bytes`; infinite without a link.
double message_s(const Link& link, double bytes) {
  return link.bytes_per_s > 0 ? link.latency_s + bytes / link.bytes_per_s : kInfinite;
}

}  // namespace

double InferenceTask::replica_bytes() const { return model_bytes + kConcurrentRequests * layers * layer_kv_bytes; }

Result<InferenceTask> inference_task(const planner::ModelShape& shape, double input_tokens, double output_tokens, int max_gpus,
                                     double memory_share) {
  const auto wrong = [](std::string what) { return Error{ErrorCode::kInvalidArgument, std::move(what)}; };
  WINDLASS_RETURN_IF_ERROR(planner::validate(shape));
  if (!(input_tokens > 0) || !std::isfinite(input_tokens)) {
    return wrong(fmt::format("workload: input tokens: must be above 0 (got {})", input_tokens));
  }
  if (!(output_tokens > 0) || !std::isfinite(output_tokens)) {
    return wrong(fmt::format("workload: output tokens: must be above 0 (got {})", output_tokens));
  }
  if (!(memory_share > 0 && memory_share <= 1)) {
    return wrong(fmt::format("memory share: must be above 0 and at most 1 (got {})", memory_share));
  }
  // Matrices outside the layers: the output projection and others between the vocabulary and the model's width.
  double outside = 0;
  for (const planner::WeightMatrix& matrix : planner::weight_matrices(shape)) {
    if (matrix.role != planner::MatrixRole::kOutput && matrix.role != planner::MatrixRole::kProjection) continue;
    outside += static_cast<double>(matrix.parameters());
  }
  const double bytes = planner::bytes_of(shape.dtype);
  InferenceTask task;
  task.layers = shape.layers;
  task.model_bytes = planner::weight_bytes(shape);
  task.layer_flops_per_token =
      2 * (static_cast<double>(planner::active_matmul_parameter_count(shape)) - outside) / shape.layers;
  task.layer_weight_bytes = (planner::matmul_weight_bytes(shape) - outside * bytes) / shape.layers;
  task.layer_kv_bytes = planner::kv_bytes(shape, input_tokens + output_tokens) / shape.layers;
  task.layer_prompt_kv_bytes = planner::kv_bytes(shape, input_tokens) / shape.layers;
  task.kv_shards = planner::kv_shards(shape);
  task.token_bytes = shape.hidden * bytes;
  task.compute_dtype = planner::compute_dtype(shape);
  task.input_tokens = input_tokens;
  task.output_tokens = output_tokens;
  task.tensor_parallel = planner::tensor_parallel_degrees(shape, max_gpus);
  task.memory_share = memory_share;
  return task;
}

int StageFigures::max_layers(int batch, int layers) const {
  const double left = memory_bytes - batch * activation_bytes;
  if (!(left > 0) || !std::isfinite(prefill_layer_s)) return 0;
  return static_cast<int>(std::min<double>(layers, std::floor(left / (weight_bytes + batch * kv_bytes))));
}

StageFigures stage_figures(const InferenceTask& task, const planner::AcceleratorSpec& accelerator, const Link& within,
                           int tensor_parallel) {
  const double peers = tensor_parallel - 1;
  const double flops = planner::peak_flops_for(accelerator, task.compute_dtype);
  const auto compute_s = [&](double tokens) {
    return flops > 0 ? task.layer_flops_per_token * tokens / (tensor_parallel * flops) : kInfinite;
  };
  // Four messages per peer and layer (two all-reduces, each a reduce-scatter and an all-gather).
  const auto peers_s = [&](double bytes) { return peers > 0 ? 4 * peers * message_s(within, bytes / tensor_parallel) : 0; };
  StageFigures figures;
  figures.tensor_parallel = tensor_parallel;
  figures.prefill_layer_s = compute_s(task.input_tokens) + peers_s(task.input_tokens * task.token_bytes);
  const double silent_s = peers_s(0);
  figures.decode_layer_s =
      task.output_tokens * (task.layer_weight_bytes / (tensor_parallel * accelerator.memory_bandwidth_bytes_per_s) + silent_s);
  figures.decode_layer_request_s = compute_s(task.output_tokens);
  if (peers > 0) {
    figures.decode_layer_request_s +=
        within.bytes_per_s > 0 ? task.output_tokens * 4 * peers * task.token_bytes / (tensor_parallel * within.bytes_per_s)
                               : kInfinite;
  }
  figures.weight_bytes = task.layer_weight_bytes / tensor_parallel;
  figures.kv_bytes = task.layer_kv_bytes / std::min(tensor_parallel, task.kv_shards);
  figures.activation_bytes = 4 * (task.input_tokens + task.output_tokens) * task.token_bytes;
  figures.memory_bytes = accelerator.memory_bytes * task.memory_share;
  return figures;
}

double prefill_hop_s(const InferenceTask& task, const Link& link) {
  return message_s(link, task.input_tokens * task.token_bytes);
}

double decode_hop_s(const InferenceTask& task, const Link& link, int batch) {
  return task.output_tokens * message_s(link, batch * task.token_bytes);
}

double kv_transfer_s(const InferenceTask& task, const Link& link, int layers, int connections) {
  return message_s(link, task.layer_prompt_kv_bytes * layers / connections);
}

int groups_by_memory(const InferenceTask& task, const GpuCluster& cluster) {
  double memory = 0;
  for (const ClusterNode& node : cluster.nodes) memory += node.gpus * node.accelerator.memory_bytes;
  return static_cast<int>(std::floor(memory / task.replica_bytes()));
}

}  // namespace windlass::hetero
