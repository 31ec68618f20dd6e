// Reads the YAML of a PlanScenario, for files that say elsewhere than in `accelerators` what a plan may use: a CLUSTER file's
// nodes (planner/whatif/cluster_scenario.h). Foreign bytes: errors are values. Pure.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "planner/base/yaml_reader.h"
#include "planner/whatif/plan_scenario.h"

namespace windlass::search {

struct AcceleratorsElsewhere {
  std::string field;  // what holds them: "cluster.nodes"
  struct Found {
    std::vector<sim::ScenarioPool> accelerators;  // each once; `workers` is how many GPUs there are
    PlanNetwork network;
  };
  // Reads its keys of the whole file, and adds to the defaults what it takes for others. Mistakes go to the last argument.
  std::function<Found(YamlReader& file, std::vector<std::string>& defaults, YamlMistake& mistake)> read;
};

// Null: the file has `accelerators` and may have `network`, as parse_plan_scenario() reads it. Otherwise these are refused, and
// `latency` may be left out: data sheets (roofline).
[[nodiscard]] Result<PlanScenario> read_plan_scenario(const YamlValue& root, const std::string& source,
                                                      const AcceleratorsElsewhere* elsewhere);

}  // namespace windlass::search
