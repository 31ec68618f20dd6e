// closed_loop_experiment: simulates the control loop with workers that differ from their data sheet; prints Markdown tables.
// `scripts/bench loop --simulated` puts them into docs/control-loop-measured.md.
#include <algorithm>
#include <cstdint>
#include <iostream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "tests/bench/loop/closed_loop.h"

namespace windlass::bench {
namespace {

struct Figures {
  LoopCase of;
  LoopRun run, perfect;

  [[nodiscard]] double times_perfect() const { return run.worker_hours / perfect.worker_hours; }
};

Figures measure(const LoopCase& of, std::uint64_t seed) {
  LoopCase perfect = of;
  perfect.profiled = perfect.measures_itself = true;
  return {of, run_loop(of, seed, true), run_loop(perfect, seed)};
}

void print_decisions(const LoopRun& run) {
  for (const auto& decision : run.decisions) {
    fmt::print("{:.0f} s: {} x {}\n", decision.time_s, decision.workers, decision.pool);
    for (const auto& reason : decision.reasons) fmt::print("    {}: {}\n", reason.code, reason.message);
  }
  for (std::size_t i = 0; i < run.minutes.size(); ++i) {
    fmt::print("minute {}: attainment {:.3f}, {:.1f} workers\n", i, run.minutes[i],
               i < run.workers.size() ? run.workers[i] : 0);
  }
}

// Cases with one factor for both phases, such as "vllm x 4", one row each: figures as in print_grid, then the attainment of the
// same workers behind round robin.
void print_rows(const std::vector<Figures>& all) {
  std::vector<std::string> names;
  std::set<double> factors;
  std::map<std::pair<std::string, double>, const Figures*> at;
  for (const Figures& one : all) {
    const std::string name = one.of.name.substr(0, one.of.name.rfind(" x "));
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
    factors.insert(one.of.decode);
    at[{name, one.of.decode}] = &one;
  }
  fmt::print("| case |");
  for (const double factor : factors) fmt::print(" x {:g} |", factor);
  fmt::print("\n|---|");
  for (std::size_t i = 0; i < factors.size(); ++i) fmt::print("---:|");
  for (const std::string& name : names) {
    fmt::print("\n| {} |", name.substr(0, name.find_last_not_of(',') + 1));
    for (const double factor : factors) {
      const auto found = at.find({name, factor});
      if (found == at.end()) {
        fmt::print(" |");
        continue;
      }
      const LoopRun& run = found->second->run;
      fmt::print(" {:.1f} %, {:.2f}, {:.1f} % |", 100 * run.attainment, found->second->times_perfect(), 100 * run.unmanaged);
    }
  }
  fmt::print("\n");
}

// One row per prefill factor, one column per decode factor.
void print_grid(const std::vector<Figures>& grid) {
  std::set<double> prefill, decode;
  std::map<std::pair<double, double>, const Figures*> at;
  for (const Figures& one : grid) {
    prefill.insert(one.of.prefill);
    decode.insert(one.of.decode);
    at[{one.of.prefill, one.of.decode}] = &one;
  }
  fmt::print("| prompts |");
  for (const double d : decode) fmt::print(" decoding x {:g} |", d);
  fmt::print("\n|---|");
  for (std::size_t i = 0; i < decode.size(); ++i) fmt::print("---:|");
  for (const double p : prefill) {
    fmt::print("\n| x {:g} |", p);
    for (const double d : decode) {
      const Figures& one = *at.at({p, d});
      fmt::print(" {:.1f} %, {:.2f} |", 100 * one.run.attainment, one.times_perfect());
    }
  }
  fmt::print("\n\n");
}

}  // namespace
}  // namespace windlass::bench

int main(int argc, char** argv) {
  using namespace windlass::bench;
  CLI::App app("Simulates the control loop with workers that differ from their data sheet");
  std::string only;
  std::uint64_t seed = 1;
  bool verbose = false;
  app.add_option("--only", only, "run only cases whose name contains this");
  app.add_option("--seed", seed, "seed of arrivals and lengths");
  app.add_flag("--verbose", verbose, "print every decision, and attainment and workers by the minute");
  CLI11_PARSE(app, argc, argv);
  std::vector<Figures> grid, others;
  const std::vector<LoopCase> cases = loop_cases();
  std::size_t done = 0;
  for (const LoopCase& one : cases) {
    std::cerr << fmt::format("\r{} of {}: {:40}", ++done, cases.size(), one.name) << std::flush;
    if (one.name.find(only) == std::string::npos) continue;
    (only.empty() && one.name.starts_with("prefill x") ? grid : others).push_back(measure(one, seed));
    if (verbose) print_decisions((grid.empty() ? others : grid).back().run);
  }
  std::cerr << "\r" << std::string(60, ' ') << "\r";
  if (!grid.empty()) print_grid(grid);
  print_rows(others);
  return 0;
}
