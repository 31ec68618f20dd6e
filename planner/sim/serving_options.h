// What simulate_serving() and simulate_cluster() are given: pools of workers, how requests find them, what may happen to them.
//
// Plain data; models and controllers are borrowed and outlive the run.
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

// FLOPs of the model itself, for MFU (model FLOPs utilisation, PaLM Appendix B: what the forward pass needs, over the peak).
struct ModelFlops {
  double per_token = 0;           // matrix products
  double per_attended_token = 0;  // attention: per new token and token that it attends to
  double peak_per_s = 0;          // of the whole worker; 0: MFU is not known

  [[nodiscard]] double of(const planner::Batch& batch) const {
    return per_token * (batch.prefill_tokens + batch.decode_sequences) +
           per_attended_token * (batch.prefill_attention / 2 + batch.decode_context_tokens);
  }
};

// A worker is one engine, or with a model of S pipeline stages S engines (vLLM's virtual engines: each with 1/S of the KV
// cache) whose iterations, the microbatches, follow each other through the stages. A stage that waits for the one before is a
// bubble.
// `workers` are there and ready at time 0; engine.kv_blocks 0: what the model's KV capacity gives.
struct ServingPool : planner::Pool {
  std::string name;                                // "h100-2"; a controller tells pools apart by it
  const planner::IterationModel* model = nullptr;  // borrowed
  double price_per_gpu_hour = 0;
  double power_per_gpu_watts = 0;
  double start_s = 0;           // a worker that is started later is ready after this: schedule, image pull, load, warm
  double swap_s_per_token = 0;  // between GPU and host, per token of KV cache, all GPUs of the worker together
  ModelFlops flops;
  double dispatch_weight = 0;  // of a worker, where weights dispatch; 0: its slots at the speed of a request alone
};

// Of every pair of a prefill and a decode worker, uncontended.
struct KvLink {
  planner::KvTransferPath path;
  double kv_bytes_per_token = 0;
};

struct ServingObjectives {
  double ttft_s = 0;
  double tpot_s = 0;
};

// A pair of pools that a request may take: prefilled by a worker of the one, decoded by a worker of the other, of each the one
// with the fewest pending tokens. Caches go over the pair's path one after another.
struct PoolPair {
  int prefill = 0;  // indices in ServingService::pools
  int decode = 0;
  double weight = 1;             // pairs are taken in proportion to it, by smooth weighted round robin (HexGen-2, Section 3.3)
  planner::KvTransferPath path;  // in place of the service's
};

// All of one model.
struct ServingService {
  std::string name;  // for people
  std::vector<ServingPool> pools;
  KvLink link;
  dispatch::DispatchSettings dispatch;
  std::vector<PoolPair> pairs;  // of DecodeChoice::kPairs; others have none
  std::optional<ServingObjectives> objectives;
  // A request alone on this worker is what slowdowns are relative to. Borrowed.
  const planner::IterationModel* slowdown_reference = nullptr;
};

// Workers that fail. What they held is lost: a request whose first token had not been sent is dispatched again (to 16 workers
// at most: then it has failed too), one that was streaming has failed.
struct WorkerFailures {
  struct At {
    double time_s = 0;
    int worker = 0;  // as they are counted in results; one that is not there then is passed over
  };
  std::vector<At> at;
  double mean_time_between_s = 0;  // of each worker, exponential; 0: none
  bool restart = true;             // another of its pool starts at once, unless it drained, and is ready after its start_s
};

struct RunOptions {
  std::uint64_t seed = 1;
  double arrivals_end_s = std::numeric_limits<double>::infinity();  // later requests of the source are left out; the run drains
  std::int64_t max_requests = std::numeric_limits<std::int64_t>::max();
  WorkerFailures failures;
  ClusterController* controller = nullptr;               // borrowed: starts and drains workers in the run; none: they stay
  std::function<void(std::int64_t completed)> progress;  // every 2^14 completions; may be empty
  ServingObserver* observer = nullptr;                   // borrowed
  double sample_interval_s = 0;                          // 0: no samples
  // The run ends as soon as this verdict is sure, and its figures are those until then. For one service, without failures and
  // controller.
  std::optional<VerdictOnly> verdict_only;
};

// One model and its run.
struct ServingOptions : ServingService, RunOptions {};

// Several models, Request::model is the index. They meet only in the controller, which divides the GPUs among them.
struct ClusterOptions : RunOptions {
  std::vector<ServingService> services;
};

}  // namespace windlass::sim
