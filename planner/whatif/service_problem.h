// ServiceProblem: the problem of a ModelService, as the policy knows it: its assumed workload and the accelerators that it
// allows.
//
// Lengths are log-normal about the spec's means with a coefficient of variation of 1 and cut to the context; arrivals are
// Poisson; latencies are those of the controller: lines from what workers were measured at, else from data sheets. Caches come
// over the classes' links, or as it was measured of the decode worker. Pure.
#pragma once

#include <memory>
#include <span>

#include "planner/base/result.h"
#include "planner/policy/snapshot.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

class ServiceProblem {
 public:
  // `accelerators` are the cluster's. Errors name the service and the field: a shape that is not known, no rate, a class that
  // is not there; and those of validate().
  [[nodiscard]] static Result<ServiceProblem> make(const planner::Service& service,
                                                   std::span<const planner::AcceleratorState> accelerators);

  // Borrows from this.
  [[nodiscard]] const Problem& problem() const { return problem_; }
  [[nodiscard]] Problem& problem() { return problem_; }

 private:
  ServiceProblem() = default;

  std::unique_ptr<const DrawnRequests> requests_;
  Problem problem_;
};

}  // namespace windlass::search
