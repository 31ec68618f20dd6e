// Bounds on the mean number of requests under JFFC (Sun, He, Hou 2026, Theorem 3.7), and the exact value for two chains (A.3).
//
// The state of JFFC collapses to the number of requests n; the departure rate lies between that of n requests on the fastest
// slots and on the slowest, which gives two birth-death processes. Poisson arrivals, exponential sizes. The products of Eq. 30
// are never formed: terms are rescaled as they are summed, and the sum stops when what is left cannot change a double, so a
// total capacity of 100,000 is no trouble. Time O(K + the number of n that matter).
#pragma once

#include <optional>
#include <span>

namespace windlass::planner {

// Equal slots of one chain, or of several chains of one speed.
struct ChainRate {
  double service_rate_per_s = 0;  // mu_k, of one slot; > 0
  long capacity = 0;              // c_k; >= 0

  bool operator==(const ChainRate&) const = default;
};

// nu = sum c_k mu_k.
[[nodiscard]] double total_rate_per_s(std::span<const ChainRate> chains);

// Mean response times in seconds (Eq. 31, 32 divided by lambda: Little). None when arrival_rate_per_s >= nu.
// REQUIRES: chains in the order of falling service rate; arrival_rate_per_s > 0.
[[nodiscard]] std::optional<double> mean_response_lower_s(std::span<const ChainRate> chains, double arrival_rate_per_s);
[[nodiscard]] std::optional<double> mean_response_upper_s(std::span<const ChainRate> chains, double arrival_rate_per_s);

// The exact mean response time under JFFC of two chains (Eq. 46-53). REQUIRES: fast.service_rate_per_s >=
// slow.service_rate_per_s, both capacities >= 1, arrival_rate_per_s > 0. None when unstable. Time and memory O(c_1 c_2).
[[nodiscard]] std::optional<double> mean_response_two_chains_s(ChainRate fast, ChainRate slow, double arrival_rate_per_s);

}  // namespace windlass::planner
