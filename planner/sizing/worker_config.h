// Aladdin's worker configuration (Nie, Fonseca, Liu 2024, Section 4.1): the number of GPUs per worker that maximises the
// throughput per GPU, under the KV cache's limit and the TPOT objective (Eq. 6).
//
// The batch of a worker with N GPUs is the largest b with
//   KV cache     b * (l_in + l_out) <= capacity                                 Eq. 1: a request's peak, paged in blocks
//   TPOT         t_d(b, l_in + gamma l_out) + (b - 1) t_p / (l_out - 1) <= theta TPOT
//                                                                               Eq. 4, and constraint (d) of 4.2 in the mean:
//                                                                               while a request decodes, b - 1 others prefill
//                                                                               and stall it
//   TTFT         prefill, one iteration and the wait for prefills in front of it fit in TTFT
// and the answer maximises T_max = min{ b_kv / (N t(b_kv)), b_slo / (N TPOT) } over N. It depends on the spec alone, not on the
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

// gamma of constraint (b): half of the growth of the context is counted, as the paper does.
inline constexpr double kContextGrowth = 0.5;
// theta of constraints (b) and (d): a tenth of the TPOT objective is kept for lengths that differ from their mean.
inline constexpr double kTpotMargin = 0.9;
// Tokens that paging rounds a request's KV cache up by, at most (Eq. 1's j): one block of 16.
inline constexpr double kKvBlockTokens = 16;
// No engine of ours or others runs more requests at once by default.
inline constexpr int kMaxBatch = 256;
// Share of the slots that may be busy in the mean: above it waiting grows steeply.
inline constexpr double kMaxUtilisation = 0.8;

enum class BatchLimit { kKvCache, kTpot, kTtft, kEngine };

const char* to_string(BatchLimit limit);  // "KvCache", "Tpot", "Ttft", "Engine"

// What a worker does when b requests share it.
struct WorkerTimes {
  double prefill_s = 0;  // of one request alone
  double decode_s = 0;   // one decode iteration
  double tpot_s = 0;     // decode iteration and the mean stall by others' prefills
  double ttft_s = 0;     // at the worker: iteration under way, prefills in front, own prefill
  double service_s = 0;  // first to last: b prefills and all decode iterations
};

[[nodiscard]] WorkerTimes worker_times(const LatencyModel& model, double batch, const Lengths& lengths);

struct BatchChoice {
  int batch = 0;  // 0: not even one request is served inside the objective
  BatchLimit limit = BatchLimit::kEngine;
  WorkerTimes times;  // at `batch`, or at 1 when that is 0
};

// The largest batch inside all limits.
[[nodiscard]] BatchChoice largest_batch(const LatencyModel& model, const Objective& objective, const Lengths& lengths);

// T_max of Eq. 6, tokens a second for each of the worker's GPUs. At the TPOT limit an iteration takes the objective (less its
// margin); below it, what it takes. REQUIRES: choice.batch >= 1.
[[nodiscard]] double tokens_per_s_per_gpu(const BatchChoice& choice, const Objective& objective, int gpus);

// "2 x h100".
[[nodiscard]] std::string text_of(const WorkerSpec& spec);

struct WorkerConfig {
  WorkerSpec spec;
  int batch = 0;
  BatchLimit limit = BatchLimit::kEngine;
  double tokens_per_s_per_gpu = 0;  // T_max
  double kv_capacity_tokens = 0;
  WorkerTimes times;

  // Requests per second of a worker whose batch is full.
  [[nodiscard]] double requests_per_s() const { return batch / times.service_s; }
};

enum class RejectCode { kDoesNotFit, kContextDoesNotFit, kTpot, kTtft, kDataType };

const char* to_string(
    RejectCode code);  // "DoesNotFit", "ContextDoesNotFit", "TpotTooTight", "TtftTooTight", "NoComputeForDataType"

struct Rejected {
  WorkerSpec spec;
  RejectCode code = RejectCode::kDoesNotFit;
  std::string message;
  double smallest_tpot_s = 0;  // with one request at a time; 0 when the model does not fit
  double smallest_ttft_s = 0;
};

struct WorkerSearch {
  std::optional<WorkerConfig> best;    // highest T_max; on a tie fewer GPUs
  std::vector<WorkerConfig> feasible;  // all of them, by GPUs
  std::vector<Rejected> rejected;      // by GPUs
};

struct WorkerSearchInput {
  ModelShape shape;
  AcceleratorSpec accelerator;
  Objective objective;
  Lengths lengths;
  int max_gpus = 1;                                // of one worker; the node's GPUs are a further limit
  int max_context_tokens = 0;                      // a worker must hold one request of this length; 0: the shape's own
  std::span<const WorkerEstimate> estimates = {};  // what was measured counts instead of the data sheet
};

// Requests that a worker's KV cache has room for at once, at most kMaxBatch; at least 1. `reserved_tokens`: that its engine
// keeps for each, however short it is; 0: it takes what a request needs.
[[nodiscard]] int batch_in_memory(double kv_capacity_tokens, const Lengths& lengths, int reserved_tokens);

// Tensor-parallel degrees that cut the model evenly: divisors of the heads and of the widths of the MLP and of experts, over
// which KV heads split or repeat evenly.
[[nodiscard]] std::vector<int> tensor_parallel_degrees(const ModelShape& shape, int max_gpus);

// On the linear model, with what was measured in it.
[[nodiscard]] WorkerSearch search_worker_config(const WorkerSearchInput& input);

}  // namespace windlass::planner
