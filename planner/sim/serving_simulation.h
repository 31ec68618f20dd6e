// simulate_serving(): iteration-level discrete-event simulation of clusters of inference engines under a stream of requests.
//
// Workers have one role (unified) or two (prefill and decode: DistServe, Splitwise, TetriInfer). A request is dispatched when
// it arrives. With two roles, its decode worker is chosen then or after the prefill. The decode worker pulls the KV cache over
// its own link once it has room (back-pressure); the prefill worker keeps the cache until it has arrived. With
// `mixed_pool_threshold_tokens`, as in Splitwise's cluster scheduler, a request whose best worker has more pending tokens goes
// to a worker of the mixed pool or of the other role; that worker then serves both kinds in mixed batches until it has no work
// of the other kind. Workers start, drain, fail and flip roles; a ClusterController may control them. Time is integer
// nanoseconds and events are ordered by (time, insertion id), so one seed gives one result. Memory grows with the requests in
// the system and the workers ever started, not with the number of requests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/sim/cluster_controller.h"
#include "planner/sim/recorder.h"
#include "planner/sim/serving_options.h"
#include "planner/workload/request_source.h"

namespace windlass::sim {

// The result of one request.
struct ServedRequest {
  std::int64_t number = 0;  // 0, 1, 2, ... in order of arrival, over all services
  int service = 0;
  double arrival_s = 0;
  int input_tokens = 0;
  int output_tokens = 0;
  bool refused = false;  // longer than any worker's KV cache; the fields below are 0
  bool failed = false;   // a worker failed during streaming, or no worker ever took it
  int prefill_worker = -1;
  int decode_worker = -1;  // workers are numbered by service and pool, in order, then as they start
  double scheduling_delay_s = 0;
  double ttft_s = 0;
  double tbt_s = 0;  // mean gap between tokens; 0 for a single token
  double e2e_s = 0;
};

// The state of one worker at one time.
struct WorkerSample {
  double time_s = 0;
  int service = 0;
  int worker = 0;
  dispatch::Role role = dispatch::Role::kUnified;
  WorkerPhase phase = WorkerPhase::kReady;
  int gpus = 1;
  bool busy = false;
  int waiting = 0;       // sequences waiting for their prefill
  int running = 0;       // sequences in prefill or decode
  double kv_in_use = 0;  // share of its pages in use
};

// Receives events as they happen. Optional; costs nothing if absent.
class ServingObserver {
 public:
  virtual ~ServingObserver() = default;
  virtual void on_request(const ServedRequest& request) = 0;  // when it has ended, or was refused
  virtual void on_sample(const WorkerSample& sample) = 0;     // for every worker that has not ended, at each sample interval
};

// The figures of one worker.
struct WorkerFigures {
  int worker = 0;
  std::string pool;
  dispatch::Role role = dispatch::Role::kUnified;  // at the end of the run
  double created_s = 0;
  double ready_s = 0;  // infinite: never
  double ended_s = 0;  // or the end of the run
  bool failed = false;
  std::int64_t iterations = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  std::int64_t prefix_hit_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t completed = 0;  // requests that ended here
  double mean_batch = 0;       // mean number of sequences per iteration
  double busy_share = 0;       // share of its time from ready to ended; mean over pipeline stages
  double mean_kv_in_use = 0;   // over that time
  double mfu = 0;              // over that time; 0 if the peak is unknown
};

struct ServingResult {
  EarlyVerdict early = EarlyVerdict::kNone;  // the run was cut short because of RunOptions::verdict_only
  std::int64_t requests = 0;                 // requests that arrived
  std::int64_t completed = 0;
  std::int64_t refused = 0;  // longer than any worker's KV cache
  std::int64_t failed = 0;
  std::int64_t retried = 0;  // dispatched again after a worker failed
  TimeSummary scheduling_delay, ttft, tbt, tpot, e2e,
      normalised;         // tbt: a request's mean gap; normalised: end-to-end time per output token
  double attainment = 1;  // share of requests that met the objectives; refused and failed ones did not
  struct Slowdown {
    TimeSummary ttft, tbt, e2e;  // ratios, not seconds
  };
  std::optional<Slowdown> slowdown;
  std::int64_t iterations = 0;
  std::int64_t preemptions = 0;
  std::int64_t swapped_tokens = 0;
  std::int64_t prefix_hit_tokens = 0;
  std::int64_t kv_transfers = 0;
  std::int64_t flips = 0;
  std::int64_t extrapolated_iterations = 0;  // iterations outside the range on which the model was measured
  double mean_batch = 0;                     // mean number of sequences per iteration
  double busy_share = 0;                     // share of the ready workers' time
  double mean_kv_in_use = 0;
  double mfu = 0;
  double simulated_s = 0;
  double mean_workers = 0;  // mean number that hold GPUs: from created to ended
  int max_workers = 0;
  double gpu_hours = 0;
  double cost = 0;
  double energy_kwh = 0;  // every GPU at its power rating while a worker holds it
  std::vector<WorkerFigures> workers;
};

// Errors (kInvalidArgument) name the pool and field: no pool, roles that cannot serve a request, a model that does not fit its
// worker.
[[nodiscard]] Result<ServingResult> simulate_serving(workload::RequestSource& source, const ServingOptions& options);

// Several services on one clock: one result per service, in order. REQUIRES: 0 <= Request::model < the number of services.
[[nodiscard]] Result<std::vector<ServingResult>> simulate_cluster(workload::RequestSource& source,
                                                                  const ClusterOptions& options);

}  // namespace windlass::sim
