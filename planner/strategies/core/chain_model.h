// ChainModel predicts how long an iteration of a chain takes, for the simulator. It uses the times per request of HexGen-2's
// Table 1 (stage_cost.h).
//
// Table 1 is linear in tokens, so four numbers describe a chain. As in its capacities, stages add up and do not overlap: the
// chain works on one batch at a time, as one engine and not a pipeline of lanes. Immutable; pure.
#pragma once

#include "planner/base/result.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/deployment.h"
#include "planner/deployment/gpu_cluster.h"
#include "planner/perf/iteration_model.h"

namespace windlass::hetero {

class ChainModel final : public planner::IterationModel {
 public:
  // Errors: shapes that validate() rejects; stages without a link between them; GPUs that cannot compute in the model's type.
  // REQUIRES: a chain whose hops have all of the model's layers, each hop's GPUs on one node of the cluster.
  [[nodiscard]] static Result<ChainModel> make(const planner::ModelShape& shape, const GpuCluster& cluster,
                                               const planner::Chain& chain);

  [[nodiscard]] double iteration_s(const planner::Batch& batch) const override {
    double seconds = 0;
    if (batch.prefill_sequences > 0) seconds += prefill_s_ + per_prompt_token_s_ * batch.prefill_tokens;
    if (batch.decode_sequences > 0) seconds += decode_s_ + per_decode_s_ * batch.decode_sequences;
    return seconds;
  }
  // From data sheets.
  [[nodiscard]] planner::Coverage coverage(const planner::Batch&) const override { return planner::Coverage::kModelled; }
  // Capacity of the stage with the least room.
  [[nodiscard]] double kv_capacity_tokens() const override { return kv_capacity_tokens_; }

 private:
  ChainModel() = default;

  double prefill_s_ = 0, per_prompt_token_s_ = 0;
  double decode_s_ = 0, per_decode_s_ = 0;
  double kv_capacity_tokens_ = 0;
};

}  // namespace windlass::hetero
