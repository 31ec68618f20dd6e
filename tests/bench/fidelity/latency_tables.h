// The tables of docs/algorithms/latency.md on the linear, DistServe and profile models, as Markdown.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/base/result.h"

namespace windlass::bench {

struct LatencyTable {
  std::string name;  // of the block on the page, or of a chart ("latency-tpot-vllm.svg")
  std::function<Result<std::string>(const std::string& data)> make;
};

// `data`: ../shared/data or a folder with the same layout.
[[nodiscard]] const std::vector<LatencyTable>& latency_tables();

}  // namespace windlass::bench
