// Implements hexgen2_comparisons.h, for docs/algorithms/hexgen2.md.
#include "tests/bench/heterogeneous/hexgen2_comparisons.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <limits>

#include <fmt/format.h>
#include <sys/resource.h>

#include "planner/strategies/hexgen2/hexgen2.h"
#include "tests/bench/heterogeneous/hexgen2_calibration.h"
#include "tests/bench/heterogeneous/hexgen2_setting.h"
#include "tests/reference/papers/hexgen2_bound.h"

namespace windlass::bench {
namespace {

using hetero::Hexgen2Options;
using hetero::Hexgen2Search;
using hetero::InferenceTask;
using hetero::kFlowUnitsPerRequest;

double rate(std::int64_t units) { return static_cast<double>(units) / kFlowUnitsPerRequest; }

// CPU time of this process, all threads.
double processor_s() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

struct RandomCase {
  hetero::GpuCluster cluster;
  InferenceTask task;
};

Result<RandomCase> random_case(std::uint64_t seed, const char* stream, int least_gpus, int max_gpus) {
  Rng rng(seed, stream);
  RandomCase made;
  made.cluster = random_cluster(static_cast<int>(rng.integer(least_gpus, max_gpus)), rng);
  const HexGenWorkload& workload = kHexGenWorkloads[static_cast<std::size_t>(rng.integer(0, 3))];
  WINDLASS_ASSIGN_OR_RETURN(made.task, hexgen_task(rng.integer(0, 1) == 0 ? "opt-30b" : "llama2-70b", workload));
  return made;
}

Hexgen2Options exhaustive(bool fewer_groups) {
  Hexgen2Options options;
  options.search = Hexgen2Search::kExhaustive;
  options.fewer_groups = fewer_groups;
  return options;
}

}  // namespace

Result<std::string> appendix_e_table() {
  std::string text =
      "| model | workload | K | exhaustive, requests/s | ours | placements tried | at most K groups: exhaustive | ours |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|\n";
  for (const char* model : {"llama2-70b", "opt-30b"}) {
    for (const HexGenWorkload& workload : {kHpld, kHphd, kLphd, kLpld}) {
      WINDLASS_ASSIGN_OR_RETURN(const InferenceTask task, hexgen_task(model, workload));
      const hetero::GpuCluster cluster = appendix_e();
      text += fmt::format("| {} | {} | {} |", model, workload.name, groups_by_memory(task, cluster));
      for (const bool fewer : {false, true}) {
        WINDLASS_ASSIGN_OR_RETURN(const auto truth, hexgen2_schedule(cluster, task, 1, {}, exhaustive(fewer)));
        Hexgen2Options options;
        options.fewer_groups = fewer;
        WINDLASS_ASSIGN_OR_RETURN(const auto found, hexgen2_schedule(cluster, task, 1, {}, options));
        text += fmt::format(" {:.4f} | {:.4f} |", rate(truth.flow), rate(found.flow));
        if (!fewer) text += fmt::format(" {} |", truth.steps);
      }
      text += "\n";
    }
  }
  return text;
}

Result<std::string> small_clusters_table(int count) {
  std::string text = "| groups | clusters | equal | worst: share of the optimum |\n|---|---:|---:|---:|\n";
  for (const bool fewer : {false, true}) {
    int cases = 0, equal = 0;
    double worst = 1;
    for (std::uint64_t seed = 0; cases < count; ++seed) {
      WINDLASS_ASSIGN_OR_RETURN(const RandomCase test, random_case(seed, "small", 3, 8));
      if (std::max(2, groups_by_memory(test.task, test.cluster)) > test.cluster.gpus()) continue;
      WINDLASS_ASSIGN_OR_RETURN(const auto truth, hexgen2_schedule(test.cluster, test.task, 1, {}, exhaustive(fewer)));
      if (truth.flow == 0) continue;
      Hexgen2Options options;
      options.fewer_groups = fewer;
      WINDLASS_ASSIGN_OR_RETURN(const auto found, hexgen2_schedule(test.cluster, test.task, 1, {}, options));
      ++cases;
      equal += found.flow == truth.flow ? 1 : 0;
      worst = std::min(worst, static_cast<double>(found.flow) / static_cast<double>(truth.flow));
    }
    text += fmt::format("| {} | {} | {} | {:.4f} |\n", fewer ? "at most K" : "K", cases, equal, worst);
  }
  return text;
}

Result<std::string> baselines_table(int count) {
  std::string text =
      "| GPUs | clusters | over genetic: least | mean | over random swaps: least | mean | of the upper bound: least | mean |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const auto& [least_gpus, max_gpus] : {std::pair(16, 31), {32, 47}, {48, 64}}) {
    double least[3] = {1e9, 1e9, 1e9}, sum[3] = {0, 0, 0};
    for (int i = 0; i < count; ++i) {
      WINDLASS_ASSIGN_OR_RETURN(const RandomCase test,
                                random_case(static_cast<std::uint64_t>(i), "baselines", least_gpus, max_gpus));
      const double begin = processor_s();
      WINDLASS_ASSIGN_OR_RETURN(const auto found, hexgen2_schedule(test.cluster, test.task, 1, {}));
      const double took_s = processor_s() - begin;
      double ratios[3];
      int at = 0;
      for (const Hexgen2Search search : {Hexgen2Search::kGenetic, Hexgen2Search::kRandomSwaps}) {
        Hexgen2Options options;
        options.search = search;
        options.chains = 1;
        options.idle = std::numeric_limits<std::int32_t>::max();
        search::Effort effort;
        const double start = processor_s();
        effort.stop = [=] { return processor_s() - start > took_s; };
        WINDLASS_ASSIGN_OR_RETURN(const auto other, hexgen2_schedule(test.cluster, test.task, 1, effort, options));
        ratios[at++] = static_cast<double>(found.flow) / static_cast<double>(std::max<std::int64_t>(1, other.flow));
      }
      WINDLASS_ASSIGN_OR_RETURN(const double bound, flow_bound(*found.table, found.max_groups));
      ratios[2] = rate(found.flow) / bound;
      for (int r = 0; r < 3; ++r) {
        least[r] = std::min(least[r], ratios[r]);
        sum[r] += ratios[r];
      }
    }
    text += fmt::format("| {} to {} | {} |", least_gpus, max_gpus, count);
    for (int r = 0; r < 3; ++r) text += fmt::format(" {:.3f} | {:.3f} |", least[r], sum[r] / count);
    text += "\n";
  }
  return text;
}

