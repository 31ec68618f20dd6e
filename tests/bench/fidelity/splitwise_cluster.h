// Splitwise's Fig. 12 (Patel et al., ISCA 2024) in simulation: in how many of 20 seeds a cluster of prompt and token machines
// (8 H100 each, BLOOM-176B, Azure's code service at 70 requests/s for two minutes) meets all nine objectives of Table VI. The
// scenario is that of examples/simulate/splitwise-code.yaml.
#pragma once

#include <string>

#include "planner/base/result.h"
#include "planner/sim/serving_simulation.h"

namespace windlass::bench {

// Table VI: slowdown relative to the same request alone on 8 A100.
[[nodiscard]] inline bool meets_all_nine(const sim::ServingResult::Slowdown& slowdown) {
  const auto within = [](const sim::TimeSummary& summary, double p50, double p90, double p99) {
    return summary.p50_s <= p50 && summary.p90_s <= p90 && summary.p99_s <= p99;
  };
  return within(slowdown.ttft, 2, 3, 6) && within(slowdown.tbt, 1.25, 1.5, 5) && within(slowdown.e2e, 1.25, 1.5, 5);
}

struct SplitwiseSeeds {
  int met = 0;
  int seeds = 20;
  double mean_ttft_p90 = 0;  // slowdown, mean over seeds; the objective is 3
};
// `dispatch`: as in a SCENARIO file, "jsq" or "jsq-tokens".
[[nodiscard]] Result<SplitwiseSeeds> splitwise_seeds(const std::string& data, int prompt_machines, const std::string& dispatch);

[[nodiscard]] Result<std::string> splitwise_cluster_table(const std::string& data);

}  // namespace windlass::bench
