// `windlass simulate`: simulates the serving system of a SCENARIO file, iteration by iteration.
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <ostream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/console/chain_choice.h"
#include "controller/cli/console/commands.h"
#include "controller/cli/console/progress_line.h"
#include "controller/cli/console/scenario_files.h"
#include "controller/cli/console/text_file.h"
#include "controller/cli/console/thread_executor.h"
#include "controller/cli/simulate/command_simulate_log.h"
#include "controller/cli/simulate/command_simulate_text.h"
#include "controller/cli/simulate/simulation_page.h"
#include "metrics/host/clock.h"
#include "metrics/host/whole_file.h"
#include "planner/whatif/scenario.h"
#include "planner/whatif/scenario_yaml.h"
#include "planner/whatif/serving_json.h"

namespace windlass::cli {
namespace {

constexpr int kSamples = 400;  // of the workers' state, while requests arrive
constexpr double kLeastSampleInterval_s = 0.01;

struct SimulateFlags {
  std::vector<std::string> files;
  std::optional<std::uint64_t> seed;
  int replications = 1;
  int jobs = 0;
  std::string output = "table";
  std::string report;
  std::string requests_csv;
};

// A progress line on stderr. Called from all threads that simulate.
class SimulateProgress {
 public:
  explicit SimulateProgress(Console& console) : line_(console) {}

  void expect(double requests) { expected_ = expected_ + requests; }
  void add(std::int64_t requests) {
    done_ += requests;
    line_.tell([&](double elapsed_s) {
      const auto done = static_cast<double>(done_.load());
      return fmt::format("{:.0f} of about {:.0f} requests, {:.0f}%, {:.0f} per second", done, expected_,
                         100 * std::min(1.0, done / expected_), done / elapsed_s);
    });
  }

