// What tests of the serving simulator share: a latency model that is a line, random requests, a pool.
#pragma once

#include <vector>

#include "planner/base/rng.h"
#include "planner/sim/serving_simulation.h"

namespace windlass::sim {

// Seconds as a line in the batch's sums.
class Line final : public planner::IterationModel {
 public:
  double base_s = 0.01, per_prompt_token_s = 1e-4, per_decode_s = 1e-3, per_context_token_s = 0, capacity_tokens = 1e6;

  [[nodiscard]] double iteration_s(const planner::Batch& b) const override {
    return base_s + per_prompt_token_s * b.prefill_tokens + per_decode_s * b.decode_sequences +
           per_context_token_s * b.decode_context_tokens;
  }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch&) const override { return planner::Coverage::kMeasured; }
  [[nodiscard]] double kv_capacity_tokens() const override { return capacity_tokens; }
};

inline std::vector<workload::Request> random_requests(Rng& rng, int count, double rate_per_s, int most_prompt,
                                                      int most_output) {
  std::vector<workload::Request> requests;
  double now_s = 0;
  for (int i = 0; i < count; ++i) {
    now_s += rng.exponential(rate_per_s);
    requests.push_back(
        {now_s, 1, static_cast<int>(rng.integer(1, most_prompt)), static_cast<int>(rng.integer(1, most_output))});
  }
  return requests;
}

inline ServingPool pool_of(const Line& model, WorkerRole role, int workers, Batching batching = Batching::kVllm) {
  ServingPool pool;
  pool.role = role;
  pool.workers = workers;
  pool.model = &model;
  pool.engine.batching = batching;
  return pool;
}

}  // namespace windlass::sim
