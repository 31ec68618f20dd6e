// Snapshot: everything that a decision depends on, as plain data. observe builds it, make_plan reads it, JSON carries it
// (planner/policy/json.h), so that any decision can be replayed from a file.
//
// Times are seconds of one clock that only grows; `now_s` is of the same clock. A signal that could not be read is absent,
// never 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/bound.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/pool_name.h"
#include "planner/dispatch/routing_table.h"
#include "planner/perf/iteration_estimate.h"
#include "planner/perf/transfer_times.h"
#include "planner/workload/forecast_best.h"

namespace windlass::planner {

// A measured value and when it was measured.
struct Reading {
  double value = 0;
  double at_s = 0;
  Bound bound = Bound::kNone;  // of latencies: the value is only a limit of what was measured

  bool operator==(const Reading&) const = default;
};

struct ServiceId {
  std::string name_space;
  std::string name;
  std::string uid;

  auto operator<=>(const ServiceId&) const = default;
};

enum class CapacityMode { kObserved, kElastic };

struct AcceleratorState {
  AcceleratorSpec spec;
  CapacityMode mode = CapacityMode::kObserved;
  int allocatable_gpus = 0;     // what the nodes of this class offer now
  int used_by_others = 0;       // of these, taken by anything that is not a worker in this snapshot
  std::optional<int> max_gpus;  // Elastic: workers may be pending up to this many; Observed: a further limit

  bool operator==(const AcceleratorState&) const = default;
};

struct Slo {
  double ttft_s = 0;
  double tpot_s = 0;
  double percentile = 95;  // in (0, 100): this share of the requests must be inside both
  double window_s = 300;

  bool operator==(const Slo&) const = default;
};

// What to assume of the load until it has been observed. Lengths are means.
struct AssumedWorkload {
  double requests_per_s = 0;
  double input_tokens = 512;
  double output_tokens = 256;

  bool operator==(const AssumedWorkload&) const = default;
};

// One entry of spec.accelerators.
struct AllowedAccelerator {
  std::string accelerator;      // name of an AcceleratorClass
  std::optional<int> max_gpus;  // GPUs of this class that the whole service may hold, and so also those of one worker

  bool operator==(const AllowedAccelerator&) const = default;
};

enum class Family { kAuto, kReplicated, kDisaggregated, kChained };
enum class Mode { kApply, kRecommend, kPaused };

struct Scaling {
  Family strategy = Family::kAuto;
  int min_workers = 1;
  std::optional<int> max_workers;
  std::optional<double> max_cost_per_hour;
  std::optional<double> idle_to_zero_after_s;  // with min_workers 0: one worker stays until no request came for this long
  double drain_timeout_s = 1800;
  double scale_up_stabilization_s = 0;  // 0: at once
  double scale_down_stabilization_s = 300;
  std::optional<int> scale_up_max_per_minute;  // workers; none: no limit
  std::optional<int> scale_down_max_per_minute;
  double tolerance = 0.1;  // the band of demand within which nothing changes, as a share of it: half above, half below
  Mode mode = Mode::kApply;

  bool operator==(const Scaling&) const = default;
};

enum class WorkerState { kStarting, kReady, kDraining, kFailed, kUnschedulable };

// What keeps a worker from serving. Told apart because each wants another remedy.
enum class WorkerTrouble {
  kNone,
  kUnschedulable,  // no node has room for it
  kImagePull,      // its image cannot be fetched
  kCrashLoop,      // it ends again and again
  kOutOfMemory,    // it was killed for want of memory
  kNodeLost,       // its node does not answer
  kFailed,         // anything else
};

struct Worker {
  std::string name;
  std::string pool;  // Pool::name
  dispatch::Role role = dispatch::Role::kUnified;
  int slot = 0;
  std::string accelerator;
  int gpus = 0;
  WorkerState state = WorkerState::kStarting;
  double created_s = 0;
  std::optional<double> ready_s;   // when it became ready
  std::optional<Reading> running;  // requests in its batch
  std::optional<Reading> waiting;  // requests that wait inside it
  std::optional<Reading> kv_use;   // share of its KV cache in use, 0..1
  WorkerTrouble trouble = WorkerTrouble::kNone;
  std::string trouble_message;  // for a person
  bool node_leaving = false;    // its node is being emptied: what it holds there comes free for nobody
  std::string address;          // "host:port"; empty while unknown
  std::string spec_hash;
  int max_concurrency = 0;  // as it was started with

