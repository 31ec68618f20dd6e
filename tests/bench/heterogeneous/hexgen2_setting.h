// HexGen-2's settings (Jiang, Yan, Yuan, ICLR 2025): workloads (Section 5.1), the clusters of Fig. 4 and Appendix E, and random
// clusters for comparisons. Used by the tables and the tests.
//
// The paper measures its bandwidths and shows them as pictures. Here they come from data sheets: NVLink (H100, A100) or PCIe
// 4.0 (L40, A6000) between GPUs of a machine, and 100, 25, 10 or 5 Gbit/s between machines, depending on their accelerators
// (cluster_of()).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "planner/base/rng.h"
#include "planner/deployment/gpu_cluster.h"

namespace windlass::bench {

struct HexGenWorkload {
  const char* name;
  double input_tokens, output_tokens;  // means
};

// Requests of AzureLLMInferenceTrace_conv.csv by the paper's limits (more than 512 tokens of input and 128 of output are
// heavy): heavy or light prefill, heavy or light decode; and all of them.
inline constexpr HexGenWorkload kHpld{"HPLD", 2605.7, 71.9}, kHphd{"HPHD", 1209.9, 386.8}, kLphd{"LPHD", 228.6, 177.8},
    kLpld{"LPLD", 355.9, 85.2}, kOnline{"Online", 1154.7, 211.1};
inline constexpr HexGenWorkload kHexGenWorkloads[] = {kHpld, kHphd, kLphd, kLpld, kOnline};

// Machines in order: accelerator by its catalog name, and number of GPUs. Prices per GPU and hour fit the paper's budgets (H100
// 3.69, A100 1.69, L40 1.04, A6000 0.75). Links between machines: 100 Gbit/s with the same accelerator; 25 between H100 and
// A100, and between L40 and A6000; 10 between these two groups, but 5 with A6000. Ethernet, 30 us; 100 Gbit/s is InfiniBand, 10
// us.
[[nodiscard]] hetero::GpuCluster cluster_of(const std::vector<std::pair<std::string, int>>& machines);

// Settings 1 to 5 of Fig. 4 (setting 1 according to Table 2 and its budget) and 0, the homogeneous one. Machines have at most 4
// GPUs, except for the 8 of setting 0.
[[nodiscard]] hetero::GpuCluster paper_setting(int setting);
// Appendix E: 4 H100 and 4 A100.
[[nodiscard]] hetero::GpuCluster appendix_e();

// Machines with 1, 2, 4 or 8 GPUs of H100, A100, L40, A6000 or V100, linked by 100, 25, 10 or 5 Gbit/s at random.
[[nodiscard]] hetero::GpuCluster random_cluster(int gpus, Rng& rng);

}  // namespace windlass::bench
