// BaselineDeployment: what the rules of tests/reference/autoscalers scale: the workers of one service, all in one pool, like a
// Kubernetes Deployment with one pod per worker. To compare rules fairly, all start and drain workers in the same way, which is
// PolicyAutoscaler's, and the gateway gives each worker the same number of slots.
#pragma once

#include <vector>

#include "planner/sim/cluster_controller.h"

namespace windlass::sim {

inline constexpr double kRounding = 1e-9;  // tolerance for rounding in the published rules, which use doubles

struct ReplicaCount {
  int ready = 0;
  int starting = 0;

  [[nodiscard]] int all() const { return ready + starting; }
};

[[nodiscard]] ReplicaCount count_replicas(const ObservedService& seen);  // draining ones do not count

class BaselineDeployment {
 public:
  // `pool` must outlive this. `slots`: concurrent requests per worker.
  BaselineDeployment(const ServingPool* pool, int slots) : pool_(pool), slots_(slots) {}

  // Orders for service 0 that make `desired` workers ready or starting. The first order also sets the slots.
  [[nodiscard]] ClusterOrders scale_to(const ObservedService& seen, int desired);

  [[nodiscard]] const ServingPool& pool() const { return *pool_; }
  [[nodiscard]] int slots() const { return slots_; }

 private:
  const ServingPool* pool_;
  int slots_;
  bool slots_said_ = false;
};

}  // namespace windlass::sim
