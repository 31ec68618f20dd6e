// Bounds on the mean number of requests under JFFC (Sun, He, Hou 2026, Theorem 3.7), and its exact value for two chains (A.3).
//
// The state of JFFC reduces to the number of requests n. Its departure rate lies between that of n requests on the fastest
// slots and that on the slowest, which gives two birth-death processes. Assumes Poisson arrivals and exponential sizes. The
// products of Eq. 30 are never formed: terms are rescaled while they are summed, and the sum stops when the rest cannot change
// a double, so a total capacity of 100,000 is no problem. Time O(K + the number of n that matter).
#pragma once

#include <optional>
#include <span>

namespace windlass::planner {

// The equal slots of one chain, or of several chains with the same speed.
struct ChainRate {
  double service_rate_per_s = 0;  // mu_k of one slot; > 0
  long capacity = 0;              // c_k; >= 0

  bool operator==(const ChainRate&) const = default;
};

// nu = sum c_k mu_k.
[[nodiscard]] double total_rate_per_s(std::span<const ChainRate> chains);

// Mean response times in seconds (Eq. 31, 32 divided by lambda, by Little's law). None if arrival_rate_per_s >= nu.
// REQUIRES: chains sorted by falling service rate; arrival_rate_per_s > 0.
[[nodiscard]] std::optional<double> mean_response_lower_s(std::span<const ChainRate> chains, double arrival_rate_per_s);
[[nodiscard]] std::optional<double> mean_response_upper_s(std::span<const ChainRate> chains, double arrival_rate_per_s);

// The exact mean response time of two chains under JFFC (Eq. 46-53). None if unstable. Time and memory O(c_1 c_2). REQUIRES:
// fast.service_rate_per_s >= slow.service_rate_per_s, both capacities >= 1, arrival_rate_per_s > 0.
[[nodiscard]] std::optional<double> mean_response_two_chains_s(ChainRate fast, ChainRate slow, double arrival_rate_per_s);

}  // namespace windlass::planner
