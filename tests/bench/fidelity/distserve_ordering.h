// DistServe's Fig. 8 (Zhong et al., OSDI 2024, Section 6.2) in simulation: the rate per GPU at which 90 % of requests meet both
// objectives of Table 1, for vLLM on one instance and for the best split into prefill and decode instances.
//
// From the paper: OPT on A100-80GB, Poisson arrivals, vLLM with tensor parallelism 1, 4 and 8, DistServe's own latency formulas
// (its profiles, one per engine; OPT-175B, which they lack, uses the operator model with A100's tables), KV over NVLink inside
// a node, prefills batched up to the 512 tokens that fill an A100. Like DistServe's placement search, the split is the best
// over instance numbers and parallelism of both sides.
//
// Assumptions where the paper is silent: ShareGPT's lengths of ../shared/data within OPT's 2,048 tokens. They have shorter
// prompts and longer answers than Fig. 7 shows, so log-normal lengths are used as well, with the means as remembered from Fig.
// 7, because our text lacks its picture (755 and 200 tokens; HumanEval 171 and 98, LongBench 1,738 and 91) and coefficients of
// variation of 1 (HumanEval 0.5, LongBench 0.25).
#pragma once

#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/distserve_model.h"
#include "planner/workload/lengths.h"

namespace windlass::bench {

struct DistServeCase {
  std::string name;   // "OPT-13B, ShareGPT"
  std::string model;  // name in the catalog
  double ttft_s = 0;
  double tpot_s = 0;
  workload::LengthDistribution lengths;
  int vllm_tensor_parallel = 1;
  std::vector<planner::DistServeParallelism> parallelism;  // options of the split for either side
  std::string paper_factor;                                // improvement of the rate, as stated in the text
};
// Table 1, with ShareGPT in both kinds of lengths.
[[nodiscard]] Result<std::vector<DistServeCase>> distserve_cases(const std::string& data);

struct SplitPlacement {
  planner::DistServeParallelism prefill, decode;
  int prefill_workers = 1, decode_workers = 1;
  [[nodiscard]] int gpus() const {
    return prefill_workers * prefill.tensor_parallel * prefill.pipeline_parallel +
           decode_workers * decode.tensor_parallel * decode.pipeline_parallel;
  }
  [[nodiscard]] std::string text() const;  // "3 x TP 2, 2 x TP 1 PP 2": prefill, decode
};

enum class ProfiledEngine { kDistServe, kVllm };  // whose latencies the split uses

struct DistServeComparison {
  double vllm_per_gpu_s = 0;   // requests per second and GPU
  double split_per_gpu_s = 0;  // of the best placement
  SplitPlacement placement;
  // The tightest objectives that the split meets at vLLM's rate, as a multiple of the case's own; below 1 means that the split
  // is better.
  double scale_at_vllms_rate = 0;
};
[[nodiscard]] Result<DistServeComparison> compare_distserve(const std::string& data, const DistServeCase& of,
                                                            ProfiledEngine split_engine);

[[nodiscard]] Result<std::string> distserve_ordering_table(const std::string& data);

}  // namespace windlass::bench
