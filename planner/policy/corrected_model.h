// CorrectedModel: a latency model with what live workers say of it. corrected = scale * predicted + offset, prefill and decode
// apart (planner/perf/calibration.h), with both held inside what an accelerator can be off by.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "planner/perf/latency_model.h"
#include "planner/policy/snapshot.h"
#include "planner/policy/tuning.h"

namespace windlass::planner {

// The correction of this configuration if it may be believed: enough samples, an error that is small enough, sane figures.
[[nodiscard]] inline const LatencyCorrection* find_correction(const std::vector<LatencyCorrection>& corrections,
                                                              const std::string& accelerator, int gpus) {
  for (const LatencyCorrection& correction : corrections) {
    if (correction.accelerator != accelerator || correction.gpus_per_worker != gpus) continue;
    const bool finite = std::isfinite(correction.prefill_scale) && std::isfinite(correction.prefill_offset_s) &&
                        std::isfinite(correction.decode_scale) && std::isfinite(correction.decode_offset_s);
    const bool sure = correction.relative_error >= 0 && correction.relative_error <= kCorrectionError;
    return finite && sure && correction.samples >= kCorrectionSamples ? &correction : nullptr;
  }
  return nullptr;
}

class CorrectedModel final : public LatencyModel {
 public:
  // Borrows the model. Without a correction it answers as the model does.
  CorrectedModel(const LatencyModel& model, const LatencyCorrection* correction) : model_(&model) {
    if (correction == nullptr) return;
    prefill_ = {sane_scale(correction->prefill_scale), sane_offset(correction->prefill_offset_s)};
    decode_ = {sane_scale(correction->decode_scale), sane_offset(correction->decode_offset_s)};
  }

  [[nodiscard]] double prefill_s(double total_input_tokens) const override {
    return apply(prefill_, model_->prefill_s(total_input_tokens));
  }
  [[nodiscard]] double decode_s(double batch, double mean_context_tokens) const override {
    return apply(decode_, model_->decode_s(batch, mean_context_tokens));
  }
  [[nodiscard]] double kv_capacity_tokens() const override { return model_->kv_capacity_tokens(); }

 private:
  struct Line {
    double scale = 1;
    double offset_s = 0;
  };
  static double sane_scale(double scale) { return std::clamp(scale, kCorrectionScaleLeast, kCorrectionScaleMost); }
  static double sane_offset(double offset_s) { return std::clamp(offset_s, -kCorrectionOffsetMostS, kCorrectionOffsetMostS); }
  // Never below the share that a scale alone could leave; grows with the prediction, as the search needs it.
  static double apply(const Line& line, double seconds) {
    return std::max(kCorrectionScaleLeast * seconds, line.scale * seconds + line.offset_s);
  }

  const LatencyModel* model_;
  Line prefill_;
  Line decode_;
};

}  // namespace windlass::planner
