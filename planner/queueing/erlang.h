// Erlang's formulas for the M/M/c queue: the probability that a request waits, and for how long.
//
// Workers with equal slots behind a central first-come-first-served queue (JFFC with one service rate) form such a queue if
// arrivals are Poisson and service times exponential; c is the number of slots of all workers. Numerically stable for any c:
// the inverse of Erlang B is summed from its largest powers down, without a factorial. For c servers and a load of a erlangs
// this takes at most about 50 sqrt(a) terms, and at most 1420 / ln(c / a), so a million requests per second is no slower than a
// few.
#pragma once

#include <cstdint>

namespace windlass::planner {

// Probability that all servers are busy on arrival, in a system without waiting. offered = arrival rate / service rate of one
// server. REQUIRES: servers >= 0, offered >= 0.
[[nodiscard]] double erlang_b(std::int64_t servers, double offered);

// Erlang B and the number of terms summed.
struct ErlangB {
  double blocked = 1;
  std::int64_t terms = 0;
};
[[nodiscard]] ErlangB erlang_b_counted(std::int64_t servers, double offered);

// Probability that a request must wait. 1 if offered >= servers.
[[nodiscard]] double erlang_c(std::int64_t servers, double offered);

struct MmcQueue {
  std::int64_t servers = 1;
  double arrival_rate_per_s = 0;
  double service_time_s = 0;  // mean of one server

  [[nodiscard]] double offered() const { return arrival_rate_per_s * service_time_s; }
  [[nodiscard]] bool stable() const { return offered() < static_cast<double>(servers); }

  // P(wait > t) = C(c, a) exp(-(c mu - lambda) t). 1 if unstable.
  [[nodiscard]] double wait_exceeds(double t_s) const;
  // The wait that a fraction `share` of requests does not exceed (0 <= share < 1). Infinite if unstable.
  [[nodiscard]] double wait_quantile_s(double share) const;
  // Infinite if unstable.
  [[nodiscard]] double mean_wait_s() const;
};

}  // namespace windlass::planner
