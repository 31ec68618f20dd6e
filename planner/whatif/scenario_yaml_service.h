// ServiceReader: reads what a SCENARIO says of one model into a ScenarioService: the parts of scenario_yaml.h, a file each.
//
// The first mistake in the order of reading is the one that is told (planner/base/yaml_reader.h). Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/yaml_reader.h"
#include "planner/whatif/scenario.h"

namespace windlass::sim {

// What a scenario says of the whole run, as far as its services must know.
struct RunNeeds {
  bool workers_start = false;  // during the run
  bool autoscaled = false;
};

inline constexpr double kYear_s = 366 * 86400.0;

// `accelerator`, a name of the catalog, as its data sheet.
[[nodiscard]] std::optional<planner::AcceleratorSpec> read_accelerator(YamlReader& reader, YamlMistake& mistake);

class ServiceReader {
 public:
  // Borrows all three.
  ServiceReader(ScenarioService& service, std::vector<std::string>& defaults, YamlMistake& mistake)
      : service_(service), defaults_(defaults), mistake_(mistake) {}

  // `read_run` reads the keys of `cluster` that are of the whole run.
  void read(YamlReader& reader, const std::function<RunNeeds(YamlReader& cluster)>& read_run);

  // What a plan is asked for (planner/whatif/plan_scenario.h): no cluster, but `accelerators` to choose among, which become
  // pools of one GPU each; the workload needs no end, and parallelism is for the search to choose.
  void read_for_plan(YamlReader& reader);
  // The same where another part of the file says which accelerators there are: `field` is what it is called in messages, and
  // `read_choices` reads it and gives the pools. Without `latency`: data sheets (roofline).
  void read_for_plan(YamlReader& reader, const std::string& field,
                     const std::function<std::vector<ScenarioPool>()>& read_choices);

 private:
  void read_parts_for_plan(YamlReader& reader, const std::function<void()>& read_choices);
  void read_parts(YamlReader& reader, const std::function<void()>& read_workers);
  void read_choices(YamlReader& reader);
  // Tells the value that is taken for a key that is not there.
  void note(YamlReader& reader, const char* key, const std::string& value) {
    if (reader.find(key) == nullptr) defaults_.push_back(reader.path_of(key) + ": " + value);
  }
  [[nodiscard]] std::string at(const char* field) const { return service_.prefix + field; }
  std::int64_t noted_whole(YamlReader& reader, const char* key, std::int64_t low, std::int64_t high, std::int64_t otherwise);
  double noted_number(YamlReader& reader, const char* key, NumberRange range, double otherwise);
  double noted_duration_s(YamlReader& reader, const char* key, NumberRange range_s, double otherwise_s);
  std::size_t noted_choice(YamlReader& reader, const char* key, std::span<const char* const> allowed, std::size_t otherwise);

  void read_model(const YamlValue& value);
  void read_latency(const YamlValue& value);
  void read_latency_files(YamlReader& reader);
  void read_parallelism(YamlReader& reader);
  void read_cpu(YamlReader& reader);

  void read_workload(const YamlValue& value);
  void read_lengths(YamlReader& reader, const YamlValue& value);
  std::optional<workload::TokenDistribution> read_distribution(YamlReader& parent, const char* key);
  void read_arrivals(YamlReader& reader, const YamlValue& value);
  const YamlValue* field_of(YamlReader& reader, const char* key, bool wanted, const char* kind, std::string_view allowed);
  void read_diurnal(const YamlValue& value);
  void read_states(const YamlValue& value);
  void read_prefixes(const YamlValue& value);

  void read_cluster(const YamlValue& value, const std::function<RunNeeds(YamlReader& cluster)>& read_run);
  void read_pools(YamlReader& reader);
  int read_gpus(YamlReader& reader);
  void read_link(const YamlValue& value);
  void read_start(YamlReader& reader);
  void read_reference(const YamlValue& value);

  void read_scheduling(const YamlValue& value);
  void read_dispatch(YamlReader& reader);
  void read_preemption(YamlReader& reader);
  void read_prompt_order(YamlReader& reader);
  void read_decodes(YamlReader& reader);
  void read_mixed_pool(YamlReader& reader);
  void read_slo(const YamlValue& value);
  void read_scaling(const YamlValue& value);

  void check_together();
  [[nodiscard]] bool two_roles() const {
    return !service_.pools.empty() && service_.pools.front().role != dispatch::Role::kUnified;
  }

  ScenarioService& service_;
  std::vector<std::string>& defaults_;
  YamlMistake& mistake_;
  std::optional<int> tensor_parallel_;
  RunNeeds needs_;
  bool for_plan_ = false;
  bool latency_may_miss_ = false;
  std::string pools_field_ = "cluster.pools";
};

}  // namespace windlass::sim