 private:
  ProgressLine line_;
  double expected_ = 0;  // set before the threads start
  std::atomic<std::int64_t> done_{0};
};

Result<sim::PreparedScenario> read_scenario(const std::vector<std::string>& files, Executor& executor) {
  WINDLASS_ASSIGN_OR_RETURN(const ScenarioInput input,
                            read_scenario_input(files, "one SCENARIO with model, latency, workload and cluster"));
  WINDLASS_ASSIGN_OR_RETURN(sim::Scenario scenario, sim::parse_scenario(input.yaml, input.path, input.accelerators));
  WINDLASS_ASSIGN_OR_RETURN(const auto texts, read_scenario_files(input.path, scenario, executor));
  return sim::PreparedScenario::make(std::move(scenario), texts, &executor);
}

// The result of one run: one report per service, and the autoscaler's decisions.
struct Run {
  std::vector<sim::ServingResult> services;
  std::vector<sim::PolicyAutoscaler::Decision> decisions;
};

Result<Run> run_once(const sim::PreparedScenario& scenario, std::uint64_t seed, double rate_factor, SimulateProgress& progress,
                     RequestLog* log, planner::End end = planner::End::kExpected) {
  sim::ClusterOptions options = scenario.options(seed, end);
  std::int64_t before = 0;
  options.progress = [&](std::int64_t completed) { progress.add(completed - std::exchange(before, completed)); };
  if (log != nullptr) {
    options.observer = log;
    if (log->samples_wanted())
      options.sample_interval_s = std::max(kLeastSampleInterval_s, scenario.expected_duration_s() / kSamples);
  }
  const auto source = scenario.source(seed, rate_factor);
  const auto autoscaler = scenario.autoscaler(end);
  options.controller = autoscaler.get();
  auto results = sim::simulate_cluster(*source, options);
  if (!results.ok()) return results.error().within(scenario.scenario().source);
  if (autoscaler) WINDLASS_RETURN_IF_ERROR(autoscaler->problem());
  std::int64_t completed = 0;
  for (const sim::ServingResult& result : *results) completed += result.completed;
  progress.add(completed - before);
  Run run{std::move(results).value(), {}};
  if (autoscaler) run.decisions = autoscaler->decisions();
  return run;
}

// The progress of one replication, as a part of a sweep.
double expected_requests(const sim::PreparedScenario& scenario, bool sweep) {
  const double once = scenario.expected_requests();
  double all = once;
  for (const double factor : kRateFactors) {
    // Without a duration the number of requests is fixed, whatever the rate.
    if (sweep) all += scenario.ends_by_time() ? factor * once : once;
  }
  return all;
}

// All results, or the first error.
Result<std::vector<Run>> all_of(std::vector<Result<Run>> runs) {
  std::vector<Run> results;
  for (auto& run : runs) {
    if (!run.ok()) return run.error();
    results.push_back(std::move(run).value());
  }
  return results;
}

// The results of one service in every run.
std::vector<sim::ServingResult> of_service(const std::vector<Run>& runs, std::size_t service) {
  std::vector<sim::ServingResult> results;
  for (const Run& run : runs) results.push_back(run.services[service]);
  return results;
}

// Attainment at multiples of the scenario's rate, for each service with objectives.
Result<std::vector<std::vector<RatePoint>>> sweep_rates(const sim::PreparedScenario& scenario, const SimulateFlags& flags,
                                                        std::uint64_t seed, Executor& executor, SimulateProgress& progress) {
  const std::size_t factors = kRateFactors.size(), replications = static_cast<std::size_t>(flags.replications);
  WINDLASS_ASSIGN_OR_RETURN(auto runs, parallel_map<Result<Run>>(executor, factors * replications, [&](std::size_t i) {
                              return run_once(scenario, seed + i % replications, kRateFactors[i / replications], progress,
                                              nullptr);
                            }));
  WINDLASS_ASSIGN_OR_RETURN(const auto results, all_of(std::move(runs)));
  const auto& services = scenario.scenario().services;
  std::vector<std::vector<RatePoint>> points(services.size());
  for (std::size_t s = 0; s < services.size(); ++s) {
    for (std::size_t f = 0; f < factors && services[s].slo; ++f) {
      std::vector<double> attainments;
      for (std::size_t r = 0; r < replications; ++r)
        attainments.push_back(results[f * replications + r].services[s].attainment);
      points[s].push_back({scenario.requests_per_second(s) * kRateFactors[f], sim::mean_over_replications(attainments)});
    }
  }
  return points;
}

// Checked before minutes of simulation rather than after them.
Result<void> check_writable(const std::string& path) {
  if (path.empty()) return {};
  errno = 0;
  std::ofstream out(path, std::ios::binary | std::ios::app);
  if (out) return {};
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be a writable file ({})", path, std::strerror(errno))};
}

// The results of all runs.
struct Simulated {
  std::vector<Run> runs;  // one per replication
  std::vector<Run> ends;  // the first replication with shorter and with longer times; empty if one of them failed
  double wall_s = 0;      // of all of them
  std::vector<std::vector<RatePoint>> rates;
};

Result<Simulated> run_all(const sim::PreparedScenario& scenario, const SimulateFlags& flags, std::uint64_t seed,
                          std::vector<RequestLog>& logs, Console& console) {
  const auto& services = scenario.scenario().services;
  const bool judged = std::any_of(services.begin(), services.end(), [](const auto& service) { return service.slo; });
  const bool sweep = !flags.report.empty() && judged && scenario.rate_is_free();
  Simulated all{{}, {}, 0, std::vector<std::vector<RatePoint>>(services.size())};
  ThreadExecutor executor(flags.jobs);
  const double begin_s = monotonic_s();
  SimulateProgress progress(console);
  progress.expect(expected_requests(scenario, sweep) * flags.replications + 2 * scenario.expected_requests());
  // The replications, and the first one with shorter and with longer times.
  constexpr std::array kEnds = {planner::End::kShort, planner::End::kLong};
  WINDLASS_ASSIGN_OR_RETURN(auto runs, parallel_map<Result<Run>>(executor, logs.size() + kEnds.size(), [&](std::size_t r) {
                              if (r >= logs.size())
                                return run_once(scenario, seed, 1, progress, nullptr, kEnds[r - logs.size()]);
                              return run_once(scenario, seed + r, 1, progress, logs[r].wanted() ? &logs[r] : nullptr);
                            }));
  const auto ends = runs.begin() + static_cast<std::ptrdiff_t>(logs.size());
  if (std::all_of(ends, runs.end(), [](const Result<Run>& run) { return run.ok(); })) {
    for (auto end = ends; end != runs.end(); ++end) all.ends.push_back(std::move(*end).value());
  }
  runs.erase(ends, runs.end());
  WINDLASS_ASSIGN_OR_RETURN(all.runs, all_of(std::move(runs)));
  all.wall_s = monotonic_s() - begin_s;
  if (sweep) {
    WINDLASS_ASSIGN_OR_RETURN(all.rates, sweep_rates(scenario, flags, seed, executor, progress));
  }
  return all;
}

// One report per service.
Result<std::vector<sim::ServingReport>> reports_of(const sim::PreparedScenario& scenario, std::uint64_t seed,
                                                   const Simulated& all) {
  const auto& services = scenario.scenario().services;
  std::vector<sim::ServingReport> reports;
  for (std::size_t i = 0; i < services.size(); ++i) {
    const auto& slo = services[i].slo;
    reports.push_back(
        sim::report_of(of_service(all.runs, i), seed, slo ? std::optional(slo->percentile) : std::nullopt, all.wall_s));
    if (!all.ends.empty()) {
      add_intervals(reports.back(), all.runs.front().services[i], all.ends.front().services[i], all.ends.back().services[i],
                    scenario.provenance(i));
    }
    for (const auto& decision : all.runs.front().decisions) {
      if (decision.service == static_cast<int>(i)) reports.back().decisions.push_back(decision);
    }
    if (reports.back().requests > 0) continue;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}: {}workload.duration: must be long enough for one request at {:.4g} requests/s",
                             scenario.scenario().source, services[i].workload.line, services[i].prefix,
                             scenario.requests_per_second(i))};
  }
  return reports;
}

