// Snapshot: all inputs of a decision, as plain data. observe builds it, make_plan reads it, and JSON carries it
// (planner/policy/json.h), so any decision can be replayed from a file.
//
// Times are seconds of one monotonic clock, including `now_s`. A signal that could not be read is absent, never 0.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/bound.h"
#include "planner/catalog/accelerator.h"
#include "planner/catalog/engine_type.h"
#include "planner/catalog/gpu_split.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/offer.h"
#include "planner/deployment/pool_name.h"
#include "planner/dispatch/routing_table.h"
#include "planner/perf/iteration_estimate.h"
#include "planner/perf/transfer_times.h"
#include "planner/workload/forecast_best.h"

namespace windlass::planner {

// A measured value and the time of measurement.
struct Reading {
  double value = 0;
  double at_s = 0;
  Bound bound = Bound::kNone;  // for latencies: `value` is only a bound on the true value

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
  int allocatable_gpus = 0;     // what this class's nodes offer now, without unschedulable nodes
  int used_by_others = 0;       // part of it used by anything but this snapshot's workers
  std::optional<int> max_gpus;  // Elastic: workers may be pending up to this number; Observed: an additional limit

  bool operator==(const AcceleratorState&) const = default;
};

// A node with GPUs of a class. A node that several classes select is listed once for each. Nodes that an Elastic class may
// still get are not listed.
struct NodeState {
  std::string name;
  std::string accelerator;  // name of the AcceleratorClass
  int allocatable_gpus = 0;
  int used_by_others = 0;      // as in AcceleratorState
  std::string zone;            // empty: unknown
  bool unschedulable = false;  // takes no new workers: cordoned, being emptied, or not ready. The class does not count it

  bool operator==(const NodeState&) const = default;
};

struct Slo {
  double ttft_s = 0;
  double tpot_s = 0;
  double percentile = 95;  // in (0, 100): the share of requests that must meet both
  double window_s = 300;

  bool operator==(const Slo&) const = default;
};

// Assumed load until it has been observed. Lengths are means.
struct AssumedWorkload {
  double requests_per_s = 0;
  double input_tokens = 512;
  double output_tokens = 256;

  bool operator==(const AssumedWorkload&) const = default;
};

// One entry of spec.accelerators.
struct AllowedAccelerator {
  std::string accelerator;      // name of an AcceleratorClass
  std::optional<int> max_gpus;  // GPUs of this class that the whole service may hold, and therefore any one worker

  bool operator==(const AllowedAccelerator&) const = default;
};

enum class Family { kAuto, kReplicated, kDisaggregated, kChained };
enum class Mode { kApply, kRecommend, kPaused };

struct Scaling {
  Family strategy = Family::kAuto;
  int min_workers = 1;
  std::optional<int> max_workers;
  std::optional<double> max_cost_per_hour;
  std::optional<double> idle_to_zero_after_s;  // with min_workers 0: one worker stays until no request has arrived for this
                                               // long
  double drain_timeout_s = 1800;
  double scale_up_stabilization_s = 0;  // 0: scale up immediately
  double scale_down_stabilization_s = 300;
  std::optional<int> scale_up_max_per_minute;  // in workers; none: no limit
  std::optional<int> scale_down_max_per_minute;
  double tolerance = 0.1;  // relative width of the band of demand in which nothing changes: half above, half below
  Mode mode = Mode::kApply;

  bool operator==(const Scaling&) const = default;
};

enum class WorkerState { kStarting, kReady, kDraining, kFailed, kUnschedulable };

// Why a worker does not serve. Each value has its own remedy.
enum class WorkerTrouble {
  kNone,
  kUnschedulable,  // no node has room for it
  kImagePull,      // its image cannot be pulled
  kCrashLoop,      // it crashes repeatedly
  kOutOfMemory,    // it was killed because it ran out of memory
  kNodeLost,       // its node does not respond
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
  std::optional<Reading> waiting;  // requests waiting inside it
  std::optional<Reading> kv_use;   // share of its KV cache in use, 0 to 1
  WorkerTrouble trouble = WorkerTrouble::kNone;
  std::string trouble_message;           // for people
  std::string node;                      // node that it runs on, or the first server of a chain; empty: none yet, or unknown
  std::vector<std::string> later_nodes;  // of a chain's further servers, each as `node`
  bool node_leaving = false;             // its node is being emptied: its GPUs will not become available to others
  std::string address;                   // "host:port"; empty while unknown
  std::string spec_hash;
  int max_concurrency = 0;       // the value it was started with
  bool can_change_role = false;  // between prefill and decode, while it runs

