// HexGen-2's cost model with the shares of the data sheets that its published throughput implies (Jiang, Yan, Yuan, ICLR 2025,
// Tables 3 and 4), instead of all of them.
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/deployment/gpu_cluster.h"
#include "planner/strategies/core/stage_cost.h"
#include "tests/bench/heterogeneous/hexgen2_setting.h"

namespace windlass::bench {

inline constexpr int kAnyBatch = std::numeric_limits<int>::max();

struct HexGenShares {
  double h100_flops = 1;  // of the data sheet's
  double other_flops = 1;
  double bandwidth = 1;       // of every GPU's memory
  double message_s = 0;       // of every message between GPUs of a machine; 0: the data sheet's
  int max_batch = kAnyBatch;  // sequences that decode at once in a group
  double interference = 1;    // factor on the time of a group that alternates between both phases (HexGen)
};

[[nodiscard]] hetero::GpuCluster with_shares(hetero::GpuCluster cluster, const HexGenShares& shares);
[[nodiscard]] Result<hetero::InferenceTask> hexgen_task(const std::string& model, const HexGenWorkload& workload,
                                                        int max_batch = kAnyBatch);
// DistServe's search space: instances of one size per phase, on GPUs of one machine. Requests per second.
[[nodiscard]] double distserve_rate(const hetero::GpuCluster& cluster, const hetero::InferenceTask& task);

enum class HexGenSystem { kHexGen2, kHexGen, kDistServe };

// A published figure, and what the cost model has in its place.
struct PublishedThroughput {
  int table = 3;  // 3: Llama-2-70B on setting 1, DistServe on 8 H100; 4: OPT-30B on 4 H100
  HexGenSystem system = HexGenSystem::kHexGen2;
  HexGenWorkload workload;
  double tokens_per_s = 0;
};
// Tables 3 and 4, without vLLM.
[[nodiscard]] std::vector<PublishedThroughput> published_throughput();

// In tokens/s. The online workload arrives at 75 % of the peak (Section 5.1).
[[nodiscard]] Result<double> modelled_throughput(const PublishedThroughput& published, const HexGenShares& shares);
// The root mean square of log(modelled / published).
[[nodiscard]] Result<double> throughput_error(const std::vector<PublishedThroughput>& published, const HexGenShares& shares,
                                              Executor& executor);

// The shares with the least error over HexGen-2's and DistServe's figures of these tables; errors of the ratios between the two
// count four times. Descends along one share after the other from each start; a share that a start leaves to the data sheet, or
// a batch to memory, stays there. Then the interference that gives HexGen's figures of the last table in the mean.
[[nodiscard]] Result<HexGenShares> fitted_shares(const std::vector<int>& tables, const std::vector<HexGenShares>& starts,
                                                 Executor& executor);

// "HexGen-2 > HexGen > DistServe": the systems by their throughput on a workload of a table.
[[nodiscard]] Result<std::string> modelled_order(int table, const HexGenWorkload& workload, const HexGenShares& shares);
[[nodiscard]] std::string published_order(int table, const HexGenWorkload& workload);

// Tables for docs/algorithms/hexgen2-calibrated.md.
struct CalibrationTables {
  std::string published, fits, figures, settings;
};
[[nodiscard]] Result<CalibrationTables> calibration_tables(Executor& executor);

}  // namespace windlass::bench
