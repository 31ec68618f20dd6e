// StagedModel predicts an iteration of a chain: each hop's share of the layers by the roofline of its GPUs, and the messages
// between hops.
//
// The chain works on one batch at a time, as one engine (docs/decisions/2026-11-22-chains-of-workers.md): stages do not
// overlap. The answer goes back through all hops; it is small, so only its latency counts. Immutable; pure.
#pragma once

#include <memory>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/deployment.h"
#include "planner/deployment/gpu_cluster.h"
#include "planner/perf/engine_overhead.h"
#include "planner/perf/hop_times.h"
#include "planner/perf/iteration_model.h"

namespace windlass::hetero {

// Model of a worker from the machine's data sheet and its own link (planner/perf/operator_model.h). `overhead`: the engine's
// additional time. The whole model need not fit. Errors: those of OperatorModel.
[[nodiscard]] Result<std::shared_ptr<const planner::IterationModel>> roofline_instance(
    const planner::ModelShape& shape, const ClusterNode& machine, int tensor_parallel,
    const planner::EngineOverhead& overhead = {});

// Infinite without a link.
[[nodiscard]] planner::HopTimes hop_times(const planner::ModelShape& shape, const Link& link);

// Bytes of weights and, for each token, of KV cache that `layers` of the model's layers take on each GPU of a stage. Embeddings
// and the output projection are spread over all layers.
struct StageBytes {
  double weights = 0;
  double per_token = 0;
};
[[nodiscard]] StageBytes stage_bytes(const planner::ModelShape& shape, int layers, int tensor_parallel);

class StagedModel final : public planner::IterationModel {
 public:
  // Errors: those of OperatorModel; stages without a link between them. REQUIRES: a chain whose hops have all of the model's
  // layers, each hop's GPUs on one node of the cluster.
  [[nodiscard]] static Result<StagedModel> make(const planner::ModelShape& shape, const GpuCluster& cluster,
                                                const planner::Chain& chain);

  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override;
  // From data sheets.
  [[nodiscard]] planner::Coverage coverage(const planner::Batch&) const override { return planner::Coverage::kModelled; }
  // Capacity of the stage with the least room.
  [[nodiscard]] double kv_capacity_tokens() const override { return kv_capacity_tokens_; }

 private:
  struct Stage {
    std::shared_ptr<const planner::IterationModel> whole;  // the whole model on this stage's GPUs
    double share = 0;                                      // of its layers
  };

  StagedModel() = default;

  std::vector<Stage> stages_;  // alike ones together
  planner::HopTimes hops_;     // of all hops
  double kv_capacity_tokens_ = 0;
};

}  // namespace windlass::hetero
