// The settings of Huawei's evaluation (Xiong et al. 2025, Section 5): 8 V100 on PCIe 3.0 with Llama-3-8B, and a second machine
// of one A800 with DeepSeek-R1-Distill-Qwen-14B on both; vLLM 0.6.0; prompts and answers of ShareGPT. The authors' p1 to p8 are
// unpublished: a stated roofline stands in their place.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/sim/serving_simulation.h"
#include "planner/strategies/huawei/huawei.h"
#include "planner/workload/trace.h"

namespace windlass::bench {

// What of the roofline neither the data sheets nor the efficiencies fitted elsewhere say.
struct HuaweiRoofline {
  double link_bytes_per_s = 16e9;  // of a V100 to its peers, one direction: the data sheet's PCIe 3.0 x16
  double hop_s = 10e-6;            // a step of a ring over PCIe, through the host's memory
  double iteration_s = 5e-3;       // vLLM 0.6.0's own time in an iteration that the GPU does not hide
  double sequence_s = 20e-6;       // and of each sequence
  double v100_compute = 1;         // of the share of its peak FLOP/s that an A100 reaches

  [[nodiscard]] planner::EngineOverhead overhead() const;
};

[[nodiscard]] hetero::ClusterNode v100_machine(const HuaweiRoofline& roofline);
[[nodiscard]] hetero::ClusterNode a800_machine();
[[nodiscard]] planner::ModelShape distill_qwen_14b();

// All of ShareGPT's that Llama-3's context holds: the paper samples the dataset and names no filter.
[[nodiscard]] Result<std::vector<workload::TokenPair>> huawei_lengths(const std::string& data);

// Instances of one kind, in the simulator.
struct HuaweiInstances {
  std::string name;
  hetero::ClusterNode machine;
  int tensor_parallel = 1;
  int instances = 1;
};

// A service of these with vLLM 0.6.0's batching; weights of dispatch are their GPUs. Borrows from `models`, which it fills.
[[nodiscard]] Result<sim::ServingOptions> huawei_service(const planner::ModelShape& shape, const HuaweiRoofline& roofline,
                                                         const std::vector<HuaweiInstances>& instances,
                                                         std::vector<std::shared_ptr<const planner::IterationModel>>& models);

}  // namespace windlass::bench
