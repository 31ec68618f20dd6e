// What a transition gains and costs, in request-seconds: the mean number of requests in the system integrated over time, in the
// fluid limit. The formulas stand in recompose.h. Pure.
#pragma once

#include <vector>

#include "planner/chain/compose.h"
#include "planner/chain/transition_order.h"

namespace windlass::chain {

// What matters of a set of chains, for one arrival rate.
struct Service {
  double arrival_rate_per_s = 0;
  double rate_per_s = 0;  // nu
  double capacity = 0;    // C
  double present = 0;     // requests in the system beside those that wait from before: lambda R; C or more when unstable
};

// When unstable, no fewer than at_least are in the system.
[[nodiscard]] Service service_of(const std::vector<ServerChain>& chains, double arrival_rate_per_s, double at_least = 0);

struct Course {
  double request_s = 0;  // accumulated
  double waiting = 0;    // requests left waiting at the end beyond those of the steady state
};

// `waiting` requests at the beginning, then so many seconds of arrivals. REQUIRES: seconds >= 0.
[[nodiscard]] Course course(const Service& service, double waiting, double seconds);

struct TransitionWorth {
  double gain_request_s = 0;
  double cost_request_s = 0;
  double seconds = 0;  // of the transition
  Course moving;       // during it
  Service next;        // after it

  // From the beginning of the transition on. Two ways are compared over one span: gain and cost are each way's own.
  // REQUIRES: span_s >= seconds.
  [[nodiscard]] double accumulated(double span_s) const {
    return moving.request_s + course(next, moving.waiting, span_s - seconds).request_s;
  }
};

// Fills the waves' total_service_rate_per_s.
[[nodiscard]] TransitionWorth worth_of(const Instance& instance, const Composition& current, const Composition& next,
                                       std::vector<TransitionWave>& waves, double horizon_s);

}  // namespace windlass::chain
