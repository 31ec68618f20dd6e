// See packing_model.h.
#include "planner/sim/packing_model.h"

#include <algorithm>
#include <cassert>
#include <vector>

namespace windlass::sim {

PackingFit packing_model(const planner::IterationModel& model, double kv_capacity_tokens, int block_tokens, int max_requests,
                         planner::LinearForm form) {
  std::vector<planner::IterationSample> samples;
  const auto take = [&](const planner::Batch& batch) { samples.push_back({batch, model.iteration_s(batch)}); };
  // Several prompts at a time if the form separates their number from their tokens.
  for (int batch = 1; batch <= (form == planner::LinearForm::kHuawei ? 8 : 1); batch *= 2) {
    for (const double tokens : {64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0}) take(planner::prefill_batch(batch, tokens));
  }
  // At least two batch sizes, to separate the cost per request from the cost per iteration.
  for (int batch = 1; batch <= std::max(2, max_requests); batch *= 2) {
    for (const double context : {64.0, 256.0, 1024.0, 4096.0}) {
      if (batch > 2 && batch * context > kv_capacity_tokens) continue;
      take(planner::decode_batch(batch, context));
    }
  }
  planner::FitOptions options;
  options.folds = 2;
  const auto fit = planner::fit_linear_iteration(samples, form, kv_capacity_tokens, options);
  assert(fit.ok());  // our own samples: enough of each phase, and times are positive
  PackingFit made;
  const planner::PhaseCoefficients& prefill = fit->model.prefill().coefficients;
  const planner::PhaseCoefficients& decode = fit->model.decode().coefficients;
  made.model.prefill_token_s = prefill.per_token_s;
  made.model.prefill_s = prefill.constant_s;
  made.model.prefill_request_s = prefill.per_sequence_s;
  made.model.prefill_length_s = prefill.per_mean_token_s;
  made.model.context_token_s = decode.per_token_s;
  made.model.decode_request_s = decode.per_sequence_s;
  made.model.decode_s = decode.constant_s;
  made.model.context_length_s = decode.per_mean_token_s;
  made.model.kv_capacity_tokens = kv_capacity_tokens;
  made.model.kv_request_tokens = block_tokens;
  made.model.max_requests = max_requests;
  made.prefill_error = fit->prefill.error.mape;
  made.decode_error = fit->decode.error.mape;
  return made;
}

}  // namespace windlass::sim
