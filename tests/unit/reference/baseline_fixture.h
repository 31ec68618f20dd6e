// Shared by the tests of tests/reference/autoscalers: an observation of one service, and a deployment of a small worker.
#pragma once

#include <utility>
#include <vector>

#include "planner/perf/linear_iteration_model.h"
#include "tests/reference/autoscalers/baseline_deployment.h"

namespace windlass::sim {

// Prefill 0.1 ms per token and 10 ms, decode 1 ms per sequence and 20 ms; 10,000 tokens of KV cache.
inline const planner::LinearIterationModel& plain_model() {
  static const planner::LinearIterationModel model({{1e-4, 0, 0, 0.01}, {}}, {{0, 1e-3, 0, 0.02}, {}}, 10'000);
  return model;
}

inline const ServingPool& plain_pool() {
  static const ServingPool pool = [] {
    ServingPool made;
    made.workers = 1;
    made.name = "small-1";
    made.model = &plain_model();
    made.start_s = 60;
    return made;
  }();
  return pool;
}

inline BaselineDeployment plain_deployment(int slots = 10) { return {&plain_pool(), slots}; }

inline ObservedWorker ready_worker(int id, int running = 0, int waiting = 0, double kv_use = 0) {
  ObservedWorker worker;
  worker.worker = id;
  worker.pool = &plain_pool();
  worker.running = running;
  worker.waiting = waiting;
  worker.kv_use = kv_use;
  return worker;
}

inline ObservedWorker worker_in(WorkerPhase phase, int id) {
  ObservedWorker worker = ready_worker(id);
  worker.phase = phase;
  return worker;
}

inline ClusterObservation observed(double now_s, std::vector<ObservedWorker> workers, int queued = 0) {
  ObservedService service;
  service.queued = queued;
  service.workers = std::move(workers);
  return {now_s, {std::move(service)}};
}

inline int started(const ClusterOrders& orders) {
  int sum = 0;
  for (const auto& start : orders.start) sum += start.workers;
  return sum;
}

}  // namespace windlass::sim
