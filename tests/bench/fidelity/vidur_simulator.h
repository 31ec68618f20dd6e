// Vidur's own simulator, for one replica without pipeline stages, from the published source (github.com/microsoft/vidur,
// execution_time.py, sklearn_execution_time_predictor.py, and the replica schedulers vllm and sarathi).
//
// An iteration is the sum of a layer's operators times the layers, plus the CPU times by batch. Operators are predicted by
// random forests on the medians of a profile. Tokens are rounded up to 8, caches to 64. Every all-reduce takes a stated time
// more for its launch, and attention of more than one sequence a tenth more if heads share keys. Embedding, output projection
// and sampling kernels take no time. Only what `windlass fit` is compared with; the planner does not use it.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "planner/base/result.h"
#include "planner/catalog/model_shape.h"
#include "planner/deployment/engine_settings.h"
#include "planner/perf/operator_table.h"
#include "planner/workload/request_source.h"
#include "tests/bench/fidelity/random_forest.h"

namespace windlass::bench {

// What is added to the kernels; the defaults are Vidur's.
struct VidurAdditions {
  bool cpu = true;                     // the operators of cpu_overheads.csv; Vidur's skip_cpu_overhead_modeling leaves them out
  double all_reduce_launch_s = 20e-6;  // nccl_cpu_launch_overhead_ms
  double attention_share = 0.1;        // attention_{prefill,decode}_batching_overhead_fraction
};

// What an iteration does for a request.
struct VidurPart {
  int tokens = 1;     // computed now
  int processed = 0;  // in its cache
  bool prompt = false;
};

// Not safe for concurrent use: remembers predictions.
class VidurTimes {
 public:
  // Error kNotFound: an operator without samples for this number of GPUs.
  [[nodiscard]] static Result<VidurTimes> make(const std::vector<planner::VidurSample>& samples,
                                               const planner::ModelShape& shape, int tensor_parallel,
                                               const VidurAdditions& additions = {});

  [[nodiscard]] double iteration_s(std::span<const VidurPart> parts) const;

 private:
  VidurTimes() = default;
  [[nodiscard]] double token_level_s(int tokens) const;  // of a layer, with its all-reduces
  [[nodiscard]] double attention_s(const RandomForest& forest, std::map<std::pair<int, int>, double>& memory, int first,
                                   int second) const;
  [[nodiscard]] double cpu_s(int sequences) const;

  int layers_ = 0;
  bool grouped_ = false;
  VidurAdditions additions_;
  std::vector<RandomForest> tokens_;  // by tokens
  std::shared_ptr<const RandomForest> all_reduce_, prefill_, decode_;
  std::vector<RandomForest> cpu_;
  mutable std::map<int, double> by_tokens_, by_sequences_;
  mutable std::map<std::pair<int, int>, double> by_prefill_, by_decode_;
};

struct VidurEngine {
  planner::Batching batching = planner::Batching::kVllm;  // or kSarathi
  int max_sequences = 128;
  int max_batch_tokens = 4096;  // vllm: of the padded prompts; sarathi: the chunk
  std::int64_t blocks = 0;      // of 16 tokens; Vidur keeps 1 % free for running sequences
};

struct VidurServed {
  double ttft_s = 0;
  double e2e_s = 0;
};

// In the order of arrival. REQUIRES: ascending arrivals, requests that the blocks hold.
[[nodiscard]] std::vector<VidurServed> vidur_simulate(const VidurTimes& times, const VidurEngine& engine,
                                                      std::span<const workload::Request> requests);

}  // namespace windlass::bench
