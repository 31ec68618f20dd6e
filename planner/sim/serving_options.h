// Options of simulate_serving() and simulate_cluster(): pools of workers, how requests are assigned to them, and what can fail.
//
// Plain data; models and controllers are borrowed and must outlive the run.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "planner/deployment/deployment.h"
#include "planner/dispatch/dispatch_settings.h"
#include "planner/perf/iteration_model.h"
#include "planner/perf/transfer_times.h"
#include "planner/sim/simulated_engine.h"
#include "planner/sim/verdict_watch.h"

namespace windlass::sim {

class ClusterController;
class ServingObserver;

// FLOPs of the model itself, for MFU (model FLOPs utilisation, PaLM Appendix B: FLOPs of the forward pass over the peak).
struct ModelFlops {
  double per_token = 0;           // matrix products
  double per_attended_token = 0;  // attention: per new token and attended token
  double peak_per_s = 0;          // of the whole worker; 0: MFU is unknown

  [[nodiscard]] double of(const planner::Batch& batch) const {
    return per_token * (batch.prefill_tokens + batch.decode_sequences) +
           per_attended_token * (batch.prefill_attention / 2 + batch.decode_context_tokens);
  }
};

// A worker is one engine. With a model of S pipeline stages it is S engines (vLLM's virtual engines, each with 1/S of the KV
// cache), whose iterations are microbatches that pass through the stages in turn. A stage that waits for the previous one is a
// bubble. `workers` exist and are ready at time 0; engine.kv_blocks 0: computed from the model's KV capacity.
struct ServingPool : planner::Pool {
  std::string name;                                // "h100-2"; a controller identifies pools by it
  const planner::IterationModel* model = nullptr;  // borrowed
  double price_per_gpu_hour = 0;
  double power_per_gpu_watts = 0;
  double start_s = 0;           // delay until a worker started later is ready: scheduling, image pull, load, warm-up
  double swap_s_per_token = 0;  // transfer between GPU and host per token of KV cache, all GPUs of the worker in parallel
  ModelFlops flops;
  double dispatch_weight = 0;  // of a worker, for weighted dispatch; 0: its slots times the speed of a single request
};

// Link of each pair of a prefill and a decode worker, without contention.
struct KvLink {
  planner::KvTransferPath path;
  double kv_bytes_per_token = 0;
};

struct ServingObjectives {
  double ttft_s = 0;
  double tpot_s = 0;
};

// A pair of pools for a request: a worker of one prefills it and a worker of the other decodes it; in each, the one with the
// fewest pending tokens. Caches use the pair's path one after another.
struct PoolPair {
  int prefill = 0;  // indices in ServingService::pools
  int decode = 0;
  double weight = 1;             // pairs are used in proportion to it, by smooth weighted round robin (HexGen-2, Section 3.3)
  planner::KvTransferPath path;  // replaces the service's link
};

// Everything about one model.
struct ServingService {
  std::string name;  // for people
  std::vector<ServingPool> pools;
  KvLink link;
  dispatch::DispatchSettings dispatch;
  std::vector<PoolPair> pairs;  // for DecodeChoice::kPairs only
  std::optional<ServingObjectives> objectives;
  // Slowdowns are relative to a request alone on this worker. Borrowed.
  const planner::IterationModel* slowdown_reference = nullptr;
};

// Worker failures. A request whose first token was not sent is dispatched again, to at most 16 workers, after which it fails
// too; one that was streaming fails.
struct WorkerFailures {
  struct At {
    double time_s = 0;
    int worker = 0;  // numbered as in results; a worker that does not exist at that time is skipped
  };
  std::vector<At> at;
  double mean_time_between_s = 0;  // per worker, exponential; 0: none
  bool restart = true;             // a replacement in its pool starts immediately, unless it was draining, and is ready after
                                   // start_s
};

struct RunOptions {
  std::uint64_t seed = 1;
  double arrivals_end_s = std::numeric_limits<double>::infinity();  // later requests of the source are dropped; the run drains
  std::int64_t max_requests = std::numeric_limits<std::int64_t>::max();
  WorkerFailures failures;
  ClusterController* controller = nullptr;               // borrowed: starts and drains workers during the run; null: the
                                                         // workers stay
  std::function<void(std::int64_t completed)> progress;  // called every 2^14 completions; may be empty
  ServingObserver* observer = nullptr;                   // borrowed
  double sample_interval_s = 0;                          // 0: no samples
  // Ends the run as soon as this verdict is certain; the figures are those up to then. For one service, without failures and
  // controller.
  std::optional<VerdictOnly> verdict_only;
};

// One model and its run.
struct ServingOptions : ServingService, RunOptions {};

// Several models; Request::model is the index. They interact only through the controller, which divides the GPUs among them.
struct ClusterOptions : RunOptions {
  std::vector<ServingService> services;
};

}  // namespace windlass::sim
