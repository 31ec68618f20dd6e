// heterogeneous_experiments: reproduces the papers' results on heterogeneous clusters. Reads ../shared/data and writes tables
// (NAME.md) and charts (NAME.svg) into a folder; `scripts/bench heterogeneous` copies them into docs/.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/console/thread_executor.h"
#include "tests/bench/heterogeneous/experiments.h"

namespace windlass::bench {
namespace {

struct Experiment {
  const char* name;
  Result<std::vector<HeterogeneousTable>> (*run)(const HeterogeneousOptions& options);
};

constexpr Experiment kExperiments[] = {
    {"hexgen2-convergence", hexgen2_convergence},  // first, because it reports the process's peak memory
    {"hexgen2", hexgen2_tables},
    {"hexgen2-calibration", hexgen2_calibration},
    {"huawei", huawei_tables},
    {"mix", mix_tables},
};

int run(HeterogeneousOptions options, const std::vector<std::string>& names, const std::filesystem::path& out) {
  std::filesystem::create_directories(out);
  cli::ThreadExecutor executor;
  options.executor = &executor;
  for (const Experiment& experiment : kExperiments) {
    if (!names.empty() && std::find(names.begin(), names.end(), experiment.name) == names.end()) continue;
    const auto begin = std::chrono::steady_clock::now();
    const auto tables = experiment.run(options);
    if (!tables.ok()) {
      std::cerr << fmt::format("heterogeneous_experiments: {}: {}\n", experiment.name, tables.error().message);
      return 1;
    }
    for (const HeterogeneousTable& table : *tables) std::ofstream(out / (table.name + "." + table.extension)) << table.text;
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::cerr << fmt::format("{}: {:.1f} s\n", experiment.name, seconds);
  }
  return 0;
}

}  // namespace
}  // namespace windlass::bench

int main(int argc, char** argv) {
  CLI::App app{"Reproduces the papers' results on heterogeneous clusters."};
  windlass::bench::HeterogeneousOptions options;
  options.data = "../shared/data";
  std::string out;
  std::vector<std::string> names, known;
  app.add_option("--data", options.data, "Folder with traces/ and profiles/")->capture_default_str();
  app.add_option("--scale", options.scale, "Factor on the number of random instances")
      ->capture_default_str()
      ->check(CLI::Range(0.001, 1.0));
  app.add_option("--out", out, "Folder for tables and charts")->required();
  for (const auto& experiment : windlass::bench::kExperiments) known.emplace_back(experiment.name);
  app.add_option("names", names, "What to reproduce; default: all")->check(CLI::IsMember(known));
  CLI11_PARSE(app, argc, argv);
  return windlass::bench::run(options, names, out);
}
