// DiurnalProcess: Poisson arrivals along a daily curve with bursts on top, by thinning.
//
// Lewis and Shedler, "Simulation of nonhomogeneous Poisson processes by thinning" (1979), Theorem 1: candidates come at a
// constant rate that the true one never exceeds, and each stays with the chance true / constant. The constant is the curve's
// peak plus what the bursts under way bring; where a burst begins or ends it changes, and the candidate beyond that moment is
// drawn again. Bursts draw from a stream of their own: another curve meets the same bursts.
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

  [[nodiscard]] std::optional<double> next_s() override;  // always one

 private:
  [[nodiscard]] double gap_to_burst_s();

  DiurnalArrivals spec_;
  Rng times_;
  Rng bursts_;
  double peak_per_s_ = 0;
  double burst_per_s_ = 0;  // what one burst adds
  double now_s_ = 0;
  double next_burst_s_ = 0;
  std::deque<double> ends_s_;  // of the bursts under way: as all last equally long, in the order in which they began
};

}  // namespace windlass::workload
