// MarkovModulatedProcess: Poisson arrivals whose rate is that of the state of a continuous-time Markov chain.
//
// Fischer and Meier-Hellstern, "The Markov-modulated Poisson process (MMPP) cookbook" (1993), Section 1: an exponential gap at
// the state's rate, unless the state ends first; then, as neither remembers, another. The states and the gaps draw from streams
// of their own: other rates meet the same states at the same times.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "planner/base/rng.h"
#include "planner/workload/arrivals.h"

namespace windlass::workload {

// Long-run arrivals per second. The chain of visits is symmetric, so that a state's share of time is its mean dwell's.
[[nodiscard]] double mean_rate_per_s(const MarkovModulatedArrivals& spec);

class MarkovModulatedProcess final : public ArrivalProcess {
 public:
  MarkovModulatedProcess(MarkovModulatedArrivals spec, std::uint64_t seed, std::string_view source);  // REQUIRES: a valid spec

  [[nodiscard]] std::optional<double> next_s() override;  // always one

 private:
  void enter(std::size_t state);

  MarkovModulatedArrivals spec_;
  Rng times_;
  Rng states_;
  std::size_t state_ = 0;
  double now_s_ = 0;
  double state_end_s_ = 0;
};

}  // namespace windlass::workload
