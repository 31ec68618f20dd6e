// TetriInfer's Fig. 11-15 (Hu et al., 2024, Section 5.1) in simulation: OPT-13B on V100-32GB with tensor parallelism 2, 128
// requests of ShareGPT lengths by class, vLLM on one instance against one prefill and one decode instance.
//
// From the paper: heavy prefill is above 512 prompt tokens, heavy decode above 128 tokens; chunks of 512, shortest first in
// windows of 16, reserve-dynamic admission by predicted lengths (buckets of 200, right in 74.9 %), a prefill instance slowed by
// a tenth by its predictor, KV over 200 Gbit/s RoCE or 300 GB/s NVLink. Resource time is the sum of both instances' wall times,
// or vLLM's makespan. perf/$ is (1 + reduction of JCT) / relative resource time, which reproduces the paper's own numbers.
//
// Assumptions where the paper is silent: all requests arrive together; vLLM's batch is 16 (named in Section 5.2); iteration
// times by roofline with A100's efficiencies, without and with the CPU times that Vidur measured; only requests within OPT's
// 2,048 tokens.
#pragma once

#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/operator_model.h"
#include "planner/workload/trace.h"

namespace windlass::bench {

struct TetriInferWorkload {
  std::string name;  // "LPLD"
  // The paper's reductions, as shares. Resource time may increase; then it is negative.
  double paper_ttft = 0, paper_jct = 0, paper_resource = 0, paper_perf_per_dollar = 0;
};
// LPLD, LPHD, HPLD, HPHD, Mixed; -1 if the text has no number.
[[nodiscard]] const std::vector<TetriInferWorkload>& tetriinfer_workloads();

struct TetriInferOptions {
  double link_bytes_per_s = 25e9;
  int seeds = 10;
  int requests = 128;
  int vllm_batch = 16;
  // Features of TetriInfer other than the split.
  bool shortest_first = true;
  bool reserve_dynamic = true;
  planner::EngineOverhead overhead = {};  // of both systems
};

struct TetriInferRun {
  double ttft_s = 0, jct_s = 0, resource_s = 0;  // means over seeds
};
struct TetriInferComparison {
  std::string workload;
  TetriInferRun vllm, tetriinfer;
  [[nodiscard]] double ttft_less() const { return 1 - tetriinfer.ttft_s / vllm.ttft_s; }
  [[nodiscard]] double jct_less() const { return 1 - tetriinfer.jct_s / vllm.jct_s; }
  [[nodiscard]] double resource_less() const { return 1 - tetriinfer.resource_s / vllm.resource_s; }
  [[nodiscard]] double perf_per_dollar() const { return (1 + jct_less()) / (1 - resource_less()); }
};
// One per workload.
[[nodiscard]] Result<std::vector<TetriInferComparison>> compare_tetriinfer(const std::vector<workload::TokenPair>& sharegpt,
                                                                           const TetriInferOptions& options = {});

[[nodiscard]] Result<std::string> tetriinfer_table(const std::string& data);

}  // namespace windlass::bench
