// LatencyModel: how long a worker takes and what it can hold, for one model on one accelerator with a fixed number of GPUs.
//
// The search asks these three questions and nothing else, so a measured profile can take the place of a formula. Both times
// must not fall when an argument grows: the search bisects on them.
#pragma once

namespace windlass::planner {

class LatencyModel {
 public:
  virtual ~LatencyModel() = default;

  // One prefill iteration over prompts of this many tokens in total.
  [[nodiscard]] virtual double prefill_s(double total_input_tokens) const = 0;

  // One decode iteration of `batch` requests with this mean context (prompt and what was generated so far).
  [[nodiscard]] virtual double decode_s(double batch, double mean_context_tokens) const = 0;

  // Tokens that the KV cache of the worker holds. 0 or less: the model itself does not fit.
  [[nodiscard]] virtual double kv_capacity_tokens() const = 0;
};

}  // namespace windlass::planner
