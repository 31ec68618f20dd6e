// The sections of scenario files. Each is read by one function in every form of the file (scenario_yaml.h). Their fields are
// tables (planner/base/yaml_table.h). Pure.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/yaml_table.h"
#include "planner/catalog/catalog_yaml.h"
#include "planner/whatif/cluster_scenario.h"
#include "planner/whatif/scenario.h"
#include "planner/whatif/scenario_yaml.h"

namespace windlass::sim {

using planner::has_data_sheet, planner::read_accelerator, planner::refuse_name;
using yaml::choice, yaml::duration, yaml::flag, yaml::hook, yaml::list, yaml::map, yaml::number, yaml::only, yaml::part,
    yaml::preset, yaml::section, yaml::text, yaml::when, yaml::whole;

inline constexpr double kYear_s = 366 * 86400.0;
inline constexpr double kGiga = 1e9;
inline constexpr NumberRange kGBps{1e-6, 1e6};
inline constexpr NumberRange kLatency_s{0, 60};
inline constexpr NumberRange kPrice{0, 1e6};
inline constexpr NumberRange kBudget{1e-6, 1e9};
inline constexpr std::array kTransfers = {"serialised", "layerwise"};

// What is being filled in, and what sections need to know about each other.
struct Reading {
  ScenarioForm form;
  hetero::ClusterScenario& file;
  const planner::KnownAccelerators& known;
  ScenarioService* service = nullptr;  // the service being read
  bool one_service = true;             // at the top of the file, not in a list
  bool workers_start = false;          // workers start during the run
  bool autoscaled = false;
  std::optional<int> tensor_parallel = {};  // from the service's latency

  [[nodiscard]] search::PlanScenario& plan() const { return file.plan; }
  [[nodiscard]] Scenario& scenario() const { return file.plan.scenario; }
  [[nodiscard]] bool for_plan() const { return form != ScenarioForm::kSimulation; }
  [[nodiscard]] bool two_roles() const {
    return !service->pools.empty() && service->pools.front().role != dispatch::Role::kUnified;
  }
};

// Reads its key of a file, or of one service in a file.
using ReadSection = void (*)(YamlReader& parent, Reading& reading);

void read_model(YamlReader& parent, Reading& reading);
void read_latency(YamlReader& parent, Reading& reading);
void read_workload(YamlReader& parent, Reading& reading);
// The service's hardware: pools of workers, accelerators to choose among, or nodes and links.
void read_pools(YamlReader& parent, Reading& reading);
void read_accelerators(YamlReader& parent, Reading& reading);
void read_nodes(YamlReader& parent, Reading& reading);
void read_scheduling(YamlReader& parent, Reading& reading);
void read_slo(YamlReader& parent, Reading& reading);
void read_reference(YamlReader& parent, Reading& reading);
void read_scaling(YamlReader& parent, Reading& reading);
// Checks the sections above against each other.
void check_service(YamlReader& parent, Reading& reading);
void read_search(YamlReader& parent, Reading& reading);
void read_network(YamlReader& parent, Reading& reading);
void read_limits(YamlReader& parent, Reading& reading);

// The keys of `cluster` that apply to the whole run: failures and autoscaling.
void read_run(YamlReader& cluster, Reading& reading);

// A map from names of accelerators to values. check_service() checks the names, which may be those of pools.
template <class Value, class Rule>
struct ByAccelerator {
  Rule rule;

  [[nodiscard]] std::map<std::string, Value> read(YamlReader& reader, const char* key) const {
    std::map<std::string, Value> values;
    YamlReader fields = reader.inside(key, *reader.find(key));
    for (const YamlMember& member : fields.members()) {
      values[member.key] = static_cast<Value>(rule.read(fields, member.key.c_str()));
    }
    return values;
  }
};
template <class Owner, class Value, class Rule>
[[nodiscard]] auto by_accelerator(const char* key, std::map<std::string, Value> Owner::*member, Rule rule) {
  return yaml::Field<Owner, std::map<std::string, Value>, ByAccelerator<Value, Rule>>{key, member, {rule}};
}

}  // namespace windlass::sim
