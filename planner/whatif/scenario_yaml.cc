// See scenario_yaml.h. Here: what concerns the whole run; the parts of each service in scenario_yaml_*.cc, in the order of
// docs/simulate.md.
#include "planner/whatif/scenario_yaml.h"

#include <map>
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/base/foreign_text.h"
#include "planner/base/yaml_reader.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/policy/tuning.h"
#include "planner/whatif/scenario_yaml_service.h"

namespace windlass::sim {
namespace {

constexpr std::size_t kMaxServices = 100;
constexpr std::size_t kMaxFailures = 10'000;
// Older readings are stale for the policy (kSignalMaxAgeS), and a look may be a second younger than it is asked.
constexpr double kMaxMetricsAge_s = planner::kSignalMaxAgeS - 1;

bool is_name(std::string_view text) {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
  return !text.empty() && text.size() <= 63 && text.find_first_not_of(kLetters) == std::string_view::npos;
}

class Parser {
 public:
  explicit Parser(const std::string& source) { scenario_.source = source; }

  Result<Scenario> parse(const YamlValue& root) {
    YamlReader reader(root, "", mistake_);
    if (reader.find("seed") == nullptr) scenario_.defaults.emplace_back("seed: 0");
    scenario_.seed = static_cast<std::uint64_t>(reader.whole("seed", 0, std::int64_t{1} << 53, 0));
    if (const auto* services = reader.find("services")) {
      RunNeeds needs;
      if (const auto* cluster = reader.find("cluster")) {
        YamlReader run(*cluster, "cluster", mistake_);
        needs = read_run(run);
        run.finish();
      }
      read_services(reader, *services, needs);
    } else {
      scenario_.services.emplace_back();
      scenario_.services.front().line = reader.line();
      ServiceReader(scenario_.services.front(), scenario_.defaults, mistake_).read(reader, [this](YamlReader& cluster) {
        return read_run(cluster);
      });
    }
    reader.finish();
    if (mistake_.what.empty()) check_workers();
    if (!mistake_.what.empty()) return mistake_.error(scenario_.source);
    return std::move(scenario_);
  }

 private:
  void read_services(YamlReader& reader, const YamlValue& services, const RunNeeds& needs) {
    if (services.kind != YamlValue::Kind::kList || services.items.empty() || services.items.size() > kMaxServices) {
      reader.refuse("services", services,
                    fmt::format("a list of 1 to {} maps with name, model, latency, workload and cluster", kMaxServices));
      return;
    }
    scenario_.services.reserve(services.items.size());
    for (std::size_t i = 0; i < services.items.size() && mistake_.what.empty(); ++i) {
      YamlReader fields(services.items[i], fmt::format("services[{}]", i), mistake_);
      ScenarioService& service = scenario_.services.emplace_back();
      service.line = services.items[i].line;
      service.prefix = fmt::format("services[{}].", i);
      service.name = fields.text("name", "a name of the service");
      if (const auto* name = fields.find("name"); name != nullptr && !is_name(service.name)) {
        fields.refuse("name", *name, "a name of at most 63 letters, digits, dots, dashes and underscores");
      }
      for (std::size_t j = 0; j < i; ++j) {
        if (scenario_.services[j].name != service.name) continue;
        mistake_.keep(fields.line(), fmt::format("services[{}].name: found '{}' a second time, allowed are different names", i,
                                                 shown_text(service.name)));
      }
      ServiceReader(service, scenario_.defaults, mistake_).read(fields, [&needs](YamlReader&) { return needs; });
      fields.finish();
    }
  }

  // What the run's own fields say of all services' workers.
  void check_workers() {
    std::map<std::string, int> gpus;  // that the run begins with, by accelerator
    int workers = 0;
    for (const ScenarioService& service : scenario_.services) {
      for (const ScenarioPool& pool : service.pools) {
        gpus[pool.accelerator.name] += pool.workers * pool.gpus_per_worker;
        workers += pool.workers;
      }
    }
    if (const auto& autoscaling = scenario_.autoscaling) {
      for (const auto& [accelerator, there_are] : autoscaling->gpus) {
        if (gpus[accelerator] <= there_are) continue;
        mistake_.keep(autoscaling->line,
                      fmt::format("cluster.autoscaling.gpus.{}: found {} beside pools that begin with {}, allowed are as many",
                                  accelerator, there_are, gpus[accelerator]));
      }
    }
    const WorkerFailures& failures = scenario_.failures;
    for (std::size_t i = 0; i < failures.at.size(); ++i) {
      const bool others_start = failures.restart || scenario_.autoscaling.has_value();
      if (others_start || failures.at[i].worker < workers) continue;
      mistake_.keep(scenario_.failures_line,
                    fmt::format("cluster.failures.at[{}].worker: found {}, allowed is 0 to {}: no worker is started in the run",
                                i, failures.at[i].worker, workers - 1));
    }
  }

