// LatencyModel says how long a worker takes and how much it can hold, for one model on one accelerator with a fixed number of
// GPUs.
//
// The search needs only these three functions, so a measured profile can replace a formula. Neither time may fall when an
// argument grows, because the search uses bisection.
#pragma once

namespace windlass::planner {

class LatencyModel {
 public:
  virtual ~LatencyModel() = default;

  // One prefill iteration over prompts of this many tokens in total.
  [[nodiscard]] virtual double prefill_s(double total_input_tokens) const = 0;

  // One decode iteration of `batch` requests with this mean context (prompt plus tokens generated so far).
  [[nodiscard]] virtual double decode_s(double batch, double mean_context_tokens) const = 0;

  // Tokens that fit in the worker's KV cache. 0 or less: the model itself does not fit.
  [[nodiscard]] virtual double kv_capacity_tokens() const = 0;
};

}  // namespace windlass::planner
