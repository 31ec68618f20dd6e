// Reproduces the papers' results on placement: one function per paper, which returns tables for docs/algorithms.
#pragma once

#include <string>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"

namespace windlass::bench {

// A table's name is its place in docs/algorithms/PAPER.md: PAPER-TABLE; a chart's (extension "svg") its file in
// docs/algorithms/PAPER/.
struct PlannerTable {
  std::string name;
  std::string text;
  std::string extension = "md";
};

// `data`: the folder described by ../shared/data/README.md. Fails if data cannot be read or a plan cannot be made.
[[nodiscard]] Result<std::vector<PlannerTable>> aladdin_tables(const std::string& data, Executor& executor);
[[nodiscard]] Result<std::vector<PlannerTable>> distserve_tables(const std::string& data, Executor& executor);
[[nodiscard]] Result<std::vector<PlannerTable>> splitwise_tables(const std::string& data, Executor& executor);
[[nodiscard]] Result<std::vector<PlannerTable>> tetriinfer_tables(const std::string& data, Executor& executor);
[[nodiscard]] Result<std::vector<PlannerTable>> vidur_tables(const std::string& data, Executor& executor);

}  // namespace windlass::bench
