// Computes the time of a whole batch by Huawei's equations; see batch_times.h.
#include "planner/dispatch/batch_times.h"

#include <algorithm>

namespace windlass::dispatch {

BatchTimes batch_times(const PackingModel& model) {
  return {model.prefill_token_s, model.prefill_request_s, model.prefill_length_s, model.prefill_s,
          model.context_token_s, model.decode_request_s,  model.context_length_s, model.decode_s};
}

double request_workload_s(const BatchTimes& times, double kv_tokens, double max_requests, double input_tokens,
                          double output_tokens, PackingPhase phase) {
  const double holds = kv_tokens > 0 ? kv_tokens / (input_tokens + output_tokens) : max_requests;
  const double batch = std::max(1.0, std::min(holds, max_requests));
  double time_s = 0;
  if (phase != PackingPhase::kDecode) time_s += times.prefill_time_s(batch, input_tokens);
  if (phase != PackingPhase::kPrefill) time_s += times.decode_time_s(batch, input_tokens, output_tokens);
  return time_s / batch;
}

}  // namespace windlass::dispatch
