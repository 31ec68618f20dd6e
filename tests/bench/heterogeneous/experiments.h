// The papers' results on heterogeneous clusters: a function a paper, which gives tables for docs/algorithms.
#pragma once

#include <string>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"

namespace windlass::bench {

// A table's name is its place in docs/algorithms/PAPER.md: PAPER-WHAT; a chart's (extension "svg") its file in
// docs/algorithms/PAPER/.
struct HeterogeneousTable {
  std::string name;
  std::string text;
  std::string extension = "md";
};

struct HeterogeneousOptions {
  std::string data;              // the folder that ../shared/data/README.md describes
  Executor* executor = nullptr;  // borrowed
  double scale = 1;              // of the numbers of random instances: 1 is what docs/algorithms show
};

// Errors: data that cannot be read, a plan that cannot be made.
[[nodiscard]] Result<std::vector<HeterogeneousTable>> hexgen2_tables(const HeterogeneousOptions& options);
[[nodiscard]] Result<std::vector<HeterogeneousTable>> huawei_tables(const HeterogeneousOptions& options);
[[nodiscard]] Result<std::vector<HeterogeneousTable>> mix_tables(const HeterogeneousOptions& options);

}  // namespace windlass::bench
