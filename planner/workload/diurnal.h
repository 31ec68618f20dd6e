// DiurnalProcess generates Poisson arrivals along a daily curve plus bursts, by thinning.
//
// Lewis and Shedler, "Simulation of nonhomogeneous Poisson processes by thinning" (1979), Theorem 1: candidates arrive at a
// constant rate that the true rate never exceeds, and each is kept with probability true / constant. The constant is the peak
// of the curve plus the rate of the active bursts. It changes when a burst starts or ends; a candidate beyond that moment is
// drawn again. Bursts have a random stream of their own, so they stay the same if the curve changes.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string_view>

#include "planner/base/rng.h"
#include "planner/workload/arrivals.h"

namespace windlass::workload {

class DiurnalProcess final : public ArrivalProcess {
 public:
  DiurnalProcess(const DiurnalArrivals& spec, std::uint64_t seed, std::string_view source);  // REQUIRES: a valid spec

  [[nodiscard]] std::optional<double> next_s() override;  // never none

 private:
  [[nodiscard]] double gap_to_burst_s();

  DiurnalArrivals spec_;
  Rng times_;
  Rng bursts_;
  double peak_per_s_ = 0;
  double burst_per_s_ = 0;  // rate added by one burst
  double now_s_ = 0;
  double next_burst_s_ = 0;
  std::deque<double> ends_s_;  // of the active bursts; sorted by start, because all last equally long
};

}  // namespace windlass::workload
