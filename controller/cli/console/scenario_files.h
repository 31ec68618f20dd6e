// Reads the -f files of the commands that take one SCENARIO, CLUSTER or INSTANCE, and the files that a SCENARIO refers to.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/catalog/known_accelerators.h"
#include "planner/whatif/scenario.h"

namespace windlass::cli {

// One YAML document that is no Kubernetes object, and the accelerators that it may name.
struct ScenarioInput {
  std::string path;  // of its file
  std::string yaml;  // on the same lines as in the file; other documents are left out
  planner::KnownAccelerators accelerators;
};

// Whether the files hold anything but Kubernetes objects. `wanted` describes the expected files.
[[nodiscard]] Result<bool> holds_scenario(const std::vector<std::string>& paths, const std::string& wanted);

// Reads files that hold one document of the `wanted` kind and any number of AcceleratorClasses, in one file or in several.
[[nodiscard]] Result<ScenarioInput> read_scenario_input(const std::vector<std::string>& paths, const std::string& wanted);

// The text of each of sim::files_of(scenario), decompressed if gzipped, keyed by the path in the scenario. Relative paths start
// at the folder of `path`, the scenario's own file. The error names SCENARIO:LINE and the field of the first that cannot be
// read.
[[nodiscard]] Result<std::map<std::string, std::string>> read_scenario_files(const std::string& path,
                                                                             const sim::Scenario& scenario, Executor& executor);

}  // namespace windlass::cli
