// See scenario_yaml.h. Contains the forms and what applies to the whole file or run. The other sections are in
// scenario_yaml_*.cc, in the order of docs/simulate.md.
#include "planner/whatif/scenario_yaml.h"

#include <array>
#include <map>
#include <span>
#include <string>

#include <fmt/format.h>

#include "planner/base/foreign_text.h"
#include "planner/policy/tuning.h"
#include "planner/whatif/scenario_sections.h"

namespace windlass::sim {
namespace {

constexpr std::size_t kMaxServices = 100;
constexpr std::size_t kMaxFailures = 10'000;
// The policy treats older readings as stale (kSignalMaxAgeS), and a look may be a second older than requested.
constexpr double kMaxMetricsAge_s = planner::kSignalMaxAgeS - 1;

void refuse_in_plan(YamlReader& file, Reading&) {
  for (const char* key : {"services", "cluster"}) {
    file.refuse(key, "left out: a plan has one model, and chooses the cluster among `accelerators`");
  }
}

void refuse_in_cluster(YamlReader& file, Reading&) {
  for (const char* key : {"services", "accelerators", "network"}) {
    file.refuse(key, "left out: a plan has one model, and `cluster.nodes` lists what it may use");
  }
}

// The sections of a form. Forms differ only in these lists.
std::span<const ReadSection> sections_of(ScenarioForm form) {
  // clang-format off
  static constexpr std::array<ReadSection, 9> kSimulation = {
      read_model, read_latency, read_workload, read_pools,
      read_scheduling, read_slo, read_reference, read_scaling, check_service};
  static constexpr std::array<ReadSection, 13> kPlan = {
      refuse_in_plan, read_model, read_latency, read_workload, read_accelerators,
      read_scheduling, read_slo, read_reference, read_scaling, check_service, read_search, read_network, read_limits};
  static constexpr std::array<ReadSection, 12> kCluster = {
      refuse_in_cluster, read_model, read_latency, read_workload, read_nodes,
      read_scheduling, read_slo, read_reference, read_scaling, check_service, read_search, read_limits};
  // clang-format on
  if (form == ScenarioForm::kSimulation) return kSimulation;
  return form == ScenarioForm::kPlan ? std::span<const ReadSection>(kPlan) : kCluster;
}

void read_sections(YamlReader& reader, ScenarioService& service, Reading& reading) {
  service.line = reader.line();
  reading.service = &service;
  reading.tensor_parallel.reset();
  for (const ReadSection section : sections_of(reading.form)) section(reader, reading);
}

void check_name(YamlReader& reader, ScenarioService& service, Reading& reading) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  if (service.name.size() > 63 || service.name.find_first_not_of(kLetters) != std::string::npos) {
    reader.refuse("name", "a name of at most 63 letters, digits, dots, dashes and underscores");
  }
  for (const ScenarioService& other : reading.scenario().services) {
    if (&other == &service || other.name != service.name) continue;
    reader.wrong("name", fmt::format("must be unique (got '{}' a second time)", shown_text(service.name)));
  }
}

void read_listed(YamlReader& reader, ScenarioService& service, Reading& reading) {
  service.prefix = reader.path_of("");
  read_sections(reader, service, reading);
}

auto services_fields() {
  return map(
      section("cluster", map(hook(read_run))),
      list("services", &Scenario::services, kMaxServices, "maps with name, model, latency, workload and cluster",
           map(text("name", &ScenarioService::name, "a name of the service").required(), hook(check_name), hook(read_listed))));
}

auto failure_fields() {
  using At = WorkerFailures::At;
  const auto check = [](YamlReader& reader, WorkerFailures&) {
    if (reader.find("meanTimeBetween") != nullptr || reader.find("at") != nullptr) return;
    reader.wrong("must have meanTimeBetween, at, or both (got neither)");
  };
  return map(
      // Workers that fail faster than this never serve anything.
      duration("meanTimeBetween", &WorkerFailures::mean_time_between_s, {10, kYear_s}), hook(check),
      list("at", &WorkerFailures::at, kMaxFailures, "maps with time and worker",
           map(duration("time", &At::time_s, {0, kYear_s}).required(), whole("worker", &At::worker, 0, 1'000'000).required())),
      flag("restart", &WorkerFailures::restart).noted());
}

auto autoscaling_fields() {
  using Autoscaling = ScenarioAutoscaling;
  return map(duration("interval", &Autoscaling::interval_s, {0.01, kYear_s}).noted(),
             duration("metricsAge", &Autoscaling::metrics_age_s, {0, kMaxMetricsAge_s}).noted(),
             by_accelerator("gpus", &Autoscaling::gpus, yaml::Whole{0, kMaxWorkers}).noted("unlimited"));
}

// Checks the run's own fields against all services' workers.
void check_workers(YamlReader& file, const Scenario& scenario, const planner::KnownAccelerators& known) {
  std::map<std::string, int> gpus;  // at the start of the run, by accelerator
  int workers = 0;
  for (const ScenarioService& service : scenario.services) {
    for (const ScenarioPool& pool : service.pools) {
      gpus[pool.accelerator.name] += pool.workers * pool.gpus_per_worker;
      workers += pool.workers;
    }
  }
  if (const auto& autoscaling = scenario.autoscaling) {
    for (const auto& [accelerator, there_are] : autoscaling->gpus) {
      if (!gpus.contains(accelerator) && !known.find(accelerator)) {
        refuse_name(file, "cluster.autoscaling.gpus", autoscaling->line, accelerator, known.allowed());
      }
      if (gpus[accelerator] <= there_are) continue;
      file.wrong_at(
          autoscaling->line, "cluster.autoscaling.gpus." + accelerator,
          fmt::format("must be at least {}, the GPUs that the pools begin with (got {})", gpus[accelerator], there_are));
    }
  }
  const WorkerFailures& failures = scenario.failures;
  for (std::size_t i = 0; i < failures.at.size(); ++i) {
    const bool others_start = failures.restart || scenario.autoscaling.has_value();
    if (others_start || failures.at[i].worker < workers) continue;
    file.wrong_at(scenario.failures_line, fmt::format("cluster.failures.at[{}].worker", i),
                  fmt::format("must be from 0 to {}, because no worker starts during the run (got {})", workers - 1,
                              failures.at[i].worker));
  }
}

void check_file(YamlReader& file, const Reading& reading) {
  if (!reading.for_plan()) {
    check_workers(file, reading.scenario(), reading.known);
  } else if (!reading.service->slo && reading.plan().limits.empty()) {
    file.wrong("slo",
               "must be a map with timeToFirstToken, timePerOutputToken or both, unless there are `limits` (got nothing)");
  }
}

// A simulation fills only the plan's scenario; a plan fills everything but the cluster.
Result<hetero::ClusterScenario> read_scenario(std::string_view yaml, const std::string& source, ScenarioForm form,
                                              const planner::KnownAccelerators& known) {
  static const auto kServices = services_fields();
  static const auto kSeed = whole("seed", &Scenario::seed, 0, std::int64_t{1} << 53).noted();
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(yaml, source));
  hetero::ClusterScenario made;
  Reading reading{form, made, known};
  Scenario& scenario = reading.scenario();
  scenario.source = source;
  YamlMistake mistake;
  YamlReader file(root, "", mistake, &scenario.defaults);
  kSeed.read(file, scenario, reading);
  if (form == ScenarioForm::kSimulation && file.find("services") != nullptr) {
    reading.one_service = false;
    kServices.read(file, scenario, reading);
  } else {
    read_sections(file, scenario.services.emplace_back(), reading);
  }
  file.finish();
  if (file.ok()) check_file(file, reading);
  if (!file.ok()) return mistake.error(source);
  return made;
}

}  // namespace

