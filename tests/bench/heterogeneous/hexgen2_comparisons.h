// Compares HexGen-2's search with exhaustive search, its baselines, an upper bound and its run time: one table each.
#pragma once

#include <string>

#include "planner/base/executor.h"
#include "planner/base/result.h"

namespace windlass::bench {

// Appendix E's 4 H100 and 4 A100, four workloads, two models.
[[nodiscard]] Result<std::string> appendix_e_table();
// `count` random clusters of 3 to 8 GPUs against exhaustive search.
[[nodiscard]] Result<std::string> small_clusters_table(int count);
// Random clusters of 16 to 64 GPUs, `count` for each of three sizes, against the baselines with the same CPU time.
[[nodiscard]] Result<std::string> baselines_table(int count);
// Table 5; `largest`: include 4,096 GPUs. Memory is the process's peak so far.
[[nodiscard]] Result<std::string> convergence_table(Executor& executor, bool largest);

}  // namespace windlass::bench
