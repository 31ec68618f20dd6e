// HexGen-2's settings (Jiang, Yan, Yuan, ICLR 2025): workloads (Section 5.1), the clusters of Fig. 4 and Appendix E, and random
// clusters for comparisons. For the tables and the tests.
//
// The paper measures its bandwidths and shows them as pictures; here they are from data sheets: between GPUs of a machine
// NVLink (H100, A100) or PCIe 4.0 (L40, A6000), between machines 100, 25, 10 or 5 Gbit/s, as the machines are related
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

// Machines in their order: accelerator by its catalog name, GPUs. GPUs cost what fits the paper's budgets an hour (H100 3.69,
// A100 1.69, L40 1.04, A6000 0.75). Between machines of one accelerator 100 Gbit/s; between H100 and A100, and between L40 and
// A6000, 25; between these two sorts 10, with A6000 5. Ethernet, 30 us; 100 Gbit/s is InfiniBand, 10 us.
[[nodiscard]] hetero::GpuCluster cluster_of(const std::vector<std::pair<std::string, int>>& machines);

// Settings 1 to 5 of Fig. 4 (setting 1 as Table 2 and its budget have it) and 0, the homogeneous one; machines of at most 4
// GPUs but for that one's 8.
[[nodiscard]] hetero::GpuCluster paper_setting(int setting);
// Appendix E: 4 H100 and 4 A100.
[[nodiscard]] hetero::GpuCluster appendix_e();

// Machines of 1, 2, 4 or 8 GPUs of H100, A100, L40, A6000 and V100, joined by 100, 25, 10 or 5 Gbit/s at random.
[[nodiscard]] hetero::GpuCluster random_cluster(int gpus, Rng& rng);

}  // namespace windlass::bench
