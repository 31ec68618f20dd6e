// Computes the design load |R| of CG-BP: how many concurrent requests the placement makes room for. Sun et al., Eq. 18-19 and
// the rule after them: the mean plus one standard deviation of the arrivals during one session, limited so that a placement
// exists.
//
// Pure. Loads are whole requests; mean plus deviation is rounded up.
#pragma once

#include "planner/chain/instance.h"

namespace windlass::chain {

// The largest |R| with sum_j m_j >= L (Eq. 18), exactly, by bisection; 0 if not even one request can be served.
[[nodiscard]] int max_design_load(const Instance& instance);

// The right side of Eq. 19: any |R| up to this satisfies Eq. 18. Not rounded; may be negative. REQUIRES: a server.
[[nodiscard]] double sufficient_design_load(const Instance& instance);

// min(ceil(mean + deviation), max_design_load), at least 1; 0 if the latter is 0.
[[nodiscard]] int design_load(const Instance& instance, double mean_arrivals, double deviation);

struct DesignLoad {
  int requests = 0;      // |R|; 0 if not even one request can be served
  double session_s = 0;  // T: time of one request on its shortest path under CG-BP for this load, without waiting
};

// For Poisson arrivals: |R| = lambda T + sqrt(lambda T). T depends on the placement, and so on |R|. Starting from |R| = 1, the
// rule is repeated with the current T while it raises |R|. So the result holds the arrivals during its own session time, or is
// the largest feasible. `times_per_request`: how often a request takes the instance's times: 1, or its tokens if times are per
// token.
[[nodiscard]] DesignLoad poisson_design_load(const Instance& instance, double arrival_rate_per_s, double times_per_request = 1);

}  // namespace windlass::chain
