// Reproduces the papers' results on heterogeneous clusters: one function per paper, which returns tables for docs/algorithms.
#pragma once

#include <string>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"

namespace windlass::bench {

// A table's name is its place in docs/algorithms/PAPER.md: PAPER-TABLE; a chart's (extension "svg") its file in
// docs/algorithms/PAPER/.
struct HeterogeneousTable {
  std::string name;
  std::string text;
  std::string extension = "md";
};

struct HeterogeneousOptions {
  std::string data;              // the folder described by ../shared/data/README.md
  Executor* executor = nullptr;  // borrowed
  double scale = 1;              // factor on the number of random instances; docs/algorithms uses 1
};

// Fails if data cannot be read or a plan cannot be made.
[[nodiscard]] Result<std::vector<HeterogeneousTable>> hexgen2_convergence(const HeterogeneousOptions& options);
[[nodiscard]] Result<std::vector<HeterogeneousTable>> hexgen2_calibration(const HeterogeneousOptions& options);
[[nodiscard]] Result<std::vector<HeterogeneousTable>> hexgen2_tables(const HeterogeneousOptions& options);
[[nodiscard]] Result<std::vector<HeterogeneousTable>> huawei_tables(const HeterogeneousOptions& options);
[[nodiscard]] Result<std::vector<HeterogeneousTable>> mix_tables(const HeterogeneousOptions& options);

}  // namespace windlass::bench
