// DistServe's Fig. 8 (Zhong et al., OSDI 2024, Section 6.2) in simulation: the rate per GPU at which 90 % of requests meet both
// objectives of Table 1, vLLM on one instance against the best split into prefill and decode instances.
//
// As the paper has it: OPT on A100-80GB, Poisson arrivals, vLLM with tensor parallelism 1, 4 and 8, DistServe's own latency
// formulas (its profiles, one for each engine; OPT-175B, which they lack, by the operator model with A100's tables), KV over
// NVLink inside a node, prefills batched up to the 512 tokens that fill an A100. The split is the best over instance numbers
// and parallelism of both sides, as DistServe searches its placements. Assumed, where the paper is silent: ShareGPT's lengths
// of ../shared/data within OPT's 2,048 tokens; and, since those have shorter prompts and longer answers than Fig. 7 shows, also
// log-normal lengths with the means that we remember from Fig. 7 (755 and 200 tokens; HumanEval 171 and 98, LongBench 1,738 and
// 91; its picture is not in the text that we have), of coefficients of variation 1 (HumanEval 0.5, LongBench 0.25).
#pragma once

#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/distserve_model.h"
#include "planner/workload/lengths.h"

namespace windlass::bench {

struct DistServeCase {
  std::string name;   // "OPT-13B, ShareGPT"
  std::string model;  // of the catalog
  double ttft_s = 0;
  double tpot_s = 0;
  workload::LengthDistribution lengths;
  int vllm_tensor_parallel = 1;
  std::vector<planner::DistServeParallelism> parallelism;  // that the split may use on either side
  std::string paper_factor;                                // of the rate, as the text has it
};
// Table 1, ShareGPT with both kinds of lengths.
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

enum class ProfiledEngine { kDistServe, kVllm };  // whose latencies the split has

struct DistServeComparison {
  double vllm_per_gpu_s = 0;   // requests a second and GPU
  double split_per_gpu_s = 0;  // of the best placement
  SplitPlacement placement;
  // The tightest objectives, as multiples of the case's own, that the split holds at the rate that vLLM holds: below 1 where it
  // is better.
  double scale_at_vllms_rate = 0;
};
[[nodiscard]] Result<DistServeComparison> compare_distserve(const std::string& data, const DistServeCase& of,
                                                            ProfiledEngine split_engine);

[[nodiscard]] Result<std::string> distserve_ordering_table(const std::string& data);

}  // namespace windlass::bench
