// Erlang's formulas for the M/M/c queue: how likely a request waits, and how long.
//
// Workers with equal slots behind a central first-come-first-served queue (JFFC with one service rate) are exactly such a
// queue, with c the slots of all workers, when arrivals are Poisson and service times exponential. Stable for any c: the
// inverse of Erlang B is summed from its largest powers down, without a factorial. With c servers and a load of a erlangs that
// takes at most about 50 sqrt(a) terms, and at most 1420 / ln(c / a): whoever asks for a million requests a second costs no
// more than others.
#pragma once

#include <cstdint>

namespace windlass::planner {

// Share of requests that find all servers busy when nothing may wait. offered = arrival rate / service rate of one server.
// REQUIRES: servers >= 0, offered >= 0.
[[nodiscard]] double erlang_b(std::int64_t servers, double offered);

// The same, and how many terms it took.
struct ErlangB {
  double blocked = 1;
  std::int64_t terms = 0;
};
[[nodiscard]] ErlangB erlang_b_counted(std::int64_t servers, double offered);

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