  RunNeeds read_run(YamlReader& cluster) {
    const auto* failures = cluster.find("failures");
    if (failures != nullptr) read_failures(*failures, cluster.path_of("failures"));
    const auto* autoscaling = cluster.find("autoscaling");
    if (autoscaling != nullptr) read_autoscaling(*autoscaling, cluster.path_of("autoscaling"));
    return {(failures != nullptr && scenario_.failures.restart) || autoscaling != nullptr, autoscaling != nullptr};
  }

  void read_autoscaling(const YamlValue& value, const std::string& path) {
    YamlReader reader(value, path, mistake_);
    ScenarioAutoscaling autoscaling;
    autoscaling.line = value.line;
    const auto duration_s = [&](const char* key, NumberRange range_s, double otherwise_s) {
      if (reader.find(key) == nullptr) scenario_.defaults.push_back(reader.path_of(key) + ": " + duration_text(otherwise_s));
      return reader.duration_s(key, range_s, otherwise_s);
    };
    autoscaling.interval_s = duration_s("interval", {0.01, kYear_s}, autoscaling.interval_s);
    autoscaling.metrics_age_s = duration_s("metricsAge", {0, kMaxMetricsAge_s}, autoscaling.metrics_age_s);
    if (const auto* gpus = reader.find("gpus")) {
      YamlReader by_accelerator(*gpus, reader.path_of("gpus"), mistake_);
      for (const YamlMember& member : by_accelerator.members()) {
        autoscaling.gpus[member.key] = static_cast<int>(by_accelerator.whole(member.key.c_str(), 0, kMaxWorkers));
        if (planner::accelerator_by_name(member.key).ok()) continue;
        mistake_.keep(member.line, fmt::format("{}: found '{}', allowed is {}", reader.path_of("gpus"), shown_text(member.key),
                                               fmt::join(planner::accelerator_names(), ", ")));
      }
    } else {
      scenario_.defaults.push_back(reader.path_of("gpus") + ": as many as are asked for");
    }
    reader.finish();
    scenario_.autoscaling = std::move(autoscaling);
  }

  void read_failures(const YamlValue& value, const std::string& path) {
    YamlReader reader(value, path, mistake_);
    WorkerFailures& failures = scenario_.failures;
    scenario_.failures_line = value.line;
    const auto* mean = reader.find("meanTimeBetween");
    const auto* at = reader.find("at");
    // Workers that fail faster than this never serve anything.
    if (mean != nullptr) failures.mean_time_between_s = reader.duration_s("meanTimeBetween", {10, kYear_s});
    if (mean == nullptr && at == nullptr) {
      mistake_.keep(value.line, fmt::format("{}: found neither meanTimeBetween nor at, allowed is either or both", path));
    }
    const std::string allowed = fmt::format("a list of 1 to {} maps with time and worker", kMaxFailures);
    if (at != nullptr && (at->kind != YamlValue::Kind::kList || at->items.empty() || at->items.size() > kMaxFailures)) {
      reader.refuse("at", *at, allowed);
      at = nullptr;
    }
    for (std::size_t i = 0; at != nullptr && i < at->items.size(); ++i) {
      YamlReader fields(at->items[i], fmt::format("{}.at[{}]", path, i), mistake_);
      WorkerFailures::At failure;
      failure.time_s = fields.duration_s("time", {0, kYear_s});
      failure.worker = static_cast<int>(fields.whole("worker", 0, 1'000'000));
      fields.finish();
      failures.at.push_back(failure);
    }
    if (reader.find("restart") == nullptr) scenario_.defaults.push_back(reader.path_of("restart") + ": true");
    failures.restart = reader.flag("restart", true);
    reader.finish();
  }

  Scenario scenario_;
  YamlMistake mistake_;
};

}  // namespace

Result<Scenario> parse_scenario(std::string_view yaml, const std::string& source) {
  WINDLASS_ASSIGN_OR_RETURN(const YamlValue root, parse_yaml_tree(yaml, source));
  return Parser(source).parse(root);
}

}  // namespace windlass::sim
