// The policy's own constants, each with its reason. What a user may want to set is a field of the spec, not a constant here.
#pragma once

namespace windlass::planner {

// A signal older than this is stale. Scrapes come every few seconds; several in a row must fail first.
inline constexpr double kSignalMaxAgeS = 30;

// What waits should be gone after this time. Shorter asks for more workers than can start before the queue is gone; longer lets
// users wait.
inline constexpr double kBacklogDrainS = 20;

// A rise of the demand below this share changes nothing: the sizing keeps more headroom than that.
inline constexpr double kRiseTolerance = 0.1;
// Nor does one below this many standard deviations of a Poisson count, or steady load would look like a rise once an hour and
// more often.
inline constexpr double kRiseSigmas = 3;

// Observed mean lengths are rounded up to powers of this, so that slots and rates move in steps and not with every request.
inline constexpr double kLengthStep = 1.1;

// A running configuration is replaced only for one that costs less than this share of it: a change restarts every worker.
inline constexpr double kSwitchCostShare = 0.8;

}  // namespace windlass::planner