  [[nodiscard]] PoolId pool_id() const { return {pool, role}; }

  bool operator==(const Worker&) const = default;
};

// Signals of one service, from the gateways' and the workers' metrics.
struct Demand {
  static constexpr double kRecentS = 60;

  std::optional<Reading> arrivals_per_s;  // requests that came in, never those that were finished
  std::optional<Reading> arrivals_total;  // requests that came in since the reader began to count; never falls while it runs
  double arrivals_window_s = 60;          // the time over which arrivals_per_s was counted: it says how noisy the rate is
  std::optional<Reading> queued;          // requests that wait at the gateways
  std::optional<Reading> input_tokens;    // mean of recent requests
  std::optional<Reading> output_tokens;
  std::optional<double> last_arrival_at_s;
  std::optional<Reading> attainment;         // share of judged requests inside the objective over slo.window_s, 0..1
  std::optional<Reading> recent_attainment;  // the same over the last kRecentS
  double recently_judged = 0;                // requests behind it
  std::optional<Reading> ttft_s;             // at slo.percentile
  std::optional<Reading> tpot_s;

  // All of them: a new one belongs here, too, or its time stays on its reader's clock.
  [[nodiscard]] std::array<std::optional<Reading>*, 9> readings() {
    return {&arrivals_per_s, &arrivals_total,    &queued, &input_tokens, &output_tokens,
            &attainment,     &recent_attainment, &ttft_s, &tpot_s};
  }

  bool operator==(const Demand&) const = default;
};

// How long this service's own workers took from their creation to their first readiness: schedule, pull, load, warm.
struct StartTimes {
  double p90_s = 0;
  int count = 0;  // starts that were measured, recent ones only

  bool operator==(const StartTimes&) const = default;
};

// What was measured of the keys and values that come to such a worker.
struct TransferToWorker {
  std::string accelerator;
  int gpus_per_worker = 0;
  MeasuredTransfer measured;

  bool operator==(const TransferToWorker&) const = default;
};

// Workers of one phase, as a strategy would have them.
struct PhaseAdvice {
  std::string accelerator;
  int gpus_per_worker = 0;
  double requests_per_s = 0;  // of one worker, inside the objective, for the spec's assumed lengths
  // What phase_rate_per_s() gave for those lengths with the times that it was asked with; absent: those of the data sheet.
  std::optional<double> closed_form_per_s = {};

  bool operator==(const PhaseAdvice&) const = default;
};

// What the strategies for split phases say of a service with scaling.strategy Disaggregated, or Auto where they may pay. They
// simulate, which takes too long for every plan, so that they are asked beside it (controller/reconcile/split_questions.h) and
// their answer is data.
struct SplitAdvice {
  std::string strategy;  // whose answer it is: "distserve"
  bool holds = false;    // inside the objective at the assumed workload; else only `why` counts
  PhaseAdvice prefill, decode;
  std::string why;  // in words
  // Both simulated for one load: what this plan costs; and for strategy Auto the cheapest plan of whole workers that holds.
  double cost_per_hour = 0;
  std::optional<double> whole_cost_per_hour = {};  // none: no whole workers hold the objective, or nobody asked

  bool operator==(const SplitAdvice&) const = default;
};

// The cluster refuses new workers of this service (a ResourceQuota, an admission rule).
struct CreationRefusal {
  std::string code;     // CamelCase
  std::string message;  // for a person
  double until_s = 0;   // when it is tried again

  bool operator==(const CreationRefusal&) const = default;
};

struct Recommendation {
  double at_s = 0;
  int workers = 0;

  bool operator==(const Recommendation&) const = default;
};

enum class Direction { kUp, kDown };

struct Change {
  double at_s = 0;
  Direction direction = Direction::kUp;