// The services' names; none if there is only one service.
std::vector<std::string> names_of(const sim::PreparedScenario& scenario) {
  const auto& services = scenario.scenario().services;
  std::vector<std::string> names;
  for (const auto& service : services) {
    if (services.size() > 1) names.push_back(service.name);
  }
  return names;
}

Result<void> simulate(const SimulateFlags& flags, Console& console) {
  ThreadExecutor executor(flags.jobs);
  WINDLASS_ASSIGN_OR_RETURN(const sim::PreparedScenario scenario, read_scenario(flags.files, executor));
  if (flags.replications > 1 && !scenario.random()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("--replications: must be 1 (got {}), since {} has no randomness",
                                                          flags.replications, scenario.scenario().source)};
  }
  WINDLASS_RETURN_IF_ERROR(check_writable(flags.requests_csv));
  WINDLASS_RETURN_IF_ERROR(check_writable(flags.report));
  const std::uint64_t seed = flags.seed.value_or(scenario.scenario().seed);
  std::vector<RequestLog> logs;
  logs.reserve(static_cast<std::size_t>(flags.replications));
  for (int r = 0; r < flags.replications; ++r) {
    logs.emplace_back(!flags.requests_csv.empty() || (r == 0 && !flags.report.empty()), r == 0 && !flags.report.empty());
  }
  WINDLASS_ASSIGN_OR_RETURN(const Simulated all, run_all(scenario, flags, seed, logs, console));
  WINDLASS_ASSIGN_OR_RETURN(const auto reports, reports_of(scenario, seed, all));
  const std::vector<std::string> names = names_of(scenario);
  if (!flags.requests_csv.empty()) WINDLASS_RETURN_IF_ERROR(write_whole_file(flags.requests_csv, requests_csv(logs, names)));
  if (!flags.report.empty()) {
    WINDLASS_RETURN_IF_ERROR(write_whole_file(
        flags.report, simulation_page(scenario.scenario().source, scenario, reports, logs.front(), all.rates)));
  }
  if (flags.output == "json") {
    auto json = names.empty() ? sim::to_json(reports.front()) : sim::to_json(reports, names);
    json["defaults"] = scenario.scenario().defaults;
    json["latencyModels"] = scenario.bases();
    console.out << json.dump(2) << "\n";
  } else {
    console.out << simulation_text(scenario, reports);
  }
  return {};
}

}  // namespace

void add_simulate(CLI::App& app, CommandContext& context) {
  auto* command = app.add_subcommand("simulate", "Simulate a serving system under a workload and print its latencies");
  auto flags = std::make_shared<SimulateFlags>();
  command
      ->add_option("-f,--file", flags->files,
                   "YAML file with model, latency, workload and cluster; AcceleratorClasses in it or in another -f")
      ->required()
      ->option_text("SCENARIO REQUIRED");
  command->add_option("--seed", flags->seed, "Seed of the first replication, each later one adds 1; overrides the file")
      ->check(whole_between(0, std::int64_t{1} << 53));
  command->add_option("--replications", flags->replications, "Runs with different seeds, for confidence intervals")
      ->check(whole_between(1, 10'000))
      ->capture_default_str();
  command->add_option("--jobs", flags->jobs, "Parallel runs; 0: one per core. The results do not depend on it")
      ->check(whole_between(0, 1024))
      ->capture_default_str();
  command->add_option("-o,--output", flags->output, "Output format: table or json")
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  command
      ->add_option("--report", flags->report,
                   "Write a page with plots to this file; with an slo, also simulates rates around the scenario's")
      ->option_text("FILE.html");
  command->add_option("--requests-csv", flags->requests_csv, "Write a line per request to this file")->option_text("FILE.csv");
  command->footer(
      "See docs/simulate.md for SCENARIO files and examples/simulate for examples. Exit code 2: the input is wrong, with file, "
      "line or field.");
  command->callback([&context, flags] {
    const auto done = simulate(*flags, context.console);
    if (!done.ok()) context.exit_code = report_chain_error(context.console.err, done.error());
  });
}

}  // namespace windlass::cli
