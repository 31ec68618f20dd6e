// The cheapest mix: its heuristic against the integer program on random instances, and the savings of a mix over the best
// single accelerator, for docs/algorithms/mix.md.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>
#include <memory>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/worker_kinds.h"
#include "planner/strategies/mix/mix_plan.h"
#include "planner/workload/trace.h"
#include "tests/bench/fidelity/operator_data.h"
#include "tests/bench/heterogeneous/experiments.h"
#include "tests/bench/heterogeneous/mix_instances.h"

namespace windlass::bench {
namespace {

using search::MixInstanceSpec;

constexpr double kMinute_s = 60;

double seconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// CPU time of this program only.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct Group {
  const char* name;
  MixInstanceSpec spec;
  int instances;
};

std::string spread(std::vector<double> values, double unit, int digits) {
  std::sort(values.begin(), values.end());
  return fmt::format("{:.{}f} / {:.{}f}", unit * values[values.size() / 2], digits, unit * values.back(), digits);
}

Result<std::string> instances_table(const HeterogeneousOptions& options) {
  const std::vector<Group> groups = {
      {"3 kinds, 4 buckets, 4 workers", {1, 3, 3, 4, 4}, 200},
      {"5 kinds, 12 buckets, 10 workers", {1, 4, 5, 12, 10}, 100},
      {"8 kinds, 30 buckets, 10 workers", {1, 4, 8, 30, 10}, 40},
      {"8 kinds, 30 buckets, 60 workers", {1, 4, 8, 30, 60}, 40},
      {"12 kinds, 60 buckets, 200 workers", {1, 6, 12, 60, 200}, 10},
      {"3 models of 5 kinds, 12 buckets, 8 workers each", {3, 4, 5, 12, 8}, 30},
      {"2 models of 4 kinds, 8 buckets, 6 workers each, budgets", {2, 3, 4, 8, 6, 0.15, true}, 100},
  };
  std::string table =
      "| instances | solved in a minute | of these within 1 % | dearer at most, % | its own bound's gap, % (median / most) | "
      "program, ms "
      "(median / most) | heuristic, ms (median / most) |\n|---|---:|---:|---:|---:|---:|---:|\n";
  for (const Group& group : groups) {
    const int count = std::max(1, static_cast<int>(std::lround(options.scale * group.instances)));
    int solved = 0, near = 0;
    double worst = 0;
    std::vector<double> program_s, heuristic_s, gaps;
    for (int i = 0; i < count; ++i) {
      const search::MixProblem problem = search::random_mix(group.spec, static_cast<std::uint64_t>(i));
      double cpu_s = cpu_seconds();
      WINDLASS_ASSIGN_OR_RETURN(const search::Mix fast, search::heuristic_mix(problem));
      heuristic_s.push_back(cpu_seconds() - cpu_s);
      cpu_s = cpu_seconds();
      const auto begin = std::chrono::steady_clock::now();
      search::MixEffort effort;
      effort.stop = [begin] { return seconds_since(begin) > kMinute_s; };
      WINDLASS_ASSIGN_OR_RETURN(const search::Mix exact, search::exact_mix(problem, effort));
      program_s.push_back(cpu_seconds() - cpu_s);
      gaps.push_back(fast.gap());
      if (!exact.optimal || seconds_since(begin) > kMinute_s) continue;
      ++solved;
      // If not all requests can be served, compare the unserved ones.
      const double dearer = exact.cost_per_hour > 0 ? fast.cost_per_hour / exact.cost_per_hour - 1 : 0;
      const double rate = [&] {
        double sum = 0;
        for (const auto& model : problem.models) {
          for (const auto& bucket : model.buckets) sum += bucket.requests_per_s;
        }
        return sum;
      }();
      const double less = (fast.unserved_per_s - exact.unserved_per_s) / rate;
      const double off = std::abs(less) > 1e-5 ? less : dearer;
      worst = std::max(worst, off);
      near += off <= 0.01 ? 1 : 0;
    }
    table += fmt::format("| {} | {} of {} | {} | {:.2f} | {} | {} | {} |\n", group.name, solved, count, near, 100 * worst,
                         spread(gaps, 100, 1), spread(program_s, 1e3, 0), spread(heuristic_s, 1e3, 0));
  }
  return table;
}

struct Workload {
  std::string name;
  workload::LengthDistribution lengths;
};

Result<std::vector<Workload>> workloads(const std::string& data) {
  std::vector<Workload> made;
  for (const char* trace : {"conv", "code"}) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string text,
                              read_text(fmt::format("{}/traces/AzureLLMInferenceTrace_{}.csv", data, trace)));
    WINDLASS_ASSIGN_OR_RETURN(const auto rows, workload::parse_azure_trace(text));
    WINDLASS_ASSIGN_OR_RETURN(auto lengths, workload::LengthDistribution::empirical(workload::lengths_of(rows)));
    made.push_back({fmt::format("Azure {}", trace), std::move(lengths)});
  }
  WINDLASS_ASSIGN_OR_RETURN(auto spread, workload::LengthDistribution::independent(workload::LogNormalTokens{800, 1.4, 16384},
                                                                                   workload::LogNormalTokens{200, 1.0, 1024}));
  made.push_back({"log-normal, 800 + 200", std::move(spread)});
  return made;
}