  bool operator==(const Change&) const = default;
};

// Requests missed the objective at a demand that the workers should have carried.
struct Shortfall {
  double at_s = 0;
  double requests_per_s = 0;
  int workers = 0;    // that were asked for then
  double missed = 0;  // share of the requests

  bool operator==(const Shortfall&) const = default;
};

// Requests that a worker of a pool was given at once; and where nothing could be decided, the workers that were to stay.
struct PoolSlots {
  std::string pool;
  int slots = 0;
  std::optional<int> held = {};
  std::optional<double> changed_s = {};  // when `slots` became that
  dispatch::Role role = dispatch::Role::kUnified;

  [[nodiscard]] PoolId pool_id() const { return {pool, role}; }

  bool operator==(const PoolSlots&) const = default;
};

// What the policy itself must remember between two plans. A plan returns the next one (ServicePlan::memory); the caller hands
// it back in the next snapshot, unchanged. Default constructed for a new service and after a restart: then nothing scales down
// until a whole stabilisation window has been seen.
struct PolicyMemory {
  std::optional<double> history_since_s;        // nothing is known before this time
  std::vector<Recommendation> recommendations;  // oldest first; each holds until the next
  // Workers that the last plan wanted, before limits and arbitration: unlike Service::last_desired it does not fall when GPUs
  // are short, and does not count workers that only stay until a new configuration is ready.
  std::optional<int> desired;
  std::vector<Recommendation> wanted;  // the changes of `desired` within the last minute and the one before them, oldest first
  std::optional<Change> last_change;   // of `desired`, inside minWorkers and maxWorkers
  std::optional<double> panic_until_s;
  std::optional<double> queue_since_s;  // requests have waited at every plan since
  std::optional<double> queue_until_s;  // when a queue that lasted was there last
  std::optional<Shortfall> shortfall;   // the last one
  std::vector<PoolSlots> slots;         // by pool
  std::optional<double> prefill_share;  // prefill workers for each that answers, where the phases are split
  std::string configuration;            // the pool that was chosen (where the phases are split, who answers), and since when
  std::optional<double> configuration_since_s;
  // Arrivals: where the interval that is being counted began, the closed ones of the last minute, and the forecasts.
  std::optional<Reading> counted;
  std::vector<workload::RateSample> arrivals;
  double burstiness =
      1;  // variance of the counts around the last minute's mean, over that of Poisson arrivals; of half an hour
  double bursts_per_s = 0;  // arrivals at which that was seen, weighted by what it was above 1; 0: not known
  std::optional<workload::BestForecastState> forecast;

  bool operator==(const PolicyMemory&) const = default;
};

struct Service {
  ServiceId id;
  std::int64_t generation = 0;
  std::string served_name;
  std::optional<ModelShape> shape;
  std::string shape_unknown_reason;        // for a person; when there is no shape
  int max_context_tokens = 0;              // 0: the shape's own
  bool reserves_context = false;           // its engine keeps room for the longest context for each request that it may run
  bool may_split = true;                   // its engine can leave a prompt to one worker and the answer to another
  std::optional<int> max_gpus_per_worker;  // among which its engine can cut the model; none: any number that cuts it evenly
  Slo slo;
  AssumedWorkload workload;
  std::vector<AllowedAccelerator> accelerators;  // empty: every class
  Scaling scaling;
  int priority = 0;                 // higher goes first
  std::optional<int> last_desired;  // workers that the last plan asked for (status.workers.desired); none for a new service
  Demand demand;
  std::vector<Worker> workers;
  std::optional<StartTimes> starts;         // none measured yet: the policy assumes
  std::vector<WorkerEstimate> estimates;    // what was measured, by accelerator and GPUs per worker
  std::vector<TransferToWorker> transfers;  // each accelerator and GPUs per worker once; none: by the class's links
  std::optional<CreationRefusal> refused;   // while it is in force
  std::optional<SplitAdvice> split;         // none: not asked for, or not answered yet
  PolicyMemory memory;

  bool operator==(const Service&) const = default;
};

struct Snapshot {
  double now_s = 0;
  std::vector<AcceleratorState> accelerators;
  std::vector<Service> services;  // in a stable order: ties between equals go to the one listed first

  bool operator==(const Snapshot&) const = default;
};

}  // namespace windlass::planner