void read_run(YamlReader& cluster, Reading& reading) {
  static const auto kFailures = section("failures", &Scenario::failures, failure_fields());
  static const auto kAutoscaling = section("autoscaling", &Scenario::autoscaling, autoscaling_fields());
  Scenario& scenario = reading.scenario();
  const auto* failures = cluster.find("failures");
  if (failures != nullptr) scenario.failures_line = failures->line;
  kFailures.read(cluster, scenario, reading);
  kAutoscaling.read(cluster, scenario, reading);
  reading.autoscaled = scenario.autoscaling.has_value();
  reading.workers_start = reading.autoscaled || (failures != nullptr && scenario.failures.restart);
}

ScenarioForm form_of(const YamlValue& file) {
  const YamlValue* cluster = member_of(file, "cluster");
  const auto has = [&](const char* key) { return cluster != nullptr && member_of(*cluster, key) != nullptr; };
  if (has("pools") || (member_of(file, "services") != nullptr && !has("nodes"))) return ScenarioForm::kSimulation;
  const bool is_map = cluster != nullptr && cluster->kind == YamlValue::Kind::kMap;
  return is_map ? ScenarioForm::kCluster : ScenarioForm::kPlan;
}

Result<Scenario> parse_scenario(std::string_view yaml, const std::string& source, const planner::KnownAccelerators& known) {
  WINDLASS_ASSIGN_OR_RETURN(auto made, read_scenario(yaml, source, ScenarioForm::kSimulation, known));
  return std::move(made.plan.scenario);
}

}  // namespace windlass::sim

namespace windlass::search {

Result<PlanScenario> parse_plan_scenario(std::string_view yaml, const std::string& source,
                                         const planner::KnownAccelerators& known) {
  WINDLASS_ASSIGN_OR_RETURN(auto made, sim::read_scenario(yaml, source, sim::ScenarioForm::kPlan, known));
  return std::move(made.plan);
}

}  // namespace windlass::search

namespace windlass::hetero {

Result<ClusterScenario> parse_cluster_scenario(std::string_view yaml, const std::string& source,
                                               const planner::KnownAccelerators& known) {
  return sim::read_scenario(yaml, source, sim::ScenarioForm::kCluster, known);
}

bool holds_cluster(std::string_view yaml) {
  const auto file = parse_yaml_tree(yaml, "");
  return file.ok() && sim::form_of(*file) == sim::ScenarioForm::kCluster;
}

}  // namespace windlass::hetero