struct Priced {
  const char* accelerator;
  double price_per_hour;  // 0: the catalog's
};

Result<search::Offer> plan_on(const Workload& of, const std::vector<Priced>& accelerators, double rate, double ttft_s,
                              double tpot_s, std::string& text) {
  search::Problem problem;
  problem.name = of.name;
  WINDLASS_ASSIGN_OR_RETURN(problem.shape, planner::model_shape_by_name("llama3.1-8b"));
  for (const auto& [name, price] : accelerators) {
    WINDLASS_ASSIGN_OR_RETURN(auto spec, planner::accelerator_by_name(name));
    if (price > 0) spec.price_per_hour = price;
    problem.accelerators.push_back({std::move(spec)});
  }
  search::KindSpace space;
  space.tensor_parallel = {1, 2};
  search::Kinds kinds =
      search::worker_kinds(problem.shape, problem.accelerators, space, search::roofline_models(problem.shape));
  problem.kinds = std::move(kinds.kinds);
  problem.unfit = std::move(kinds.unfit);
  WINDLASS_ASSIGN_OR_RETURN(const auto requests, search::DrawnRequests::make(of.lengths));
  problem.requests = &requests;
  problem.requests_per_s = rate;
  problem.objectives.both = sim::ServingObjectives{ttft_s, tpot_s};
  problem.objectives.attainment = 0.9;
  problem.within_node = {64e9, 1e-5, 0, 0};
  problem.between_nodes = {12.5e9, 1e-4, 0, 0};
  WINDLASS_ASSIGN_OR_RETURN(auto plan, search::mix_plan(problem, {}));
  text = describe(plan.deployment);
  return plan;
}

Result<std::string> saving_table(const HeterogeneousOptions& options, const std::vector<Priced>& all) {
  WINDLASS_ASSIGN_OR_RETURN(const auto cases, workloads(options.data));
  std::string table =
      "| lengths | TTFT / TPOT | requests/s | cheapest of one accelerator | $/h | mix | $/h | saved, % | attainment |\n"
      "|---|---|---:|---|---:|---|---:|---:|---:|\n";
  for (const Workload& of : cases) {
    for (const auto& [ttft_s, tpot_s] : {std::pair(2.0, 0.12), {1.0, 0.05}}) {
      for (const double rate : {2.0, 10.0, 30.0, 100.0}) {
        std::optional<search::Offer> single;
        std::string single_text;
        for (const Priced& one : all) {
          std::string text;
          auto plan = plan_on(of, {one}, rate, ttft_s, tpot_s, text);
          if (!plan.ok() || !plan->holds || (single && plan->cost_per_hour >= single->cost_per_hour)) continue;
          single = std::move(*plan);
          single_text = text;
        }
        std::string text;
        WINDLASS_ASSIGN_OR_RETURN(const auto mix, plan_on(of, all, rate, ttft_s, tpot_s, text));
        if (!single) {
          table +=
              fmt::format("| {} | {} s / {} ms | {} | none holds | | {} | {:.2f} | | {:.3f} |\n", of.name, ttft_s, 1e3 * tpot_s,
                          rate, mix.holds ? text : "none holds", mix.cost_per_hour, mix.predicted.attainment);
          continue;
        }
        table +=
            fmt::format("| {} | {} s / {} ms | {} | {} | {:.2f} | {} | {:.2f} | {:.0f} | {:.3f} |\n", of.name, ttft_s,
                        1e3 * tpot_s, rate, single_text, single->cost_per_hour, mix.holds ? text : "none holds: " + text,
                        mix.cost_per_hour, 100 * (1 - mix.cost_per_hour / single->cost_per_hour), mix.predicted.attainment);
      }
    }
  }
  return table;
}

}  // namespace

Result<std::vector<HeterogeneousTable>> mix_tables(const HeterogeneousOptions& options) {
  std::vector<HeterogeneousTable> tables;
  WINDLASS_ASSIGN_OR_RETURN(tables.emplace_back().text,
                            saving_table(options, {{"l4", 0}, {"a10g", 0}, {"l40s", 0}, {"a100-80gb", 0}, {"h100-80gb", 0}}));
  tables.back().name = "mix-catalog";
  // HexGen-2's GPUs, at prices that fit its budgets (docs/algorithms/hexgen2.md).
  WINDLASS_ASSIGN_OR_RETURN(tables.emplace_back().text,
                            saving_table(options, {{"a6000", 0.75}, {"l40", 1.04}, {"a100-80gb", 1.69}, {"h100-80gb", 3.69}}));
  tables.back().name = "mix-hexgen2";
  WINDLASS_ASSIGN_OR_RETURN(tables.emplace_back().text, instances_table(options));
  tables.back().name = "mix-instances";
  return tables;
}

}  // namespace windlass::bench
