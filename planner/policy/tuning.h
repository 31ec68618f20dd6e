// The policy's own constants, each with its reason. What a user may want to set is a field of the spec, not a constant here.
#pragma once

#include <cstdint>

namespace windlass::planner {

// ---- signals

// A signal older than this is stale. Scrapes come every few seconds; several in a row must fail first.
inline constexpr double kSignalMaxAgeS = 30;

// A worker that became ready is scraped within seconds; until then what it does is unknown, and it is none of its faults.
inline constexpr double kReadingGraceS = 30;

// ---- demand

// Arrivals are counted over intervals of this length: ten scrapes, so that a late one changes little, and short beside any
// start.
inline constexpr double kCountIntervalS = 10;
// An interval that is this long or longer was not watched: nothing is learned from it.
inline constexpr double kLongestIntervalS = 2.5 * kCountIntervalS;
// The level of the demand is the mean over this time: long enough that a few requests a second are counted to within 10 %.
inline constexpr double kLevelWindowS = 60;

// How long a worker takes to start until enough of the service's own starts were measured: a node that is there, an image of
// some GiB that is cached, weights read at a GB/s.
inline constexpr double kAssumedStartS = 120;
inline constexpr int kStartsToBelieve = 3;
// Fewer starts than that: the next may take this many times as long as the longest so far, up to what is assumed.
inline constexpr double kFewStartsMargin = 3;

// Forecasts must have been judged this often before one may raise a plan. One start-up time has 8.
inline constexpr std::int64_t kForecastsToBelieve = 8;
// One that was off by more than what came says nothing.
inline constexpr double kForecastMostError = 1;
// And never above so many times what comes now: a trend that is extended further is a guess.
inline constexpr double kForecastMostRise = 2;

// Bursts shorter than a start cannot be followed, only provided for: how bursty arrivals are is learned over this time.
inline constexpr double kBurstinessMemoryS = 1800;
// One step of the load must not look like half an hour of bursts.
inline constexpr double kMaxBurstiness = 200;
// What arrivals have above Poisson's variance goes with their rate (as of any process that is thinned out). Below this share of
// the rate at which bursts were seen they count for less, with the square of what is left of it (a quarter of that rate: as
// much as thinning leaves), or one burst would keep workers for half an hour of quiet.
inline constexpr double kBurstsFade = 0.5;
// Standard deviations of the busy slots that are kept free for what bursts add to them.
inline constexpr double kBurstDeviations = 2.5;

// What waits should be gone after this time, or after a start if that is longer: shorter asks for workers that start for longer
// than they serve. Who waits so long has missed the objective anyway, and keeps nobody else from it (waiting_line.h).
inline constexpr double kBacklogDrainS = 20;

// Share of the slots that may be busy in the mean: from kMaxUtilisation (worker_config.h) with few slots up to this with many.
inline constexpr double kMaxUtilisationOfMany = 0.97;
// The room that is kept, in standard deviations of the busy slots (which are about Poisson).
inline constexpr double kStaffingRoom = 1;

// A rise of the demand below this many standard deviations of a Poisson count changes nothing, or steady load would look like a
// rise once an hour and more often.
inline constexpr double kRiseSigmas = 3;

// Mean lengths are believed once the service has been watched for so long.
inline constexpr double kLengthsAfterS = 60;
// Observed mean lengths are rounded to powers of this, so that slots and rates move in steps and not with every request.
inline constexpr double kLengthStep = 1.03;

// What uneven shares of the requests take from workers' rates, in standard deviations of one worker's batch: fitted on
// simulated fleets of 1 to 24 workers (tests/bench/outcome).
inline constexpr double kUnevenShare = 1.3;

// ---- stability

// Nothing goes before the demand has been known for so long, whatever the window: in a new leader's first seconds not every
// gateway may have found it.
inline constexpr double kLeastHistoryS = 30;

// Demand for so many times what serves is a burst: the scale-up's stabilisation does not hold it up, and nothing goes for a
// while.
inline constexpr double kPanicFactor = 2;
inline constexpr double kPanicWindowS = 60;

// Misses of the last minute above what the objective allows count beyond this many standard deviations of that.
inline constexpr double kMissSigmas = 3;
// Workers that were added for misses have helped where no more than this share of the misses is left.
inline constexpr double kHelpedShare = 0.8;
// A queue that is gone sooner says nothing of the misses of the next minutes.
inline constexpr double kQueueLastsS = 5;
// How long a demand is provided for with what a shortfall has taught; then what is believed is tried again.
inline constexpr double kShortfallMemoryS = 3600;

// While measured requests miss the objective, fewer workers are kept only if they would serve so much more than what comes.
inline constexpr double kMissedHeadroom = 1.5;

// The slots of running workers follow the model down when it says so much less, and up when it says so much more; the step of
// the lengths lies between the two, so that lengths at its edge move nothing.
inline constexpr double kSlotsDown = 0.97;
inline constexpr double kSlotsUp = 1.15;

// Of the slots of a worker, that must have been in use before one more is tried.
inline constexpr double kSlotsInUse = 0.7;
// And how long those before must have been there: a window of measurement.
inline constexpr double kExploreEveryS = 5;

// A worker that no node takes for this long is not about to run: its GPUs are offered to others first.
inline constexpr double kUnschedulableGraceS = 60;

// ---- configurations

// Where not even a request alone is inside the objective, the objective that slots follow is loosened by this many times what
// it is broken by, and to no more than kBatchedSlack times what a request takes alone.
inline constexpr double kBatchedSlope = 5;
inline constexpr double kBatchedSlack = 1.5;
// Data sheets may be off by this factor: what would keep the objective then is measured before it is given up.
inline constexpr double kSheetMayBeOff = 5;
// Until iterations were measured to within this share, at most kUncertainFactor times what serves is asked for, and for no
// longer than kUncertainS: seconds of measurement are cheaper than workers.
inline constexpr double kUncertain = 0.3;
inline constexpr double kUncertainFactor = 4;
inline constexpr double kUncertainS = 45;

// A running configuration is held to this many times the objective, so that figures at its edge move no worker.
inline constexpr double kKeptSlack = 1.1;

// A running configuration is replaced only for one that costs less than this share of it: a change restarts every worker.
inline constexpr double kSwitchCostShare = 0.8;
// And only if what it saves within this time is more than what running both costs; a service that changed lately counts on no
// longer than it has been since.
inline constexpr double kPaybackS = 3600;

}  // namespace windlass::planner
