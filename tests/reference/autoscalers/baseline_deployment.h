// BaselineDeployment: what a rule of tests/reference/autoscalers scales: the workers of one service, all of one pool, as a
// Kubernetes Deployment with one pod a worker. For comparisons: every rule starts and drains workers in the same way, the same
// as PolicyAutoscaler's, and the gateway gives each worker the same number of slots.
#pragma once

#include <vector>

#include "planner/sim/cluster_controller.h"

namespace windlass::sim {

inline constexpr double kRounding = 1e-9;  // what the published rules, in doubles, may be off by

struct ReplicaCount {
  int ready = 0;
  int starting = 0;

  [[nodiscard]] int all() const { return ready + starting; }
};

[[nodiscard]] ReplicaCount count_replicas(const ObservedService& seen);  // draining ones are none

class BaselineDeployment {
 public:
  // `pool` is borrowed and outlives the run. `slots`: requests that one worker is sent at once.
  BaselineDeployment(const ServingPool* pool, int slots) : pool_(pool), slots_(slots) {}

  // Orders for service 0 so that `desired` workers are ready or starting. The first order also says the slots.
  [[nodiscard]] ClusterOrders scale_to(const ObservedService& seen, int desired);

  [[nodiscard]] const ServingPool& pool() const { return *pool_; }
  [[nodiscard]] int slots() const { return slots_; }

 private:
  const ServingPool* pool_;
  int slots_;
  bool slots_said_ = false;
};

}  // namespace windlass::sim
