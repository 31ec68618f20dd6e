// Computes how many workers a demand needs.
//
// W workers with b slots behind one queue are an M/M/(W b) queue with the service time of a full batch. This is conservative: a
// smaller batch is faster, and real request lengths vary less than exponential ones. W is the smallest number with
//   - at most kMaxUtilisation of the slots busy in the mean (Aladdin's Eq. 7 is the linear part of this), and
//   - a wait for a slot within the TTFT budget for `percentile` percent of the requests (Erlang C).
#pragma once

#include <cstdint>
#include <optional>

namespace windlass::planner {

// Deployments that strategies search are sized for the demand times this: it is known to within some percent, and it moves
// while workers start. Closed forms keep slots free instead (SizingInput::max_utilisation).
inline constexpr double kDesignHeadroom = 1.1;

struct SizingInput {
  double arrival_rate_per_s = 0;
  double service_time_s = 0;  // of one slot at a full batch
  int slots_per_worker = 1;
  double wait_budget_s = 0;      // part of the TTFT objective left for waiting
  double percentile = 95;        // in (0, 100)
  double max_utilisation = 0.8;  // in (0, 1)
};

// Whether `workers` meet both conditions. Zero workers serve zero demand.
[[nodiscard]] bool workers_suffice(const SizingInput& input, std::int64_t workers);

// The smallest number that suffices; `limit` if even that does not.
[[nodiscard]] std::int64_t workers_needed(const SizingInput& input, std::int64_t limit);

// The wait at `percentile`; infinite if the workers cannot keep up.
[[nodiscard]] double predicted_wait_s(const SizingInput& input, std::int64_t workers);

}  // namespace windlass::planner
