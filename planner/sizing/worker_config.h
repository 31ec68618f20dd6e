// Aladdin's worker configuration (Nie, Fonseca, Liu 2024, Section 4.1): the number of GPUs per worker that maximises throughput
// per GPU, within the KV cache and the TPOT objective (Eq. 6).
//
// The batch of a worker with N GPUs is the largest b that satisfies
//   KV cache     b * (l_in + l_out) <= capacity                                 Eq. 1: a request's peak, paged in blocks
//   TPOT         t_d(b, l_in + gamma l_out) + (b - 1) t_p / (l_out - 1) <= theta TPOT
//                                                                               Eq. 4, and constraint (d) of 4.2 for the mean:
//                                                                               while a request decodes, b - 1 others prefill
//                                                                               and stall it
//   TTFT         prefill, one iteration and the wait for earlier prefills fit within TTFT
// The answer maximises T_max = min{ b_kv / (N t(b_kv)), b_slo / (N TPOT) } over N. It depends on the spec alone and not on the
// arrival rate.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/deployment.h"
#include "planner/perf/iteration_estimate.h"
#include "planner/perf/latency_model.h"

namespace windlass::planner {

struct Objective {
  double ttft_s = 0;
  double tpot_s = 0;
  double percentile = 95;
};

// Mean lengths.
struct Lengths {
  double input_tokens = 0;
  double output_tokens = 0;
};

// gamma of constraint (b): count half of the growth of the context, as in the paper.
inline constexpr double kContextGrowth = 0.5;
// theta of constraints (b) and (d): reserve a tenth of the TPOT objective for lengths that differ from their mean.
inline constexpr double kTpotMargin = 0.9;
// The most tokens that paging adds to the KV cache of a request (j of Eq. 1): one block of 16.
inline constexpr double kKvBlockTokens = 16;
// Upper bound of concurrent requests: the default limit of no known engine is higher.
inline constexpr int kMaxBatch = 256;
// Mean share of slots that may be busy; above it, waiting grows steeply.
inline constexpr double kMaxUtilisation = 0.8;

enum class BatchLimit { kKvCache, kTpot, kTtft, kEngine };

const char* to_string(BatchLimit limit);  // "KvCache", "Tpot", "Ttft", "Engine"

// Times of a worker with b concurrent requests.
struct WorkerTimes {
  double prefill_s = 0;  // of one request alone
  double decode_s = 0;   // of one decode iteration
  double tpot_s = 0;     // decode iteration plus mean stall by the prefills of others
  double ttft_s = 0;     // at the worker: current iteration, earlier prefills, own prefill
  double service_s = 0;  // first to last token: b prefills and all decode iterations
};

[[nodiscard]] WorkerTimes worker_times(const LatencyModel& model, double batch, const Lengths& lengths);

struct BatchChoice {
  int batch = 0;  // 0: not even one request meets the objective
  BatchLimit limit = BatchLimit::kEngine;
  WorkerTimes times;  // at `batch`, or at 1 if that is 0
};

// The largest batch within all limits.
[[nodiscard]] BatchChoice largest_batch(const LatencyModel& model, const Objective& objective, const Lengths& lengths);

// T_max of Eq. 6 in tokens per second and GPU. At the TPOT limit an iteration takes the objective (minus its margin); below it,
// its own time. REQUIRES: choice.batch >= 1.
[[nodiscard]] double tokens_per_s_per_gpu(const BatchChoice& choice, const Objective& objective, int gpus);

// "2 x h100"; for a chain "a chain of 4 x h100", "a chain of 4 x (2 x h100)".
[[nodiscard]] std::string text_of(const WorkerSpec& spec);

struct WorkerConfig {
  WorkerSpec spec;
  int batch = 0;
  BatchLimit limit = BatchLimit::kEngine;
  double tokens_per_s_per_gpu = 0;  // T_max
  double kv_capacity_tokens = 0;
  WorkerTimes times;

  // Requests per second of a worker with a full batch.
  [[nodiscard]] double requests_per_s() const { return batch / times.service_s; }
};

enum class RejectCode { kDoesNotFit, kContextDoesNotFit, kTpot, kTtft, kDataType };

const char* to_string(
    RejectCode code);  // "DoesNotFit", "ContextDoesNotFit", "TpotTooTight", "TtftTooTight", "NoComputeForDataType"

struct Rejected {
  WorkerSpec spec;
  RejectCode code = RejectCode::kDoesNotFit;
  std::string message;
  double smallest_tpot_s = 0;  // with one request at a time; 0 if the model does not fit
  double smallest_ttft_s = 0;
};

struct WorkerSearch {
  std::optional<WorkerConfig> best;    // highest T_max; on a tie the fewest GPUs
  std::vector<WorkerConfig> feasible;  // all, by number of GPUs
  std::vector<Rejected> rejected;      // by number of GPUs
};

struct WorkerSearchInput {
  ModelShape shape;
  AcceleratorSpec accelerator;
  Objective objective;
  Lengths lengths;
  int max_gpus = 1;            // of one worker; those that compute a layer together are also limited by the GPUs of a node
  int max_context_tokens = 0;  // a worker must hold one request of this length; 0: the maximum of the model
  EngineType engine = EngineType::kWindlass;
  std::span<const WorkerEstimate> estimates = {};  // measurements that replace the data sheet
  bool chained = false;                            // workers are chains of two to kMaxStages servers
  std::optional<int> max_tensor_parallel = {};     // of each of their servers
};

// A request waits for every server of its chain once for each token.
inline constexpr int kMaxStages = 32;

// Concurrent requests that fit in a worker's KV cache; at least 1 and at most kMaxBatch. `reserved_tokens`: what its engine
// reserves per request, however short; 0: only what the request needs.
[[nodiscard]] int batch_in_memory(double kv_capacity_tokens, const Lengths& lengths, int reserved_tokens);

// Tensor-parallel degrees that split the model evenly: they divide the heads and the widths of the MLP and the experts, and KV
// heads split or repeat evenly.
[[nodiscard]] std::vector<int> tensor_parallel_degrees(const ModelShape& shape, int max_gpus);

// Uses the linear model, with measurements where available. Of chains with servers of as many GPUs, more servers are tried only
// until they no longer increase T_max.
[[nodiscard]] WorkerSearch search_worker_config(const WorkerSearchInput& input);

// The figures of one kind of chain; none if it misses the objective.
[[nodiscard]] std::optional<WorkerConfig> chain_config(const WorkerSearchInput& input, const GpuSplit& split);

}  // namespace windlass::planner