  [[nodiscard]] PoolId pool_id() const { return {pool, role}; }
  [[nodiscard]] GpuSplit split() const {
    const int stages = 1 + static_cast<int>(later_nodes.size());
    return {gpus / stages, stages};
  }

  bool operator==(const Worker&) const = default;
};

// Signals of one service, from the gateways' and the workers' metrics.
struct Demand {
  static constexpr double kRecentS = 60;
  static constexpr double kRebalancedS = 300;

  std::optional<Reading> arrivals_per_s;  // incoming requests, never finished ones
  std::optional<Reading> arrivals_total;  // incoming requests since the reader began to count; never decreases while the reader
                                          // runs
  double arrivals_window_s = 60;          // window over which arrivals_per_s was counted; determines how noisy the rate is
  std::optional<Reading> queued;          // requests waiting at the gateways
  std::optional<Reading> input_tokens;    // mean over recent requests
  std::optional<Reading> output_tokens;
  double measured_requests = 0;  // number of requests that both means are computed from; 0: unknown
  std::optional<double> last_arrival_at_s;
  std::optional<Reading> attainment;         // share of judged requests that met the objective over slo.window_s, 0 to 1
  std::optional<Reading> recent_attainment;  // the same over the last kRecentS
  double recently_judged = 0;                // number of requests that it is computed from
  std::optional<Reading> rebalanced;         // requests that Aladdin's re-balancing moved within kRebalancedS
  std::optional<Reading> ttft_s;             // at slo.percentile
  std::optional<Reading> tpot_s;
  // Requests within kMixedPoolS of which Splitwise's mixed pool did a phase; absent if none.
  std::optional<Reading> mixed_pool;
  static constexpr double kMixedPoolS = 600;

  // All readings. Add new ones here too, or their times stay on the reader's clock.
  [[nodiscard]] std::array<std::optional<Reading>*, 11> readings() {
    return {&arrivals_per_s,    &arrivals_total, &queued, &input_tokens, &output_tokens, &attainment,
            &recent_attainment, &ttft_s,         &tpot_s, &rebalanced,   &mixed_pool};
  }

  bool operator==(const Demand&) const = default;
};

// Time from creation to first readiness of this service's own workers: scheduling, image pull, load, warm-up.
struct StartTimes {
  double p90_s = 0;
  int count = 0;  // number of measured starts, recent ones only

  bool operator==(const StartTimes&) const = default;
};

// Measured transfer of keys and values to such a worker.
struct TransferToWorker {
  std::string accelerator;
  int gpus_per_worker = 0;
  MeasuredTransfer measured;

  bool operator==(const TransferToWorker&) const = default;
};

// The cluster rejects new workers of this service (a ResourceQuota or an admission rule).
struct CreationRefusal {
  std::string code;     // CamelCase
  std::string message;  // for people
  double until_s = 0;   // time of the next attempt

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

// Requests missed the objective at a demand that the workers should have served.
struct Shortfall {
  double at_s = 0;
  double requests_per_s = 0;
  int workers = 0;    // number planned for it then
  double missed = 0;  // share of the requests that missed

  bool operator==(const Shortfall&) const = default;
};

// Slots of a pool's workers. If no decision was possible, also the number of workers to keep.
struct PoolSlots {
  std::string pool;
  int slots = 0;
  std::optional<int> held = {};
  std::optional<double> changed_s = {};  // when `slots` last changed
  dispatch::Role role = dispatch::Role::kUnified;

  [[nodiscard]] PoolId pool_id() const { return {pool, role}; }

  bool operator==(const PoolSlots&) const = default;
};

// Workers of a pool next to the chosen one, per chosen worker.
struct SideShare {
  std::string pool;
  dispatch::Role role = dispatch::Role::kUnified;
  double share = 1;
  // Since when the lengths have asked for a clearly smaller share, and the largest that they asked for since.
  std::optional<Reading> lower;

  [[nodiscard]] PoolId pool_id() const { return {pool, role}; }

  bool operator==(const SideShare&) const = default;
};

// The last time that workers took the other role while they ran, for explanations.
struct PastRoleChange {
  double at_s = 0;
  std::string message;  // for people

  bool operator==(const PastRoleChange&) const = default;
};

// The last time that the workload moved so far that the strategies were asked again, for explanations.
struct WorkloadShift {
  double at_s = 0;
  AssumedWorkload from, to;  // that they were asked about

