// Computes bounds and exact values of the number of requests under JFFC; see chain_bounds.h.
#include "planner/queueing/chain_bounds.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "planner/queueing/occupancy_sum.h"

namespace windlass::planner {
namespace {

// Mean number of requests of the birth-death process that fills the chains in this order, divided by the arrival rate.
template <class Chains>
std::optional<double> mean_response_s(const Chains& in_filling_order, double arrival_rate_per_s) {
  assert(arrival_rate_per_s > 0);
  OccupancySum sum(arrival_rate_per_s);
  for (const ChainRate& chain : in_filling_order) {
    if (!sum.add(chain.service_rate_per_s, chain.capacity)) break;
  }
  const auto mean = sum.mean();
  if (!mean.has_value()) return std::nullopt;
  return *mean / arrival_rate_per_s;
}

struct Reversed {
  std::span<const ChainRate> chains;
  [[nodiscard]] auto begin() const { return chains.rbegin(); }
  [[nodiscard]] auto end() const { return chains.rend(); }
};

}  // namespace

double total_rate_per_s(std::span<const ChainRate> chains) {
  double total = 0;
  for (const ChainRate& chain : chains) total += static_cast<double>(chain.capacity) * chain.service_rate_per_s;
  return total;
}

std::optional<double> mean_response_lower_s(std::span<const ChainRate> chains, double arrival_rate_per_s) {
  return mean_response_s(chains, arrival_rate_per_s);
}

std::optional<double> mean_response_upper_s(std::span<const ChainRate> chains, double arrival_rate_per_s) {
  return mean_response_s(Reversed{chains}, arrival_rate_per_s);
}

// The paper's recursion (Eq. 49-52) subtracts, and loses all digits when a capacity reaches a few dozen. Use the balance
// equations instead: (lambda + z1 mu1 + z2 mu2) p(z1, z2) = lambda p(z1-1, z2) + (z1+1) mu1 p(z1+1, z2) + (z2+1) mu2 p(z1,
// z2+1) for z1 < c1. Once the level above and p(c1, z2) (Eq. 48) are known, they form a tridiagonal system per level z2. Its
// elimination needs no subtraction: the pivot is lambda + e(z1) with e(z1) = z2 mu2 + z1 mu1 e(z1-1) / pivot(z1-1).
std::optional<double> mean_response_two_chains_s(ChainRate fast, ChainRate slow, double arrival_rate_per_s) {
  assert(fast.capacity >= 1 && slow.capacity >= 1 && fast.service_rate_per_s >= slow.service_rate_per_s &&
         arrival_rate_per_s > 0);
  const double lambda = arrival_rate_per_s, mu1 = fast.service_rate_per_s, mu2 = slow.service_rate_per_s;
  const long c1 = fast.capacity, c2 = slow.capacity;
  const double nu = static_cast<double>(c1) * mu1 + static_cast<double>(c2) * mu2;
  if (lambda >= nu) return std::nullopt;

  constexpr double kLarge = 1e200;
  const auto size = static_cast<std::size_t>(c1) + 1;
  std::vector<double> level(size, 0.0);  // p(., z2), up to one factor common to all levels
  std::vector<double> pivot(size), gain(size);
  double weight = 0, requests = 0;  // sums of p and of (z1 + z2) p
  for (long z2 = c2; z2 >= 0; --z2) {
    // gain(z1): the flow into z1 from the level above, plus the flow from z1-1.
    const double from_above = static_cast<double>(z2 + 1) * mu2;
    double above = 0, rest = 0;
    for (std::size_t z1 = 0; z1 + 1 < size; ++z1) {
      const double carried = z1 == 0 ? 0 : 1 / pivot[z1 - 1];
      rest = static_cast<double>(z2) * mu2 + (z1 == 0 ? 0 : static_cast<double>(z1) * mu1 * rest * carried);
      pivot[z1] = lambda + rest;
      gain[z1] = from_above * level[z1] + (z1 == 0 ? 0 : lambda * gain[z1 - 1] * carried);
      above += level[z1];
    }
    above += level[size - 1];
    level[size - 1] = z2 == c2 ? 1 : from_above / lambda * above;  // Eq. 48
    for (std::size_t z1 = size - 1; z1-- > 0;) {
      level[z1] = (static_cast<double>(z1 + 1) * mu1 * level[z1 + 1] + gain[z1]) / pivot[z1];
      if (level[z1] > kLarge) {  // rescale all; what underflows is too small to matter
        for (std::size_t i = z1; i < size; ++i) level[i] /= kLarge;
        for (std::size_t i = 0; i < z1; ++i) gain[i] /= kLarge;
        weight /= kLarge;
        requests /= kLarge;
      }
    }
    if (z2 == c2) {  // plus all states with a queue (Eq. 47), a geometric series from p(c1, c2)
      const double tail = lambda * level[size - 1] / (nu - lambda);
      weight += tail;
      requests += tail * (nu / (nu - lambda) + static_cast<double>(c1 + c2));
    }
    for (std::size_t z1 = 0; z1 < size; ++z1) {
      weight += level[z1];
      requests += level[z1] * static_cast<double>(static_cast<long>(z1) + z2);
    }
  }
  return requests / weight / lambda;
}

}  // namespace windlass::planner
