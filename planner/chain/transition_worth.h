// Computes the gain and cost of a transition in request-seconds: the mean number of requests in the system, integrated over
// time, in the fluid limit. recompose.h has the formulas. Pure.
#pragma once

#include <vector>

#include "planner/chain/compose.h"
#include "planner/chain/transition_order.h"

namespace windlass::chain {

// The properties of a set of chains that matter, for one arrival rate.
struct Service {
  double arrival_rate_per_s = 0;
  double rate_per_s = 0;  // nu
  double capacity = 0;    // C
  double present = 0;     // requests in the system, besides those waiting from before: lambda R; at least C if unstable
};

// If unstable, at least `at_least` requests are in the system.
[[nodiscard]] Service service_of(const std::vector<ServerChain>& chains, double arrival_rate_per_s, double at_least = 0);

struct Course {
  double request_s = 0;  // accumulated
  double waiting = 0;    // requests waiting at the end, beyond those of the steady state
};

// Starts with `waiting` requests; then requests arrive for `seconds`. REQUIRES: seconds >= 0.
[[nodiscard]] Course course(const Service& service, double waiting, double seconds);

struct TransitionWorth {
  double gain_request_s = 0;
  double cost_request_s = 0;
  double seconds = 0;  // of the transition
  Course moving;       // during it
  Service next;        // after it

  // Total from the start of the transition. Compare two transitions over the same span; gain and cost are specific to each.
  // REQUIRES: span_s >= seconds.
  [[nodiscard]] double accumulated(double span_s) const {
    return moving.request_s + course(next, moving.waiting, span_s - seconds).request_s;
  }
};

// Sets total_service_rate_per_s of the waves.
[[nodiscard]] TransitionWorth worth_of(const Instance& instance, const Composition& current, const Composition& next,
                                       std::vector<TransitionWave>& waves, double horizon_s);

}  // namespace windlass::chain
