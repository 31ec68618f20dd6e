// Sizes workers that serve one phase; see phases.h.
#include "planner/sizing/phases.h"

#include <algorithm>
#include <cmath>

namespace windlass::planner {
namespace {

constexpr double kSaturation = 0.85;  // of the maximum rate in tokens per second, at a batch of L_m tokens
constexpr int kBatchesHeld = 2;       // batches that a prefill worker holds

int whole(double value, int most) {
  return static_cast<int>(std::clamp(std::floor(value + 1e-9), 0.0, static_cast<double>(most)));
}

}  // namespace

PhaseFit fit_prefill(const LatencyModel& model, const Lengths& lengths, int most) {
  const double input = std::max(1.0, lengths.input_tokens);
  const double one_s = model.prefill_s(input);
  const double token_s = std::max(1e-12, (model.prefill_s(2 * input) - one_s) / input);
  // t(n) = token_s n + fixed_s gives n / t(n) tokens per second, which is kSaturation of its maximum at n = L_m.
  const double fixed_s = std::max(0.0, one_s - token_s * input);
  const double batch_tokens = kSaturation / (1 - kSaturation) * fixed_s / token_s;
  const int room = whole(model.kv_capacity_tokens() / (input + kKvBlockTokens), most);
  PhaseFit fit;
  fit.times.prefill_s = one_s;
  if (room == 0) return fit;
  const int batch = std::clamp(whole(batch_tokens / input, most), 1, std::max(1, room / kBatchesHeld));
  fit.slots = std::min(room, kBatchesHeld * batch);
  fit.times.ttft_s = model.prefill_s(batch * input);
  fit.times.service_s = fit.slots * fit.times.ttft_s / batch;
  return fit;
}

PhaseFit fit_decode(const LatencyModel& model, const Objective& objective, const Lengths& lengths, int most) {
  const double context = lengths.input_tokens + kContextGrowth * lengths.output_tokens;
  const double peak = lengths.input_tokens + lengths.output_tokens + kKvBlockTokens;
  int low = 0, high = whole(model.kv_capacity_tokens() / peak, std::min(most, kMaxBatch));
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (model.decode_s(middle, context) <= kTpotMargin * objective.tpot_s) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  PhaseFit fit;
  fit.slots = low;
  fit.times.decode_s = fit.times.tpot_s = fit.times.ttft_s = model.decode_s(std::max(1, low), context);
  fit.times.service_s = std::max(1.0, lengths.output_tokens) * fit.times.decode_s;
  return fit;
}

}  // namespace windlass::planner
