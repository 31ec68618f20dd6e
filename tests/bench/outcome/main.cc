// outcome_experiment: attainment and GPU-hours of Windlass against other rules, in the serving simulator. Reads ../shared/data,
// writes outcome.md, outcome.svg and, for a look at a rule minute by minute, WORKLOAD.RULE.tsv into a folder; `scripts/bench
// outcome` puts table and chart into docs/.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <mutex>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/thread_executor.h"
#include "tests/bench/outcome/run.h"

namespace windlass::bench {
namespace {

void write_minutes(const OutcomeRun& run, const std::filesystem::path& path) {
  std::ofstream file(path);
  file << "minute\tarrived\tmissed_ttft\tmissed_tpot\tready\theld\n";
  for (std::size_t i = 0; i < run.minutes.size(); ++i) {
    const OutcomeMinute& m = run.minutes[i];
    file << fmt::format("{}\t{}\t{}\t{}\t{:.1f}\t{:.1f}\n", i, m.arrived, m.missed_ttft, m.missed_tpot, m.ready, m.held);
  }
}

void write_decisions(const OutcomeRun& run, const std::filesystem::path& path) {
  std::ofstream file(path);
  for (const auto& decision : run.decisions) {
    file << fmt::format("{:.0f} s: {} x {}\n", decision.time_s, decision.workers, decision.pool);
    for (const auto& reason : decision.reasons) file << fmt::format("    {}: {}\n", reason.code, reason.message);
  }
}

int run(const std::string& data, const std::filesystem::path& out, const std::vector<std::string>& only,
        const std::vector<std::string>& rules, int threads) {
  const auto workloads = outcome_workloads(data);
  if (!workloads.ok()) {
    std::cerr << "outcome_experiment: " << workloads.error().message << "\n";
    return 1;
  }
  std::filesystem::create_directories(out);
  struct Task {
    const OutcomeWorkload* workload;
    const OutcomeSetting* setting;
    std::string rule;
  };
  std::vector<OutcomeSetting> settings;
  settings.reserve(workloads->size());
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
    const double floor_hours = s.pool.gpus_per_worker / 3600.0 *
                               sim::work_floor_s(workload.requests, s.coefficients, s.pool.engine.max_sequences, kAttainment);
    std::cerr << fmt::format(
        "{}: {} requests, {:.2f}/s, {:.0f}+{:.0f} tokens, pool {} slots {} max {} worker {:.2f}/s first {} floor {:.1f}\n",
        workload.name, workload.requests.size(), workload.rate_per_s(), workload.lengths.input_tokens,
        workload.lengths.output_tokens, s.pool.name, s.slots, s.pool.engine.max_sequences, s.worker_per_s, s.first_workers,
        floor_hours);
    for (const std::string& rule : rules) tasks.push_back({&workload, &s, rule});
  }
  cli::ThreadExecutor executor(threads);
  std::mutex mutex;
  const auto runs = parallel_map<Result<OutcomeRun>>(executor, tasks.size(), [&](std::size_t i) {
    const auto begin = std::chrono::steady_clock::now();
    auto run = run_rule(tasks[i].rule, *tasks[i].workload, *tasks[i].setting);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const std::lock_guard lock(mutex);
    if (run.ok()) {
      std::cerr << fmt::format(
          "{:14} {:12} attained {:7.3f} %  GPU-hours {:8.1f}  TTFT P99 {:6.2f} s  TPOT P99 {:5.1f} ms  most {} ({:.1f} s)\n",
          tasks[i].workload->name, tasks[i].rule, run->attainment * 100, run->gpu_hours, run->ttft_p99_s, run->tpot_p99_s * 1e3,
          run->most_workers, seconds);
    }
    return run;
  });
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    const auto& run = (*runs)[i];
    if (!run.ok()) {
      std::cerr << "outcome_experiment: " << tasks[i].rule << ": " << run.error().message << "\n";
      return 1;
    }
    const std::string name = tasks[i].workload->name + "." + tasks[i].rule;
    write_minutes(*run, out / (name + ".tsv"));
    if (!run->decisions.empty()) write_decisions(*run, out / (name + ".decisions.txt"));
  }
  return 0;
}

}  // namespace
}  // namespace windlass::bench

int main(int argc, char** argv) {
  CLI::App app{"Attainment and GPU-hours of Windlass against other rules."};
  std::string data = "../shared/data", out;
  std::vector<std::string> workloads, rules = windlass::bench::outcome_rules();
  int threads = 0;
  app.add_option("--data", data, "Folder with traces/")->capture_default_str();
  app.add_option("--out", out, "Folder for tables and charts")->required();
  app.add_option("--rules", rules, "Which rules")->check(CLI::IsMember(windlass::bench::outcome_rules()));
  app.add_option("--threads", threads, "0: one a core")->capture_default_str();
  app.add_option("workloads", workloads, "Which workloads; all when none is named");
  CLI11_PARSE(app, argc, argv);
  return windlass::bench::run(data, out, workloads, rules, threads);
}
