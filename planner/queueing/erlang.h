// Erlang's formulas for the M/M/c queue: how likely a request waits, and how long.
//
// Workers with equal slots behind a central first-come-first-served queue (JFFC with one service rate) are exactly such a
// queue, with c the slots of all workers, when arrivals are Poisson and service times exponential. Stable for any c: the
// recursion runs on the inverse of Erlang B and never forms a factorial. Time O(c).
#pragma once

#include <cstdint>

namespace windlass::planner {

// Share of requests that find all servers busy when nothing may wait. offered = arrival rate / service rate of one server.
// REQUIRES: servers >= 0, offered >= 0.
[[nodiscard]] double erlang_b(std::int64_t servers, double offered);

// Share of requests that must wait. 1 when offered >= servers.
[[nodiscard]] double erlang_c(std::int64_t servers, double offered);

struct MmcQueue {
  std::int64_t servers = 1;
  double arrival_rate_per_s = 0;
  double service_time_s = 0;  // mean, of one server

  [[nodiscard]] double offered() const { return arrival_rate_per_s * service_time_s; }
  [[nodiscard]] bool stable() const { return offered() < static_cast<double>(servers); }

  // P(wait > t) = C(c, a) exp(-(c mu - lambda) t). 1 when unstable.
  [[nodiscard]] double wait_exceeds(double t_s) const;
  // The wait that `share` of the requests stay within (0 <= share < 1). Infinite when unstable.
  [[nodiscard]] double wait_quantile_s(double share) const;
  // Infinite when unstable.
  [[nodiscard]] double mean_wait_s() const;
};

}  // namespace windlass::planner
