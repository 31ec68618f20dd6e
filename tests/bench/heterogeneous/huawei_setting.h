// The settings of Huawei's evaluation (Xiong et al. 2025, Section 5): 8 V100 on PCIe 3.0 with Llama-3-8B, and a second machine
// with one A800, with DeepSeek-R1-Distill-Qwen-14B on both; vLLM 0.6.0; prompts and answers of ShareGPT. The authors' p1 to p8
// are unpublished; the roofline below replaces them.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/sim/serving_simulation.h"
#include "planner/strategies/huawei/huawei.h"
#include "planner/workload/trace.h"

namespace windlass::bench {

// Parameters of the roofline that neither the data sheets nor the efficiencies fitted elsewhere give.
struct HuaweiRoofline {
  double link_bytes_per_s = 16e9;  // from a V100 to its peers, one direction: the data sheet's PCIe 3.0 x16
  double hop_s = 10e-6;            // one step of a ring over PCIe, through the host's memory
  double iteration_s = 5e-3;       // vLLM 0.6.0's own time per iteration that the GPU does not hide
  double sequence_s = 20e-6;       // the same, per sequence
  double v100_compute = 1;         // relative to the share of peak FLOP/s that an A100 reaches

  [[nodiscard]] planner::EngineOverhead overhead() const;
};

[[nodiscard]] hetero::ClusterNode v100_machine(const HuaweiRoofline& roofline);
[[nodiscard]] hetero::ClusterNode a800_machine();
[[nodiscard]] planner::ModelShape distill_qwen_14b();

// All of ShareGPT that fits Llama-3's context: the paper samples the dataset and names no filter.
[[nodiscard]] Result<std::vector<workload::TokenPair>> huawei_lengths(const std::string& data);

// Instances of one kind, for the simulator.
struct HuaweiInstances {
  std::string name;
  hetero::ClusterNode machine;
  int tensor_parallel = 1;
  int instances = 1;
};

// A service of these instances with vLLM 0.6.0's batching, each weighted by its GPUs for dispatch. Fills `models` and keeps
// pointers into it.
[[nodiscard]] Result<sim::ServingOptions> huawei_service(const planner::ModelShape& shape, const HuaweiRoofline& roofline,
                                                         const std::vector<HuaweiInstances>& instances,
                                                         std::vector<std::shared_ptr<const planner::IterationModel>>& models);

}  // namespace windlass::bench
