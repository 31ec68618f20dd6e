// outcome_experiment: attainment and GPU-hours of Windlass against other autoscaling rules, in the serving simulator. Reads
// ../shared/data. Writes outcome.md, outcome.svg and WORKLOAD.RULE.tsv (a run minute by minute) into a folder; `scripts/bench
// outcome` copies table and chart into docs/.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>
#include <optional>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/console/thread_executor.h"
#include "tests/bench/outcome/report.h"

namespace windlass::bench {
namespace {

constexpr const char* kOverTime = "day";  // the workload whose workers are plotted over time

// Writes a run to a file: its figures, then one line per minute. read_run() reads it back.
void write_run(const OutcomeRun& run, const std::filesystem::path& path) {
  std::ofstream file(path);
  file << fmt::format("attained\tgpu_hours\tttft_p99_s\ttpot_p99_s\tmost_workers\n{}\t{}\t{}\t{}\t{}\n", run.attainment,
                      run.gpu_hours, run.ttft_p99_s, run.tpot_p99_s, run.max_workers);
  file << "minute\tarrived\tmissed_ttft\tmissed_tpot\tready\theld\n";
  for (std::size_t i = 0; i < run.minutes.size(); ++i) {
    const OutcomeMinute& m = run.minutes[i];
    file << fmt::format("{}\t{}\t{}\t{}\t{:.1f}\t{:.1f}\n", i, m.arrived, m.missed_ttft, m.missed_tpot, m.ready, m.held);
  }
}

// nullopt if the file is missing or has another format.
std::optional<OutcomeRun> read_run(const std::string& rule, const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string header;
  OutcomeRun run;
  run.rule = rule;
  if (!std::getline(file, header) || header.rfind("attained\t", 0) != 0) return std::nullopt;
  if (!(file >> run.attainment >> run.gpu_hours >> run.ttft_p99_s >> run.tpot_p99_s >> run.max_workers)) return std::nullopt;
  std::getline(file, header);
  std::getline(file, header);
  std::size_t minute = 0;
  OutcomeMinute m;
  while (file >> minute >> m.arrived >> m.missed_ttft >> m.missed_tpot >> m.ready >> m.held) run.minutes.push_back(m);
  return run;
}

void write_decisions(const OutcomeRun& run, const std::filesystem::path& path) {
  std::ofstream file(path);
  for (const auto& decision : run.decisions) {
    file << fmt::format("{:.0f} s: {} x {}\n", decision.time_s, decision.workers, decision.pool);
    for (const auto& reason : decision.reasons) file << fmt::format("    {}: {}\n", reason.code, reason.message);
  }
}

int run(const std::string& data, const std::filesystem::path& out, const std::vector<std::string>& only,
        const std::vector<std::string>& rules, std::uint64_t seed, int threads) {
  const auto workloads = outcome_workloads(data, seed);
  if (!workloads.ok()) {
    std::cerr << "outcome_experiment: " << workloads.error().message << "\n";
    return 1;
  }
  std::filesystem::create_directories(out);
  struct Task {
    std::size_t row;
    std::string rule;
  };
  std::vector<OutcomeSetting> settings;
  settings.reserve(workloads->size());
  std::vector<OutcomeRow> rows;
  std::vector<Task> tasks;
  for (const OutcomeWorkload& workload : *workloads) {
    if (!only.empty() && std::find(only.begin(), only.end(), workload.name) == only.end()) continue;
    auto setting = OutcomeSetting::make(workload);
    if (!setting.ok()) {
      std::cerr << "outcome_experiment: " << workload.name << ": " << setting.error().message << "\n";
      return 1;
    }
    settings.push_back(std::move(setting).value());
    const OutcomeSetting& s = settings.back();
    std::cerr << fmt::format(
        "{}: {} requests, {:.1f}/s, {:.0f} + {:.0f} tokens; {} with {} slots serves {:.2f}/s; begins with {}, at most {}\n",
        workload.name, workload.requests.size(), workload.rate_per_s(), workload.lengths.input_tokens,
        workload.lengths.output_tokens, s.pool.name, s.slots, s.worker_per_s, s.first_workers, s.max_workers);
    for (const std::string& rule : rules) tasks.push_back({rows.size(), rule});
    rows.push_back({&workload, &s, {}});
  }
  // The longest first, so that no core waits long for the last one.
  std::stable_sort(tasks.begin(), tasks.end(),
                   [](const Task& a, const Task& b) { return (a.rule == "clairvoyant") > (b.rule == "clairvoyant"); });
  cli::ThreadExecutor executor(threads);
  std::mutex mutex;
  const auto runs = parallel_map<Result<OutcomeRun>>(executor, tasks.size(), [&](std::size_t i) {
    const OutcomeRow& row = rows[tasks[i].row];
    const auto begin = std::chrono::steady_clock::now();
    auto run = run_rule(tasks[i].rule, *row.workload, *row.setting);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::lock_guard lock(mutex);
    if (run.ok())
      std::cerr << fmt::format("{:13} {:12} {:6.2f} % attained, {:7.1f} GPU-hours, {:5.1f} s\n", row.workload->name,
                               tasks[i].rule, run->attainment * 100, run->gpu_hours, seconds);
    return run;
  });
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    OutcomeRow& row = rows[tasks[i].row];
    const auto& run = (*runs)[i];
    if (!run.ok()) {
      std::cerr << "outcome_experiment: " << tasks[i].rule << ": " << run.error().message << "\n";
      return 1;
    }
    const std::string name = row.workload->name + "." + tasks[i].rule;
    write_run(*run, out / (name + ".tsv"));
    if (!run->decisions.empty()) write_decisions(*run, out / (name + ".decisions.txt"));
    row.runs.push_back(*run);
  }
  for (OutcomeRow& row : rows) {
    std::vector<OutcomeRun> ordered;
    for (const std::string& rule : outcome_rules()) {
      const auto made = std::find_if(row.runs.begin(), row.runs.end(), [&](const OutcomeRun& r) { return r.rule == rule; });
      if (made != row.runs.end()) {
        ordered.push_back(std::move(*made));
      } else if (auto kept = read_run(rule, out / (row.workload->name + "." + rule + ".tsv"))) {
        ordered.push_back(std::move(*kept));
      }
    }
    row.runs = std::move(ordered);
  }
  std::ofstream(out / "outcome.md") << outcome_table(rows);
  std::ofstream(out / "outcome.svg") << outcome_chart(rows, kOverTime);
  return 0;
}

}  // namespace
}  // namespace windlass::bench

int main(int argc, char** argv) {
  CLI::App app{"Attainment and GPU-hours of Windlass against other rules."};
  std::string data = "../shared/data", out;
  std::vector<std::string> workloads, rules = windlass::bench::outcome_rules();
  std::uint64_t seed = windlass::bench::kSeed;
  int threads = 0;
  app.add_option("--data", data, "Folder with traces/")->capture_default_str();
  app.add_option("--out", out, "Folder for tables and charts")->required();
  app.add_option("--rules", rules, "Rules to run; table and chart show the other rules from an earlier run's files in OUT")
      ->check(CLI::IsMember(windlass::bench::outcome_rules()));
  app.add_option("--seed", seed, "Seed of arrivals and lengths; the tables in docs/ use the default")->capture_default_str();
  app.add_option("--threads", threads, "Number of threads; 0: one per core")->capture_default_str();
  app.add_option("workloads", workloads, "Workloads to run; default: all");
  CLI11_PARSE(app, argc, argv);
  return windlass::bench::run(data, out, workloads, rules, seed, threads);
}