Result<std::string> convergence_table(Executor& executor, bool largest) {
  std::string text =
      "| GPUs | K | paper, s | ours, s | processor, s | memory, MB | steps | requests/s after phase 1 | at the end | of the "
      "upper bound |\n"
      "|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  const std::pair<int, double> sizes[] = {{64, 4.03}, {128, 7.93}, {192, 21.66}, {256, 28.44}, {320, 47.77}, {4096, 0}};
  for (const auto& [gpus, paper_min] : sizes) {
    if (gpus > 320 && !largest) continue;
    Rng rng(static_cast<std::uint64_t>(gpus), "convergence");
    const hetero::GpuCluster cluster = random_cluster(gpus, rng);
    WINDLASS_ASSIGN_OR_RETURN(const InferenceTask task, hexgen_task("llama2-70b", kOnline));
    search::Effort effort;
    effort.executor = &executor;
    const double processor = processor_s();
    const auto begin = std::chrono::steady_clock::now();
    WINDLASS_ASSIGN_OR_RETURN(const auto found, hexgen2_schedule(cluster, task, 1, effort));
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    const double worked_s = processor_s() - processor;
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    WINDLASS_ASSIGN_OR_RETURN(const double bound, flow_bound(*found.table, found.max_groups));
    text += fmt::format("| {} | {} | {} | {:.2f} | {:.2f} | {} | {} | {:.1f} | {:.1f} | {:.3f} |\n", gpus, found.max_groups,
                        paper_min > 0 ? fmt::format("{:.0f}", paper_min * 60) : "", seconds, worked_s,
                        usage.ru_maxrss * 1024 / 1'000'000, found.steps, rate(found.first_flow), rate(found.flow),
                        rate(found.flow) / bound);
  }
  return text;
}

}  // namespace windlass::bench
