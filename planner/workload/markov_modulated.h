// MarkovModulatedProcess generates Poisson arrivals whose rate depends on the state of a continuous-time Markov chain.
//
// Fischer and Meier-Hellstern, "The Markov-modulated Poisson process (MMPP) cookbook" (1993), Section 1: draw an exponential
// gap at the rate of the state. If the state ends first, draw again in the next state, which is exact because neither has
// memory. States and gaps have separate streams, so other rates see the same states at the same times.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "planner/base/rng.h"
#include "planner/workload/arrivals.h"

namespace windlass::workload {

// Long-run arrivals per second. Visits are symmetric, so the share of time in a state is proportional to its mean dwell time.
[[nodiscard]] double mean_rate_per_s(const MarkovModulatedArrivals& spec);

class MarkovModulatedProcess final : public ArrivalProcess {
 public:
  MarkovModulatedProcess(MarkovModulatedArrivals spec, std::uint64_t seed, std::string_view source);  // REQUIRES: a valid spec

  [[nodiscard]] std::optional<double> next_s() override;  // never none

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
