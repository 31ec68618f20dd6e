// chain_experiments: runs the experiments of docs/algorithms/chains.md. Reads ../shared/data and writes tables (NAME.md) and
// charts (NAME.svg) into a folder; `scripts/bench chains` copies them into docs/.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tests/bench/chains/experiments.h"

namespace windlass::bench {
namespace {

struct Experiment {
  const char* name;
  Report (*run)(const Inputs&);
};

constexpr Experiment kExperiments[] = {{"placement", placement_experiment},
                                       {"cache", cache_experiment},
                                       {"policies", policy_experiment},
                                       {"capacity", capacity_experiment},
                                       {"overall", overall_experiment},
                                       {"petals", petals_experiment},
                                       {"trace", trace_experiment},
                                       {"block-counts", block_counts_experiment},
                                       {"petals-fig8", petals_fig8_experiment},
                                       {"petals-published", petals_published_experiment}};

Result<std::string> read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file)
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: must be a readable file; ../shared/data/README.md lists the data", path)};
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

Result<Inputs> read_inputs(const std::string& data, Scale scale) {
  const std::string topology = data + "/topology/LearningDataset_RTT_RipeAtlasEU.csv",
                    code = data + "/traces/AzureLLMInferenceTrace_code.csv";
  WINDLASS_ASSIGN_OR_RETURN(const std::string network_text, read_file(topology));
  auto network = RipeNetwork::parse(network_text);
  if (!network.ok()) return network.error().within(topology);
  WINDLASS_ASSIGN_OR_RETURN(const std::string trace_text, read_file(code));
  auto trace = workload::parse_azure_trace(trace_text);
  if (!trace.ok()) return trace.error().within(code);
  Inputs inputs{std::move(network).value(), std::move(trace).value(), scale, {}};
  for (const char* name : kGraphs) {
    const std::string path = fmt::format("{}/topology/{}.graph", data, name);
    WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_file(path));
    auto graph = parse_repetita(text);
    if (!graph.ok()) return graph.error().within(path);
    inputs.graphs[name] = std::move(graph).value();
  }
  return inputs;
}

int run(const Inputs& inputs, const std::vector<std::string>& names, const std::filesystem::path& out) {
  std::filesystem::create_directories(out);
  for (const Experiment& experiment : kExperiments) {
    if (!names.empty() && std::find(names.begin(), names.end(), experiment.name) == names.end()) continue;
    const auto begin = std::chrono::steady_clock::now();
    const Report report = experiment.run(inputs);
    std::ofstream(out / (std::string(experiment.name) + ".md")) << report.tables;
    for (const Report::Figure& figure : report.figures) std::ofstream(out / (figure.file + ".svg")) << svg_of(figure.chart);
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    std::cerr << fmt::format("{}: {:.1f} s\n", experiment.name, seconds);
  }
  return 0;
}

}  // namespace
}  // namespace windlass::bench

int main(int argc, char** argv) {
  CLI::App app{"Reproduces the results of the papers on server chains."};
  std::string data = "../shared/data", out;
  windlass::bench::Scale scale;
  std::vector<std::string> names;
  app.add_option("--data", data, "Folder with topology/ and traces/")->capture_default_str();
  app.add_option("--out", out, "Folder for tables and charts")->required();
  app.add_option("--seeds", scale.seeds, "Number of random sets of places")->check(CLI::Range(2, 1000))->capture_default_str();
  app.add_option("--requests", scale.requests, "Measured requests per seed and point")
      ->check(CLI::Range(1000, 100'000'000))
      ->capture_default_str();
  std::vector<std::string> known;
  for (const auto& experiment : windlass::bench::kExperiments) known.emplace_back(experiment.name);
  app.add_option("names", names, "Experiments to run; default: all")->check(CLI::IsMember(known));
  CLI11_PARSE(app, argc, argv);
  const auto inputs = windlass::bench::read_inputs(data, scale);
  if (!inputs.ok()) {
    std::cerr << "chain_experiments: " << inputs.error().message << "\n";
    return 1;
  }
  return windlass::bench::run(*inputs, names, out);
}
