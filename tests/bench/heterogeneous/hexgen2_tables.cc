// HexGen-2's results (Jiang, Yan, Yuan, ICLR 2025), for docs/algorithms/hexgen2.md.
#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "planner/strategies/hexgen2/hexgen2.h"
#include "tests/bench/heterogeneous/experiments.h"
#include "tests/bench/heterogeneous/hexgen2_calibration.h"
#include "tests/bench/heterogeneous/hexgen2_comparisons.h"
#include "tests/bench/heterogeneous/hexgen2_setting.h"
#include "tests/reference/papers/hexgen.h"

namespace windlass::bench {
namespace {

using hetero::InferenceTask;

double rate(std::int64_t units) { return static_cast<double>(units) / hetero::kFlowUnitsPerRequest; }

// "1xH100+1xA100 TP 1, PP 2": GPUs by class; the largest degree; the number of stages.
std::string group_text(const hetero::GpuCluster& cluster, const hetero::PlacedGroup& group) {
  std::vector<std::pair<std::string, int>> classes;
  for (const hetero::NodeShare& share : group.gpus) {
    const std::string& name = cluster.nodes[static_cast<std::size_t>(share.node)].accelerator.name;
    const auto known = std::find_if(classes.begin(), classes.end(), [&](const auto& one) { return one.first == name; });
    if (known == classes.end()) {
      classes.emplace_back(name, share.gpus);
    } else {
      known->second += share.gpus;
    }
  }
  std::string text;
  for (const auto& [name, gpus] : classes) text += fmt::format("{}{}x{}", text.empty() ? "" : "+", gpus, name);
  int degree = 1;
  for (const hetero::OrderedStage& stage : group.stages()) degree = std::max(degree, stage.tensor_parallel);
  return fmt::format("{} (TP {}, PP {})", text, degree, group.stages().size());
}

struct Settings {
  std::string placements, throughput;
};

Result<Settings> settings_tables(Executor& executor) {
  Settings text;
  text.placements = "| setting | model | $/h | prefill groups | decode groups |\n|---|---|---:|---|---|\n";
  text.throughput =
      "| model | setting | $/h | workload | HexGen-2, tokens/s | HexGen | over HexGen | DistServe, 8 H100 | over DistServe |\n"
      "|---|---|---:|---|---:|---:|---:|---:|---:|\n";
  search::Effort effort;
  effort.executor = &executor;
  for (const char* model : {"llama2-70b", "opt-30b"}) {
    double log_hexgen = 0, log_distserve = 0;
    int same_budget = 0;
    for (const int setting : {1, 2, 3, 4, 5, 0}) {
      const hetero::GpuCluster cluster = paper_setting(setting);
      const std::string name = setting == 0 ? "homogeneous" : fmt::format("{}", setting);
      for (const HexGenWorkload& workload : kHexGenWorkloads) {
        WINDLASS_ASSIGN_OR_RETURN(const InferenceTask task, hexgen_task(model, workload));
        WINDLASS_ASSIGN_OR_RETURN(const auto ours, hexgen2_schedule(cluster, task, 1, effort));
        WINDLASS_ASSIGN_OR_RETURN(const auto hexgen, hexgen_schedule(cluster, task, 1, effort));
        const double distserve = distserve_rate(paper_setting(0), task);
        const double over_hexgen = rate(ours.flow) / rate(hexgen.flow), over_distserve = rate(ours.flow) / distserve;
        text.throughput += fmt::format("| {} | {} | {:.2f} | {} | {:.0f} | {:.0f} | {:.2f} | {:.0f} | {:.2f} |\n", model, name,
                                       cluster.cost_per_hour(), workload.name, rate(ours.flow) * workload.output_tokens,
                                       rate(hexgen.flow) * workload.output_tokens, over_hexgen,
                                       distserve * workload.output_tokens, over_distserve);
        if (setting >= 1 && setting <= 4) {
          log_hexgen += std::log(over_hexgen);
          log_distserve += std::log(over_distserve);
          ++same_budget;
        }
        if (workload.name != std::string("Online") || setting == 0) continue;
        std::string phases[2];
        for (const hetero::PlacedGroup& group : ours.groups) {
          if (!group.serves()) continue;
          std::string& list = phases[group.prefill ? 0 : 1];
          list += (list.empty() ? "" : "; ") + group_text(cluster, group);
        }
        text.placements +=
            fmt::format("| {} | {} | {:.2f} | {} | {} |\n", name, model, cluster.cost_per_hour(), phases[0], phases[1]);
      }
    }
    text.throughput += fmt::format("| {} | 1 to 4 | | geometric mean | | | {:.2f} | | {:.2f} |\n", model,
                                   std::exp(log_hexgen / same_budget), std::exp(log_distserve / same_budget));
  }
  return text;
}

}  // namespace

Result<std::vector<HeterogeneousTable>> hexgen2_tables(const HeterogeneousOptions& options) {
  const auto scaled = [&](int count) { return std::max(1, static_cast<int>(std::lround(count * options.scale))); };
  std::vector<HeterogeneousTable> tables;
  WINDLASS_ASSIGN_OR_RETURN(std::string text, appendix_e_table());
  tables.push_back({"hexgen2-exhaustive", std::move(text)});
  WINDLASS_ASSIGN_OR_RETURN(text, small_clusters_table(scaled(1000)));
  tables.push_back({"hexgen2-small", std::move(text)});
  WINDLASS_ASSIGN_OR_RETURN(text, baselines_table(scaled(20)));
  tables.push_back({"hexgen2-baselines", std::move(text)});
  WINDLASS_ASSIGN_OR_RETURN(Settings settings, settings_tables(*options.executor));
  tables.push_back({"hexgen2-placements", std::move(settings.placements)});
  tables.push_back({"hexgen2-throughput", std::move(settings.throughput)});
  return tables;
}

Result<std::vector<HeterogeneousTable>> hexgen2_calibration(const HeterogeneousOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(CalibrationTables made, calibration_tables(*options.executor));
  return std::vector<HeterogeneousTable>{{"hexgen2-published", std::move(made.published)},
                                         {"hexgen2-fits", std::move(made.fits)},
                                         {"hexgen2-figures", std::move(made.figures)},
                                         {"hexgen2-settings", std::move(made.settings)}};
}

Result<std::vector<HeterogeneousTable>> hexgen2_convergence(const HeterogeneousOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(std::string text, convergence_table(*options.executor, options.scale == 1));
  return std::vector<HeterogeneousTable>{{"hexgen2-convergence", std::move(text)}};
}

}  // namespace windlass::bench
