// WaitingTrend: whether requests wait the longer the later they come: the sign of a queue that does not settle.
//
// The measured requests of a run are cut into tenths in the order of their arrival, and the mean waiting time of each tenth is
// kept. A queue in equilibrium gives ten means in any order; one that grows gives rising ones, however it was warmed up (a
// ratio of two tenths would depend on that). Belongs to one run; not thread-safe.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

namespace windlass::sim {

// Mean waiting time by tenth; none where no request of it was measured.
using WaitingByTenth = std::array<std::optional<double>, 10>;

class WaitingTrend {
 public:
  // `requests`: how many will be measured; fewer are no trouble, but leave the last tenths empty.
  explicit WaitingTrend(std::int64_t requests) : requests_(requests) {}
  // `at` counts the measured requests from 0 in the order of arrival; they may come in any order. REQUIRES: 0 <= at < requests.
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

// Mean over replications; a tenth that one of them lacks is none.
[[nodiscard]] WaitingByTenth mean_by_tenth(std::span<const WaitingByTenth> replications);

// Of the 45 pairs of tenths, in at least 40 the later one waited longer (of ten means in random order one in 2,000 does so:
// Kendall's rank test), and the last tenth waited longer than a service takes: what grows below that is of no weight.
[[nodiscard]] bool waiting_grows(const WaitingByTenth& tenths, double mean_service_s);

}  // namespace windlass::sim
