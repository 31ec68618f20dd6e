// Fixtures of the serving simulator's tests: a linear latency model, random requests, a pool.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "planner/base/rng.h"
#include "planner/sim/serving_simulation.h"

namespace windlass::sim {

// Seconds are linear in the batch's sums.
class Line final : public planner::IterationModel {
 public:
  double base_s = 0.01, per_prompt_token_s = 1e-4, per_decode_s = 1e-3, per_context_token_s = 0, capacity_tokens = 1e6;
  int stages = 1;

  [[nodiscard]] double iteration_s(const planner::Batch& b) const override {
    return base_s + per_prompt_token_s * b.prefill_tokens + per_decode_s * b.decode_sequences +
           per_context_token_s * b.decode_context_tokens;
  }
  [[nodiscard]] planner::Coverage coverage(const planner::Batch&) const override { return planner::Coverage::kMeasured; }
  [[nodiscard]] double kv_capacity_tokens() const override { return capacity_tokens; }
  [[nodiscard]] int pipeline_stages() const override { return stages; }
};

// Records all calls.
class Witness final : public ServingObserver {
 public:
  std::vector<ServedRequest> requests;
  std::vector<WorkerSample> samples;

  void on_request(const ServedRequest& request) override { requests.push_back(request); }
  void on_sample(const WorkerSample& sample) override { samples.push_back(sample); }

  // The request with this number in order of arrival. REQUIRES: it has ended.
  [[nodiscard]] const ServedRequest& request(std::int64_t number) const {
    return *std::find_if(requests.begin(), requests.end(), [&](const ServedRequest& r) { return r.number == number; });
  }
};

// Gives the test's orders and records what it saw.
class ScriptedController final : public ClusterController {
 public:
  double every_s = 1;
  std::function<ClusterOrders(const ClusterObservation&)> orders = [](const ClusterObservation&) { return ClusterOrders{}; };
  std::vector<ClusterObservation> seen;

  [[nodiscard]] double interval_s() const override { return every_s; }
  [[nodiscard]] ClusterOrders decide(const ClusterObservation& observation) override {
    seen.push_back(observation);
    return orders(observation);
  }
};

inline std::vector<workload::Request> random_requests(Rng& rng, int count, double rate_per_s, int max_prompt, int max_output) {
  std::vector<workload::Request> requests;
  double now_s = 0;
  for (int i = 0; i < count; ++i) {
    now_s += rng.exponential(rate_per_s);
    requests.push_back({now_s, 1, static_cast<int>(rng.integer(1, max_prompt)), static_cast<int>(rng.integer(1, max_output))});
  }
  return requests;
}

inline ServingPool pool_of(const Line& model, dispatch::Role role, int workers,
                           planner::Batching batching = planner::Batching::kVllm) {
  ServingPool pool;
  pool.role = role;
  pool.workers = workers;
  pool.model = &model;
  pool.spec.engine.batching = batching;
  return pool;
}

}  // namespace windlass::sim
