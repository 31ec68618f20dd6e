// HexGen (Jiang et al., ICML 2024): groups of heterogeneous GPUs that do prefill and decode on the same GPUs. HexGen-2 is
// compared with it (Section 5.1, Table 3).
//
// The cost model, the parallel strategies and the genetic search over groups are HexGen's. A group alternates between single
// prompts and decode in the largest batch that fits: 1 / (prefill + decode / batch) requests/s, with the same strategy for both
// phases. HexGen's objective is the share of requests within a deadline. If arrivals saturate the cluster, as in the
// comparison, that share grows with the sum of the groups' requests/s, which is the objective here. Pure.
#pragma once

#include <cstdint>

#include "planner/strategies/hexgen2/hexgen2.h"

namespace windlass::hetero {

struct HexgenOptions {
  double memory_share = 0.9;
  int chains = 2;
  std::int64_t idle = 20'000;  // offspring in a row without improvement before the search ends
};

// The search alone; Scheduled::flow is the sum of the groups' capacities, units. Errors as in hexgen2_schedule().
[[nodiscard]] Result<Scheduled> hexgen_schedule(const GpuCluster& cluster, const InferenceTask& task, std::uint64_t seed,
                                                const search::Effort& effort, const HexgenOptions& options = {});

[[nodiscard]] Result<Offer> hexgen_plan(const Problem& problem, const search::Effort& effort, const HexgenOptions& options);
[[nodiscard]] inline Result<Offer> hexgen_plan(const Problem& problem, const search::Effort& effort) {
  return hexgen_plan(problem, effort, {});
}

}  // namespace windlass::hetero