  bool operator==(const WorkloadShift&) const = default;
};

// State that the policy keeps between two plans. A plan returns the new one (ServicePlan::memory); the caller passes it back
// unchanged in the next snapshot. Default constructed for a new service and after a restart: then nothing scales down until a
// whole stabilization window has been observed.
struct PolicyMemory {
  std::optional<double> history_since_s;        // nothing is known from before this time
  std::vector<Recommendation> recommendations;  // oldest first; each holds until the next
  // Workers that the last plan wanted, before limits and arbitration. Unlike Service::last_desired it does not fall when GPUs
  // are short, and it excludes workers that only stay until a new configuration is ready.
  std::optional<int> desired;
  std::vector<Recommendation> wanted;  // changes of `desired` within the last minute, and the last one before that, oldest
                                       // first
  std::optional<Change> last_change;   // of `desired`, within minWorkers and maxWorkers
  std::optional<double> earlier_up_s;  // when `desired` last rose, if it has fallen since
  std::optional<double> panic_until_s;
  std::optional<double> queue_since_s;  // since then requests have waited at every plan
  std::optional<double> queue_until_s;  // end of the last queue that lasted
  std::optional<Shortfall> shortfall;   // the most recent one
  std::vector<PoolSlots> slots;         // by pool
  std::optional<double> prefill_share;  // prefill workers per decode worker, if phases are split
  std::vector<SideShare> sides;         // of the pools next to the chosen one
  std::optional<PastRoleChange> role_change;
  std::optional<Offer> offer;            // that the service runs; none: workers that closed forms chose
  std::optional<Reading> busiest;        // the highest rate lately; fades over kBusiestMemoryS
  std::optional<AssumedWorkload> asked;  // that strategies are asked about; none: the spec's
  std::optional<WorkloadShift> shift;
  std::string configuration;  // chosen pool (the decode pool, if phases are split), and since when
  std::optional<double> configuration_since_s;
  // Arrivals: start of the current interval, the closed intervals of the last minute, and the forecasts.
  std::optional<Reading> counted;
  std::vector<workload::RateSample> arrivals;
  double burstiness =
      1;  // variance of the counts around the last minute's mean, relative to Poisson arrivals; averaged over half an hour
  double bursts_per_s = 0;  // rate at which it was seen, weighted by the excess over 1; 0: unknown
  std::optional<workload::BestForecastState> forecast;

  bool operator==(const PolicyMemory&) const = default;
};

struct Service {
  ServiceId id;
  std::int64_t generation = 0;
  std::string served_name;
  std::optional<ModelShape> shape;
  std::string shape_unknown_reason;  // for people; if there is no shape
  int max_context_tokens = 0;        // 0: the shape's own limit
  bool reserves_context = false;     // its engine reserves memory for the longest context of every request
  EngineType engine = EngineType::kWindlass;
  bool may_split = true;                   // its engine can compute prompt and answer on different workers
  std::optional<int> max_gpus_per_worker;  // most GPUs its engine can split the model over; none: any number that divides it
                                           // evenly
  Slo slo;
  AssumedWorkload workload;
  std::vector<AllowedAccelerator> accelerators;  // empty: every class
  Scaling scaling;
  int priority = 0;                 // higher is served first
  std::optional<int> last_desired;  // workers that the last plan requested (status.workers.desired); none for a new service
  std::optional<Offer> last_offer;  // the offer behind status.plan, for a controller that has just taken over
  Demand demand;
  std::vector<Worker> workers;
  std::optional<StartTimes> starts;         // none measured yet: the policy uses an assumption
  std::vector<WorkerEstimate> estimates;    // measurements, per accelerator and GPUs per worker
  std::vector<TransferToWorker> transfers;  // one entry per accelerator and GPUs per worker; none: computed from the class's
                                            // links
  std::optional<CreationRefusal> refused;   // while it applies
  std::optional<Offers> offers;             // none: not asked, or not answered yet
  std::optional<double> searching_since_s;  // while the first answer is awaited
  PolicyMemory memory;

  bool operator==(const Service&) const = default;
};

struct Snapshot {
  double now_s = 0;
  std::vector<AcceleratorState> accelerators;
  std::vector<NodeState> nodes;   // by name, then class; a class without any: only its totals are known
  std::vector<Service> services;  // in a stable order: the first wins ties

  bool operator==(const Snapshot&) const = default;
};

}  // namespace windlass::planner
