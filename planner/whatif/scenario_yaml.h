// Reads scenario files. They have three forms:
//
//   a simulation  `windlass simulate`: services, each with a `cluster` of pools                  docs/simulate.md
//   a plan        `windlass plan`: one service, `accelerators` to choose among, a `network`      docs/plan.md
//   a cluster     `windlass plan`: one service, and a `cluster` of nodes and links               docs/plan.md
//
// A form is a list of sections (scenario_yaml.cc). A section is read the same way in all forms that have it. Errors are
// "SOURCE:LINE: FIELD: RULE". Names of models are looked up in the catalog, names of accelerators first among the caller's
// AcceleratorClasses. The input is untrusted: errors are values. Pure.
#pragma once

#include <string>
#include <string_view>

#include "planner/base/result.h"
#include "planner/base/yaml_tree.h"
#include "planner/catalog/known_accelerators.h"
#include "planner/whatif/scenario.h"

namespace windlass::sim {

enum class ScenarioForm { kSimulation, kPlan, kCluster };

// Determined by the file's sections.
[[nodiscard]] ScenarioForm form_of(const YamlValue& file);

// Parses a simulation. parse_plan_scenario() and parse_cluster_scenario() are declared with their types.
[[nodiscard]] Result<Scenario> parse_scenario(std::string_view yaml, const std::string& source,
                                              const planner::KnownAccelerators& known = {});

}  // namespace windlass::sim
