// WaitingTrend detects whether later requests wait longer, the sign of a queue that never settles.
//
// The measured requests of a run are divided into tenths by order of arrival, and the mean waiting time of each tenth is kept.
// A queue in equilibrium gives ten means in any order; a growing one gives rising means, however long the warm-up (a ratio of
// two tenths would depend on that). Belongs to one run; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace windlass::sim {

// Mean waiting time per tenth; none if no request of it was measured.
using WaitingByTenth = std::array<std::optional<double>, 10>;

class WaitingTrend {
 public:
  // `requests`: expected number of measured requests; with fewer, the last tenths stay empty.
  explicit WaitingTrend(std::int64_t requests) : requests_(requests) {}
  // `at` numbers the measured requests from 0 in order of arrival; calls may come in any order. REQUIRES: 0 <= at < requests.
  void observe(std::int64_t at, double waiting_s);
  [[nodiscard]] WaitingByTenth tenths() const;

 private:
  struct Sum {
    double seconds = 0;
    std::int64_t count = 0;
  };

  std::int64_t requests_;
  std::array<Sum, 10> sums_;
};

// Mean over replications; none for a tenth that is missing in one of them.
[[nodiscard]] WaitingByTenth mean_by_tenth(std::span<const WaitingByTenth> replications);

// True if in at least 40 of the 45 pairs of tenths the later one waited longer (ten means in random order do so once in 2,000:
// Kendall's rank test), and the last tenth waited longer than a service takes; growth below that does not matter.
[[nodiscard]] bool waiting_grows(const WaitingByTenth& tenths, double mean_service_s);

}  // namespace windlass::sim
