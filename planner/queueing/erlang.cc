// Computes Erlang B by summing its inverse; Erlang C and waiting times follow from it.
#include "planner/queueing/erlang.h"

#include <cassert>
#include <cmath>
#include <limits>

namespace windlass::planner {
namespace {

constexpr double kNegligible = 1e-17;  // relative to the sum: would not change a double

}  // namespace

ErlangB erlang_b_counted(std::int64_t servers, double offered) {
  assert(servers >= 0 && offered >= 0);
  if (offered == 0) return {servers == 0 ? 1.0 : 0.0, 0};
  // 1/B(c) = 1 + c/a + c(c-1)/a^2 + ... + c!/a^c. Terms grow while the factor c - k exceeds a, then fall ever faster, so a
  // geometric series bounds the rest. If the sum exceeds the range of a double, B is 0.
  double sum = 1, term = 1;
  for (std::int64_t k = 0; k < servers; ++k) {
    const double factor = static_cast<double>(servers - k) / offered;
    term *= factor;
    sum += term;
    if (!std::isfinite(sum)) return {0, k + 1};
    if (factor < 1 && term * factor < (1 - factor) * sum * kNegligible) return {1 / sum, k + 1};
  }
  return {1 / sum, servers};
}

double erlang_b(std::int64_t servers, double offered) { return erlang_b_counted(servers, offered).blocked; }

double erlang_c(std::int64_t servers, double offered) {
  const auto c = static_cast<double>(servers);
  if (offered >= c) return 1;
  const double blocked = erlang_b(servers, offered);
  return blocked / (1 - (offered / c) * (1 - blocked));
}

double MmcQueue::wait_exceeds(double t_s) const {
  if (!stable()) return 1;
  if (arrival_rate_per_s <= 0) return 0;
  const double drain_rate = static_cast<double>(servers) / service_time_s - arrival_rate_per_s;
  return erlang_c(servers, offered()) * std::exp(-drain_rate * t_s);
}

double MmcQueue::wait_quantile_s(double share) const {
  if (!stable()) return std::numeric_limits<double>::infinity();
  if (arrival_rate_per_s <= 0) return 0;
  const double waits = erlang_c(servers, offered());
  if (waits <= 1 - share) return 0;
  const double drain_rate = static_cast<double>(servers) / service_time_s - arrival_rate_per_s;
  return std::log(waits / (1 - share)) / drain_rate;
}

double MmcQueue::mean_wait_s() const {
  if (!stable()) return std::numeric_limits<double>::infinity();
  if (arrival_rate_per_s <= 0) return 0;
  return erlang_c(servers, offered()) / (static_cast<double>(servers) / service_time_s - arrival_rate_per_s);
}

}  // namespace windlass::planner
