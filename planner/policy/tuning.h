// Constants of the policy, each with its reason. What a user may want to set is a field of the spec instead.
#pragma once

#include <cstdint>

namespace windlass::planner {

// ---- signals

// Seconds after which a signal is stale. Scrapes come every few seconds, so several in a row must fail.
inline constexpr double kSignalMaxAgeS = 30;

// A worker is scraped within seconds of becoming ready; until then missing metrics are not its fault.
inline constexpr double kReadingGraceS = 30;

// ---- demand

// Arrivals are counted over intervals of this length: ten scrapes, so that a late one matters little, and short compared with
// any start.
inline constexpr double kCountIntervalS = 10;
// A longer interval has gaps; nothing is learned from it.
inline constexpr double kLongestIntervalS = 2.5 * kCountIntervalS;
// The demand level is the mean over this time: long enough to count a few requests per second to within 10 %.
inline constexpr double kLevelWindowS = 60;

// Assumed start time until enough of the service's own starts were measured: the node exists, the image of some GiB is cached,
// weights load at 1 GB/s.
inline constexpr double kAssumedStartS = 120;
inline constexpr int kStartsToBelieve = 3;
// With fewer measured starts than kStartsToBelieve, assume the longest so far times this, up to kAssumedStartS.
inline constexpr double kFewStartsMargin = 3;

// Judged forecasts required before one may raise a plan. One start-up time has 8.
inline constexpr std::int64_t kForecastsToBelieve = 8;
// Forecasts with a larger relative error are ignored.
inline constexpr double kForecastMaxError = 1;
// Upper bound of a forecast, as a multiple of the current rate; a trend extrapolated further is a guess.
inline constexpr double kForecastMaxRise = 2;

// Bursts shorter than a start cannot be followed, only provided for. Burstiness is averaged over this time.
inline constexpr double kBurstinessMemoryS = 1800;
// Upper bound of burstiness: a single step of the load must not look like half an hour of bursts.
inline constexpr double kMaxBurstiness = 200;
// Excess variance over Poisson is proportional to the rate, as in any thinned process. But then one burst would keep workers
// through half an hour of quiet. So below this share of the rate at which bursts were seen, burstiness fades with the square of
// the ratio. At a quarter of that rate it equals what thinning leaves.
inline constexpr double kBurstsFade = 0.5;
// Free slots for bursts, in standard deviations of the busy slots they cause.
inline constexpr double kBurstDeviations = 2.5;

// Time in which a backlog should be served, or one start if that is longer. A shorter time would request workers that start for
// longer than they serve. Requests that wait this long have missed the objective anyway and delay nobody else (waiting_line.h).
inline constexpr double kBacklogDrainS = 20;

// Upper bound of the mean share of busy slots: kMaxUtilisation (worker_config.h) with few slots, rising to this with many.
inline constexpr double kMaxUtilisationOfMany = 0.97;
// Free slots, in standard deviations of the busy slots (roughly Poisson).
inline constexpr double kStaffingRoom = 1;

// A rise of demand below this many standard deviations of a Poisson count is ignored; otherwise steady load would look like a
// rise at least once an hour.
inline constexpr double kRiseSigmas = 3;

// Mean lengths are trusted once the service has been observed for this long.
inline constexpr double kLengthsAfterS = 60;
// Mean lengths are rounded to powers of this, so that slots and rates move in steps and not with every request.
inline constexpr double kLengthStep = 1.03;

// Capacity lost because requests are spread unevenly, in standard deviations of one worker's batch. Fitted on simulated fleets
// of 1 to 24 workers (tests/bench/outcome).
inline constexpr double kUnevenShare = 1.3;

// ---- stability

// Minimum history before any scale-down, whatever the window: in a new leader's first seconds, some gateways may not have found
// it.
inline constexpr double kLeastHistoryS = 30;

// Demand for this many times the serving workers is a burst: scale-up ignores stabilization, and nothing scales down for a
// while.
inline constexpr double kPanicFactor = 2;
inline constexpr double kPanicWindowS = 60;

// The last minute's misses count only beyond this many standard deviations above what the objective allows.
inline constexpr double kMissSigmas = 3;
// Workers added because of misses helped if at most this share of the misses remains.
inline constexpr double kHelpedShare = 0.8;
// A queue shorter than this does not explain misses in the following minutes.
inline constexpr double kQueueLastsS = 5;
// How long a shortfall raises the plan for that demand; then the model is tried again.
inline constexpr double kShortfallMemoryS = 3600;

// While requests miss the objective, scale down only if fewer workers would serve this many times the current demand.
inline constexpr double kMissedHeadroom = 1.5;

// Slots of running workers change only if the model's value falls below or rises above these ratios. The length step lies
// between the two, so that a length at a step's edge changes nothing.
inline constexpr double kSlotsDown = 0.97;
inline constexpr double kSlotsUp = 1.15;

// Share of a worker's slots that must be in use before one more is tried.
inline constexpr double kSlotsInUse = 0.7;
// Seconds between two such increases: one measurement window.
inline constexpr double kExploreEveryS = 5;

// After this time, GPUs of a worker that no node takes are offered to others first.
inline constexpr double kUnschedulableGraceS = 60;

// ---- configurations

// Strategies are asked about the highest rate of about this time. Rates lie on a grid with this step; a lower rate is asked
// only two steps down.
inline constexpr double kBusiestMemoryS = 3600;
// The rate of a service's first minutes is not its usual one.
inline constexpr double kAskedAfterS = 300;
inline constexpr double kAskedStep = 1.15;
// They are asked again if a mean length changes by this factor, and by this many standard errors.
inline constexpr double kAskedLengthStep = 1.25;
inline constexpr double kShiftErrors = 4;
// How long such a shift is among the reasons.
inline constexpr double kShiftShownS = 600;
// Workers that have started within this time and never served may be replaced at once: little is lost.
inline constexpr double kFreshS = 30;

// If even a single request misses the objective, slots follow a relaxed objective: relaxed by this many times the excess, up to
// kBatchedSlack times what a request takes alone.
inline constexpr double kBatchedSlope = 5;
inline constexpr double kBatchedSlack = 1.5;
// Data sheets may be wrong by this factor; a configuration that would then meet the objective is measured before it is
// rejected.
inline constexpr double kSheetMayBeOff = 5;
// Until iterations are measured to this accuracy, plan at most kUncertainFactor times the serving workers, for at most
// kUncertainS: seconds of measurement cost less than workers.
inline constexpr double kUncertain = 0.3;
inline constexpr double kUncertainFactor = 4;
inline constexpr double kUncertainS = 45;

// A running configuration must meet the objective times this, so that a value at the edge moves no worker.
inline constexpr double kKeptSlack = 1.1;

// A running configuration is replaced only by one that costs less than this share of it, because a change restarts every
// worker.
inline constexpr double kSwitchCostShare = 0.8;
// The change must also save more within this time than running both costs. A service that changed recently counts only the time
// since then.
inline constexpr double kPaybackS = 3600;

}  // namespace windlass::planner
