// simulate_serving(): iteration-level discrete-event simulation of clusters of inference engines under a stream of requests.
//
// Workers of one role (unified), or of two (prefill and decode: DistServe, Splitwise, TetriInfer). A request is dispatched when
// it arrives; with two roles its decode worker is chosen then too, or once it is prefilled; its KV cache is pulled by the
// decode worker once that has room (back-pressure), over a link of its own, and the prefill worker keeps the cache until it is
// there. With `mixed_pool_threshold_tokens` a request whose best worker has more tokens pending goes, as Splitwise's cluster
// scheduler has it, to a worker of the mixed pool, or to one of the other role, which then serves both kinds in mixed batches
// until it has nothing of the other kind left. Workers start, drain, fail and flip roles; a ClusterController may be in the
// loop. Time is integer nanoseconds, events are ordered by (time, insertion id): one seed, one result. Memory grows with the
// requests in the system and the workers that ever were, not with the number of requests.
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

// What became of one request.
struct ServedRequest {
  std::int64_t number = 0;  // 0, 1, 2, ... in the order of arrival, over all services
  int service = 0;
  double arrival_s = 0;
  int input_tokens = 0;
  int output_tokens = 0;
  bool refused = false;  // longer than any worker's KV cache: what follows is 0
  bool failed = false;   // a worker failed while it was streaming, or no worker ever took it
  int prefill_worker = -1;
  int decode_worker = -1;  // workers count through the services and pools in their order, then as they are started
  double scheduling_delay_s = 0;
  double ttft_s = 0;
  double tbt_s = 0;  // mean gap; 0 for a single token
  double e2e_s = 0;
};

// One worker at one moment.
struct WorkerSample {
  double time_s = 0;
  int service = 0;
  int worker = 0;
  dispatch::Role role = dispatch::Role::kUnified;
  WorkerPhase phase = WorkerPhase::kReady;
  int gpus = 1;
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
  virtual void on_sample(const WorkerSample& sample) = 0;     // of every worker that is not ended, each sample interval
};

// What one worker did.
struct WorkerFigures {
  int worker = 0;
  std::string pool;
  dispatch::Role role = dispatch::Role::kUnified;  // at the end
  double created_s = 0;
  double ready_s = 0;  // infinite: never
  double ended_s = 0;  // or the run's end
  bool failed = false;
  std::int64_t iterations = 0;
  std::int64_t prefill_tokens = 0;
  std::int64_t decode_tokens = 0;
  std::int64_t prefix_hit_tokens = 0;
  std::int64_t preemptions = 0;
  std::int64_t completed = 0;  // requests that ended here
  double mean_batch = 0;       // sequences in an iteration
  double busy_share = 0;       // of its time from ready to ended; of a pipeline's stages in the mean
  double mean_kv_in_use = 0;   // over that time
  double mfu = 0;              // over that time; 0 where the peak is not known
};

struct ServingResult {
  EarlyVerdict early = EarlyVerdict::kNone;  // the run was cut short, as RunOptions::verdict_only had it
  std::int64_t requests = 0;                 // that arrived
  std::int64_t completed = 0;
  std::int64_t refused = 0;  // longer than any worker's KV cache
  std::int64_t failed = 0;
  std::int64_t retried = 0;  // dispatched again after a worker failed
  TimeSummary scheduling_delay, ttft, tbt, tpot, e2e,
      normalised;         // tbt: a request's mean gap; normalised: e2e per output token
  double attainment = 1;  // share of the requests inside the objectives; refused and failed ones are not
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
  std::int64_t extrapolated_iterations = 0;  // priced outside of what the model was measured on
  double mean_batch = 0;                     // sequences in an iteration
  double busy_share = 0;                     // of the ready workers' time
  double mean_kv_in_use = 0;
  double mfu = 0;
  double simulated_s = 0;
  double mean_workers = 0;  // that hold GPUs: from created to ended
  int most_workers = 0;
  double gpu_hours = 0;
  double cost = 0;
  double energy_kwh = 0;  // every GPU at its power while a worker holds it
  std::vector<WorkerFigures> workers;
};

// Errors (kInvalidArgument) name the pool and field: no pool, roles that do not make a way, a model that does not fit its
// worker.
[[nodiscard]] Result<ServingResult> simulate_serving(workload::RequestSource& source, const ServingOptions& options);

// Several services on one clock: a result for each, in their order. REQUIRES: 0 <= Request::model < the number of services.
[[nodiscard]] Result<std::vector<ServingResult>> simulate_cluster(workload::RequestSource& source,
                                                                  const ClusterOptions& options);

}  // namespace windlass::sim
