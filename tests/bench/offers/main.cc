// offers_experiment: prints what every shipped ModelService, and random ones, cost by the controller, by `auto` and by each
// strategy, as a Markdown table. `scripts/bench offers` puts it into docs/benchmarks/offers.md.
#include <array>
#include <cstdint>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "controller/cli/console/object_files.h"
#include "tests/bench/offers/one_answer.h"

namespace windlass::bench {
namespace {

constexpr std::array kStrategies = {"aladdin", "vidur", "mix", "huawei", "distserve", "splitwise", "tetriinfer", "hexgen2"};

void print_row(const OneAnswer& answer) {
  std::map<std::string, std::string> costs;
  for (const planner::StrategyAnswer& one : answer.answers) {
    const bool misses = one.outcome.starts_with("misses") || one.outcome.starts_with("meets the objective for");
    const bool holds = !one.deployment.empty() && !misses && !one.outcome.starts_with("needs");
    costs[one.strategy] = holds ? fmt::format("{:.2f}", one.cost_per_hour) : "-";
  }
  std::string pools;
  for (const std::string& pool : answer.controller) pools += (pools.empty() ? "" : " + ") + pool;
  fmt::print("| {} | {:.2f} | {:.2f} | {:.2f} | {} |", answer.service, answer.closed_cost_per_hour,
             answer.controller_cost_per_hour, answer.preview_cost_per_hour,
             answer.auto_cost_per_hour ? fmt::format("{:.2f}", *answer.auto_cost_per_hour) : "-");
  for (const char* strategy : kStrategies) fmt::print(" {} |", costs.contains(strategy) ? costs[strategy] : "");
  fmt::print(" {} | {} |\n", answer.attainment ? fmt::format("{:.1f} %", 100 * *answer.attainment) : "-", pools);
}

int run(const std::vector<std::string>& files, int first, int random) {
  fmt::print("| service | closed forms | controller | `plan` | `auto` |");
  for (const char* strategy : kStrategies) fmt::print(" {} |", strategy);
  fmt::print(" attainment | the controller runs |\n|---|---:|---:|---:|---:|");
  for (std::size_t i = 0; i < kStrategies.size(); ++i) fmt::print("---:|");
  fmt::print("---:|---|\n");
  for (const std::string& file : files) {
    const auto objects = cli::read_object_files({file});
    if (!objects.ok()) {
      std::cerr << objects.error().message << "\n";
      return 1;
    }
    planner::Snapshot snapshot = cli::quiet_snapshot(*objects);
    cli::add_catalog_classes(snapshot);
    if (snapshot.services.size() == 1 && snapshot.services.front().shape) print_row(one_answer(snapshot));
  }
  for (int seed = first; seed < first + random; ++seed) print_row(one_answer(random_service(static_cast<std::uint64_t>(seed))));
  return 0;
}

}  // namespace
}  // namespace windlass::bench

int main(int argc, char** argv) {
  CLI::App app("Costs of services by the controller, by auto and by each strategy");
  std::vector<std::string> files;
  int first = 1, random = 20;
  app.add_option("files", files, "YAML files with one ModelService each")->check(CLI::ExistingFile);
  app.add_option("--random", random, "Number of random services")->check(CLI::Range(0, 10'000))->capture_default_str();
  app.add_option("--first", first, "Seed of the first random service")->check(CLI::Range(1, 10'000))->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return windlass::bench::run(files, first, random);
}
