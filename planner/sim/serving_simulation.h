// simulate_serving(): iteration-level discrete-event simulation of a cluster of inference engines under a stream of requests.
//
// Workers of one role (unified), or of two (prefill and decode: DistServe, Splitwise). A request is dispatched when it arrives;
// with two roles both of its workers are chosen then, its KV cache is pulled by the decode worker once that has room
// (back-pressure), over a link of its own, and the prefill worker keeps the cache until it is there. With
// `mixed_pool_threshold_tokens` a request whose best worker has more tokens pending goes, as Splitwise's cluster scheduler has
// it, to a worker of the mixed pool, or to one of the other role, which then serves both kinds in mixed batches until it has
// nothing of the other kind left. Time is integer nanoseconds, events are ordered by (time, insertion id): one seed, one
// result. Memory grows with the requests in the system, not with their number.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/dispatch/policies.h"
#include "planner/perf/iteration_model.h"
#include "planner/sim/engine.h"
#include "planner/sim/recorder.h"
#include "planner/workload/request_source.h"

namespace windlass::sim {

enum class WorkerRole { kUnified, kPrefill, kDecode };

const char* to_string(WorkerRole role);  // "unified", "prefill", "decode"

struct ServingPool {
  WorkerRole role = WorkerRole::kUnified;
  int workers = 1;
  const planner::IterationModel* model = nullptr;  // borrowed
  EngineOptions engine;                            // kv_blocks 0: what the model's KV capacity gives
  int gpus_per_worker = 1;
  double price_per_gpu_hour = 0;
  double power_per_gpu_watts = 0;
};

// Of every pair of a prefill and a decode worker, uncontended.
struct KvLink {
  double bandwidth_bytes_per_s = 0;
  double latency_s = 0;
  double kv_bytes_per_token = 0;
  int layers = 0;  // > 0: moved layer by layer while the prefill runs, so that only what is left after it is waited for
};

struct ServingObjectives {
  double ttft_s = 0;
  double tpot_s = 0;
};

// What became of one request.
struct ServedRequest {
  std::int64_t number = 0;  // 0, 1, 2, ... in the order of arrival
  double arrival_s = 0;
  int input_tokens = 0;
  int output_tokens = 0;
  bool refused = false;  // longer than any worker's KV cache: what follows is 0
  int prefill_worker = -1;
  int decode_worker = -1;  // workers count through the pools in their order
  double scheduling_delay_s = 0;
  double ttft_s = 0;
  double tbt_s = 0;  // mean gap; 0 for a single token
  double e2e_s = 0;
};

// One worker at one moment.
struct WorkerSample {
  double time_s = 0;
  int worker = 0;
  WorkerRole role = WorkerRole::kUnified;
  bool busy = false;
  int waiting = 0;       // sequences that wait for their prefill
  int running = 0;       // sequences in prefill or decode
  double kv_in_use = 0;  // share of its pages
};

// Told what happens while it happens. May be left out, and then costs nothing.
class ServingObserver {
 public:
  virtual ~ServingObserver() = default;
  virtual void on_request(const ServedRequest& request) = 0;  // when it has ended, or is refused
  virtual void on_sample(const WorkerSample& sample) = 0;     // of every worker, each sample interval
};

struct ServingOptions {
  std::vector<ServingPool> pools;
  KvLink link;
  // How a worker of the role is chosen: a policy of planner/dispatch, which sees requests in flight; none: fewest pending
  // tokens (JSQ as Splitwise counts).
  std::optional<dispatch::PolicyKind> dispatch;
  std::optional<std::int64_t> mixed_pool_threshold_tokens;
  std::optional<ServingObjectives> objectives;
  // A request alone on this worker is what slowdowns are relative to. Borrowed.
  const planner::IterationModel* slowdown_reference = nullptr;
  std::uint64_t seed = 1;
  double arrivals_end_s = std::numeric_limits<double>::infinity();  // later requests of the source are left out; the run drains
  std::int64_t max_requests = std::numeric_limits<std::int64_t>::max();
  std::function<void(std::int64_t completed)> progress;  // every 2^14 completions; may be empty
  ServingObserver* observer = nullptr;                   // borrowed
  double sample_interval_s = 0;                          // 0: no samples
};

struct ServingResult {
  std::int64_t requests = 0;  // that arrived
  std::int64_t completed = 0;
  std::int64_t refused = 0;  // longer than any worker's KV cache
  TimeSummary scheduling_delay, ttft, tbt, tpot, e2e,
      normalised;         // tbt: a request's mean gap; normalised: e2e per output token
  double attainment = 1;  // share of the requests inside the objectives; refused ones are not
  struct Slowdown {
    TimeSummary ttft, tbt, e2e;  // ratios, not seconds
  };
  std::optional<Slowdown> slowdown;
  std::int64_t iterations = 0;
  std::int64_t preemptions = 0;
  std::int64_t kv_transfers = 0;
  std::int64_t extrapolated_iterations = 0;  // priced outside of what the model was measured on
  double mean_batch = 0;                     // sequences in an iteration
  double busy_share = 0;                     // of the workers' time
  double simulated_s = 0;
  double gpu_hours = 0;
  double cost = 0;
  double energy_kwh = 0;  // every GPU at its power for the whole run
};

// Errors (kInvalidArgument) name the pool and field: no pool, roles that do not make a way, a model that does not fit its
// worker.
[[nodiscard]] Result<ServingResult> simulate_serving(workload::RequestSource& source, const ServingOptions& options);

}  // namespace windlass::sim
