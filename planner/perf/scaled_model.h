// ScaledModel: a model at one end of its interval. Decodes take the factor of TPOT; what prompts add to an
// iteration takes that of TTFT. Immutable; pure.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>

#include "planner/perf/iteration_model.h"
#include "planner/perf/time_errors.h"

namespace windlass::planner {

class ScaledModel final : public IterationModel {
 public:
  ScaledModel(std::shared_ptr<const IterationModel> expected, const TimeErrors& errors, End end)
      : expected_(std::move(expected)), decode_(scale_of(end, errors.tpot)), prompt_(scale_of(end, errors.ttft)) {}

  [[nodiscard]] double iteration_s(const Batch& batch) const override {
    const double whole_s = expected_->iteration_s(batch);
    if (batch.prefill_sequences == 0) return decode_ * whole_s;
    if (batch.decode_sequences == 0) return prompt_ * whole_s;
    const double decodes_s =
        std::min(whole_s, expected_->iteration_s(Batch{0, 0, 0, batch.decode_sequences, batch.decode_context_tokens}));
    return decode_ * decodes_s + prompt_ * (whole_s - decodes_s);
  }
  [[nodiscard]] Coverage coverage(const Batch& batch) const override { return expected_->coverage(batch); }
  [[nodiscard]] double kv_capacity_tokens() const override { return expected_->kv_capacity_tokens(); }
  [[nodiscard]] TokenRange measured_contexts() const override { return expected_->measured_contexts(); }
  [[nodiscard]] TokenRange measured_prompts() const override { return expected_->measured_prompts(); }
  [[nodiscard]] int pipeline_stages() const override { return expected_->pipeline_stages(); }

 private:
  std::shared_ptr<const IterationModel> expected_;
  double decode_, prompt_;
};

// The model itself as expected.
[[nodiscard]] inline std::shared_ptr<const IterationModel> at_end(std::shared_ptr<const IterationModel> expected,
                                                                  const TimeErrors& errors, End end) {
  if (end == End::kExpected) return expected;
  return std::make_shared<const ScaledModel>(std::move(expected), errors, end);
}

}  // namespace windlass::planner
