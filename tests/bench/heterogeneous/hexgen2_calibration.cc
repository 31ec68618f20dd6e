// Implements hexgen2_calibration.h.
#include "tests/bench/heterogeneous/hexgen2_calibration.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/strategies/hexgen2/hexgen2.h"
#include "tests/reference/papers/hexgen.h"

namespace windlass::bench {
namespace {

constexpr double kMemoryShare = 0.9;
constexpr double kOnlineLoad = 0.75;

struct PublishedRow {
  int table;
  HexGenSystem system;
  std::array<double, 5> tokens_per_s;  // by workload; Table 4 has no online one
};
constexpr PublishedRow kPublished[] = {
    {3, HexGenSystem::kHexGen2, {157, 448, 689, 570, 350}},   {3, HexGenSystem::kHexGen, {123, 375, 492, 407, 259}},
    {3, HexGenSystem::kDistServe, {128, 368, 553, 291, 251}}, {4, HexGenSystem::kHexGen2, {365, 683, 758, 730, 0}},
    {4, HexGenSystem::kHexGen, {277, 505, 533, 545, 0}},      {4, HexGenSystem::kDistServe, {302, 692, 774, 553, 0}}};
constexpr std::array<double, 5> kVllm = {97, 437, 563, 270, 256};

const char* name_of(HexGenSystem system) {
  switch (system) {
    case HexGenSystem::kHexGen2: return "HexGen-2";
    case HexGenSystem::kHexGen: return "HexGen";
    case HexGenSystem::kDistServe: return "DistServe";
  }
  return "";
}
const char* model_of(int table) { return table == 3 ? "llama2-70b" : "opt-30b"; }
hetero::GpuCluster cluster_of_table(int table, HexGenSystem system) {
  if (table == 4) return cluster_of({{"h100-80gb", 4}});
  return paper_setting(system == HexGenSystem::kDistServe ? 0 : 1);
}

double rate(const hetero::Scheduled& of) { return static_cast<double>(of.flow) / hetero::kFlowUnitsPerRequest; }

// Requests per second at saturation.
Result<double> modelled_rate(HexGenSystem system, const hetero::GpuCluster& cluster, const std::string& model,
                             const HexGenWorkload& workload, const HexGenShares& shares) {
  WINDLASS_ASSIGN_OR_RETURN(const auto task, hexgen_task(model, workload, shares.max_batch));
  const hetero::GpuCluster priced = with_shares(cluster, shares);
  if (system == HexGenSystem::kDistServe) return distserve_rate(priced, task);
  if (system == HexGenSystem::kHexGen2) {
    WINDLASS_ASSIGN_OR_RETURN(const auto found, hexgen2_schedule(priced, task, 1, {}));
    return rate(found);
  }
  WINDLASS_ASSIGN_OR_RETURN(const auto found, hexgen_schedule(priced, task, 1, {}));
  return rate(found) / shares.interference;
}

std::string order_of(std::vector<std::pair<double, HexGenSystem>> figures) {
  std::stable_sort(figures.begin(), figures.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<std::string> names;
  for (const auto& [tokens_per_s, system] : figures) names.emplace_back(name_of(system));
  return fmt::format("{}", fmt::join(names, " > "));
}

std::vector<PublishedThroughput> of_systems(std::initializer_list<HexGenSystem> systems) {
  std::vector<PublishedThroughput> made = published_throughput();
  std::erase_if(made, [&](const PublishedThroughput& of) {
    return std::find(systems.begin(), systems.end(), of.system) == systems.end();
  });
  return made;
}

// A share that a fit changes by factors.
using Change = void (*)(HexGenShares& shares, double factor);
constexpr Change kChanges[] = {[](HexGenShares& shares, double factor) { shares.bandwidth *= factor; },
                               [](HexGenShares& shares, double factor) { shares.h100_flops *= factor; },
                               [](HexGenShares& shares, double factor) { shares.other_flops *= factor; },
                               [](HexGenShares& shares, double factor) { shares.message_s *= factor; },
                               [](HexGenShares& shares, double factor) {
                                 if (shares.max_batch == kAnyBatch) return;
                                 const int changed = static_cast<int>(std::lround(shares.max_batch * factor));
                                 const int next = shares.max_batch + (factor > 1 ? 1 : -1);
                                 shares.max_batch = std::max(1, changed == shares.max_batch ? next : changed);
                               }};

bool possible(const HexGenShares& shares) {
  return shares.h100_flops <= 1 && shares.other_flops <= 1 && shares.bandwidth <= 1 && shares.message_s <= 1e-3;
}

}  // namespace

hetero::GpuCluster with_shares(hetero::GpuCluster cluster, const HexGenShares& shares) {
  for (hetero::ClusterNode& node : cluster.nodes) {
    const double flops = node.accelerator.name == "h100-80gb" ? shares.h100_flops : shares.other_flops;
    for (auto& [type, per_s] : node.accelerator.peak_flops) per_s *= flops;
    node.accelerator.memory_bandwidth_bytes_per_s *= shares.bandwidth;
    if (shares.message_s > 0) node.within.latency_s = shares.message_s;
  }
  return cluster;
}

Result<hetero::InferenceTask> hexgen_task(const std::string& model, const HexGenWorkload& workload, int max_batch) {
  WINDLASS_ASSIGN_OR_RETURN(const planner::ModelShape shape, planner::model_shape_by_name(model));
  WINDLASS_ASSIGN_OR_RETURN(hetero::InferenceTask task,
                            hetero::inference_task(shape, workload.input_tokens, workload.output_tokens, 8, kMemoryShare));
  task.max_batch = max_batch;
  return task;
}

double distserve_rate(const hetero::GpuCluster& cluster, const hetero::InferenceTask& task) {
  hetero::StrategyTable table(cluster, task);
  const int gpus = cluster.nodes.front().gpus;
  double best = 0;
  for (int prefill = 1; prefill <= gpus; ++prefill) {
    for (int decode = 1; decode <= gpus; ++decode) {
      const double prefill_rate = table.of({{0, prefill}}).strategies->prefill.capacity_requests_per_s;
      const double decode_rate = table.of({{0, decode}}).strategies->decode.capacity_requests_per_s;
      for (int instances = 1; instances * prefill < gpus; ++instances) {
        const int others = (gpus - instances * prefill) / decode;
        best = std::max(best, std::min(instances * prefill_rate, others * decode_rate));
      }
    }
  }
  return best;
}

std::vector<PublishedThroughput> published_throughput() {
  std::vector<PublishedThroughput> made;
  for (const PublishedRow& row : kPublished) {
    for (std::size_t i = 0; i < std::size(kHexGenWorkloads); ++i) {
      if (row.tokens_per_s[i] > 0) made.push_back({row.table, row.system, kHexGenWorkloads[i], row.tokens_per_s[i]});
    }
  }
  return made;
}

Result<double> modelled_throughput(const PublishedThroughput& published, const HexGenShares& shares) {
  const HexGenWorkload& workload = published.workload;
  WINDLASS_ASSIGN_OR_RETURN(const double per_s,
                            modelled_rate(published.system, cluster_of_table(published.table, published.system),
                                          model_of(published.table), workload, shares));
  return per_s * workload.output_tokens * (workload.name == std::string_view(kOnline.name) ? kOnlineLoad : 1);
}

namespace {

// log(modelled / published) of each.
Result<std::vector<double>> log_errors(const std::vector<PublishedThroughput>& published, const HexGenShares& shares,
                                       Executor& executor) {
  WINDLASS_ASSIGN_OR_RETURN(const auto found, parallel_map<Result<double>>(executor, published.size(), [&](std::size_t i) {
                              return modelled_throughput(published[i], shares);
                            }));
  std::vector<double> logs;
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!found[i].ok()) return found[i].error();
    logs.push_back(std::log(*found[i] / published[i].tokens_per_s));
  }
  return logs;
}

double squares_of(const std::vector<double>& values) {
  return std::inner_product(values.begin(), values.end(), values.begin(), 0.0);
}

// What a fit reduces. `split`: HexGen-2's figures, then DistServe's in the same order.
Result<double> fit_error(const std::vector<PublishedThroughput>& split, const HexGenShares& shares, Executor& executor) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<double> logs, log_errors(split, shares, executor));
  const std::size_t columns = split.size() / 2;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < columns; ++i) ratios.push_back(2 * (logs[i] - logs[columns + i]));
  return squares_of(logs) + squares_of(ratios);
}

}  // namespace

Result<double> throughput_error(const std::vector<PublishedThroughput>& published, const HexGenShares& shares,
                                Executor& executor) {
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<double> logs, log_errors(published, shares, executor));
  return std::sqrt(squares_of(logs) / static_cast<double>(logs.size()));
}

Result<HexGenShares> fitted_shares(const std::vector<int>& tables, const std::vector<HexGenShares>& starts,
                                   Executor& executor) {
  std::vector<PublishedThroughput> split, last;
  for (const HexGenSystem system : {HexGenSystem::kHexGen2, HexGenSystem::kDistServe, HexGenSystem::kHexGen}) {
    for (const PublishedThroughput& of : published_throughput()) {
      if (of.system != system || std::find(tables.begin(), tables.end(), of.table) == tables.end()) continue;
      if (system != HexGenSystem::kHexGen) split.push_back(of);
      if (system == HexGenSystem::kHexGen && of.table == tables.back()) last.push_back(of);
    }
  }
  HexGenShares best;
  double least = std::numeric_limits<double>::infinity();
  for (HexGenShares now : starts) {
    WINDLASS_ASSIGN_OR_RETURN(double error, fit_error(split, now, executor));
    for (const double step : {1.6, 1.2, 1.06}) {
      for (bool better = true; better;) {
        better = false;
        for (const Change change : kChanges) {
          for (const double factor : {step, 1 / step}) {
            HexGenShares tried = now;
            change(tried, factor);
            if (!possible(tried)) continue;
            WINDLASS_ASSIGN_OR_RETURN(const double found, fit_error(split, tried, executor));
            if (found >= error * (1 - 1e-6)) continue;
            error = found;
            now = tried;
            better = true;
          }
        }
      }
    }
    if (error < least) best = now, least = error;
  }
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<double> logs, log_errors(last, best, executor));
  best.interference *= std::exp(std::accumulate(logs.begin(), logs.end(), 0.0) / static_cast<double>(logs.size()));
  return best;
}

Result<std::string> modelled_order(int table, const HexGenWorkload& workload, const HexGenShares& shares) {
  std::vector<std::pair<double, HexGenSystem>> figures;
  for (const PublishedThroughput& of : published_throughput()) {
    if (of.table != table || of.workload.name != std::string_view(workload.name)) continue;
    WINDLASS_ASSIGN_OR_RETURN(const double tokens_per_s, modelled_throughput(of, shares));
    figures.emplace_back(tokens_per_s, of.system);
  }
  return order_of(std::move(figures));
}

std::string published_order(int table, const HexGenWorkload& workload) {
  std::vector<std::pair<double, HexGenSystem>> figures;
  for (const PublishedThroughput& of : published_throughput()) {
    if (of.table == table && of.workload.name == std::string_view(workload.name))
      figures.emplace_back(of.tokens_per_s, of.system);
  }
  return order_of(std::move(figures));
}

namespace {

// What the published figures mean in requests and prompt tokens.
std::string published_table() {
  std::string text =
      "| table | system | requests/s: HPLD | HPHD | LPHD | LPLD | Online | prompt tokens/s: HPLD | HPHD | LPHD | LPLD | Online "
      "|\n"
      "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  const auto add = [&](int table, const char* system, const std::array<double, 5>& tokens_per_s) {
    text += fmt::format("| {} | {} |", table, system);
    for (const bool prompts : {false, true}) {
      for (std::size_t i = 0; i < std::size(kHexGenWorkloads); ++i) {
        const double per_s = tokens_per_s[i] / kHexGenWorkloads[i].output_tokens;
        if (per_s == 0) {
          text += " |";
        } else {
          text +=
              prompts ? fmt::format(" {:.0f} |", per_s * kHexGenWorkloads[i].input_tokens) : fmt::format(" {:.2f} |", per_s);
        }
      }
    }
    text += "\n";
  };
  for (const PublishedRow& row : kPublished) add(row.table, name_of(row.system), row.tokens_per_s);
  add(3, "vLLM", kVllm);
  return text;
}

// Of the pairs of systems in each column of a table, those in the published order.
Result<std::string> pairs_kept(int table, const HexGenShares& shares, Executor& executor) {
  auto published = published_throughput();
  std::erase_if(published, [&](const PublishedThroughput& of) { return of.table != table; });
  WINDLASS_ASSIGN_OR_RETURN(const std::vector<double> logs, log_errors(published, shares, executor));
  int pairs = 0, kept = 0;
  for (std::size_t a = 0; a < published.size(); ++a) {
    for (std::size_t b = a + 1; b < published.size(); ++b) {
      if (published[a].workload.name != std::string_view(published[b].workload.name)) continue;
      const double ratio = std::log(published[a].tokens_per_s / published[b].tokens_per_s);
      ++pairs;
      kept += ratio * (ratio + logs[a] - logs[b]) > 0 ? 1 : 0;
    }
  }
  return fmt::format("{} of {}", kept, pairs);
}

Result<std::string> fit_row(const char* text, const HexGenShares& shares, Executor& executor) {
  std::string off;
  for (const int table : {3, 4}) {
    auto split = of_systems({HexGenSystem::kHexGen2, HexGenSystem::kDistServe});
    std::erase_if(split, [&](const PublishedThroughput& of) { return of.table != table; });
    WINDLASS_ASSIGN_OR_RETURN(const double error, throughput_error(split, shares, executor));
    off += fmt::format(" {:.2f} |", std::exp(error));
  }
  WINDLASS_ASSIGN_OR_RETURN(const double hexgen, throughput_error(of_systems({HexGenSystem::kHexGen}), shares, executor));
  WINDLASS_ASSIGN_OR_RETURN(const std::string third, pairs_kept(3, shares, executor));
  WINDLASS_ASSIGN_OR_RETURN(const std::string fourth, pairs_kept(4, shares, executor));
  return fmt::format("| {} | {:.0f} % | {:.0f} % | {:.0f} % | {} | {} | {:.2f} |{} {:.2f} | {}, {} |\n", text,
                     100 * shares.h100_flops, 100 * shares.other_flops, 100 * shares.bandwidth,
                     shares.message_s > 0 ? fmt::format("{:.1f} us", 1e6 * shares.message_s) : "data sheet",
                     shares.max_batch == kAnyBatch ? "memory's" : fmt::format("{}", shares.max_batch), shares.interference, off,
                     std::exp(hexgen), third, fourth);
}

// Each table by its own fit.
Result<std::string> figures_table(const std::array<HexGenShares, 2>& fits) {
  std::string text =
      "| table | workload | HexGen-2: paper | ours | HexGen: paper | ours | DistServe: paper | ours | order in the paper | "
      "ours "
      "|\n|---|---|---:|---:|---:|---:|---:|---:|---|---|\n";
  for (const int table : {3, 4}) {
    const HexGenShares& shares = fits[table == 3 ? 0 : 1];
    for (const HexGenWorkload& workload : kHexGenWorkloads) {
      if (table == 4 && workload.name == std::string_view(kOnline.name)) continue;
      text += fmt::format("| {} | {} |", table, workload.name);
      for (const PublishedThroughput& of : published_throughput()) {
        if (of.table != table || of.workload.name != std::string_view(workload.name)) continue;
        WINDLASS_ASSIGN_OR_RETURN(const double tokens_per_s, modelled_throughput(of, shares));
        text += fmt::format(" {:.0f} | {:.0f} |", of.tokens_per_s, tokens_per_s);
      }
      WINDLASS_ASSIGN_OR_RETURN(const std::string order, modelled_order(table, workload, shares));
      text += fmt::format(" {} | {} |\n", published_order(table, workload), order);
    }
  }
  return text;
}

Result<std::string> settings_table(const HexGenShares& shares, Executor& executor) {
  std::string text =
      "| model | setting | over HexGen: HPLD | HPHD | LPHD | LPLD | Online | over DistServe on 8 H100: HPLD | HPHD | LPHD | "
      "LPLD | Online "
      "|\n|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  for (const char* model : {"llama2-70b", "opt-30b"}) {
    std::array<double, 2> logs = {0, 0};
    int count = 0;
    for (const int setting : {1, 2, 3, 4, 5}) {
      WINDLASS_ASSIGN_OR_RETURN(const auto rates,
                                parallel_map<Result<double>>(executor, 3 * std::size(kHexGenWorkloads), [&](std::size_t i) {
                                  const auto system = static_cast<HexGenSystem>(i / std::size(kHexGenWorkloads));
                                  return modelled_rate(system, paper_setting(system == HexGenSystem::kDistServe ? 0 : setting),
                                                       model, kHexGenWorkloads[i % std::size(kHexGenWorkloads)], shares);
                                }));
      for (const Result<double>& of : rates) {
        if (!of.ok()) return of.error();
      }
      text += fmt::format("| {} | {} |", model, setting);
      for (const std::size_t peer : {1, 2}) {
        for (std::size_t i = 0; i < std::size(kHexGenWorkloads); ++i) {
          const double ratio = *rates[i] / *rates[peer * std::size(kHexGenWorkloads) + i];
          text += fmt::format(" {:.2f} |", ratio);
          if (setting < 5) logs[peer - 1] += std::log(ratio);
        }
      }
      text += "\n";
      if (setting < 5) count += static_cast<int>(std::size(kHexGenWorkloads));
    }
    text += fmt::format("| {} | mean of 1 to 4 | **{:.2f}** | | | | | **{:.2f}** | | | | |\n", model, std::exp(logs[0] / count),
                        std::exp(logs[1] / count));
  }
  return text;
}

}  // namespace

Result<CalibrationTables> calibration_tables(Executor& executor) {
  CalibrationTables made;
  made.published = published_table();
  made.fits =
      "| what is fitted, to which tables | FLOP/s: H100 | others | bandwidth | message | batch | HexGen's time | HexGen-2 and "
      "DistServe off by a factor of: Table 3 | Table 4 | HexGen | pairs in the published order: Table 3, 4 |\n"
      "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n";
  HexGenShares paper_batch;
  paper_batch.max_batch = hetero::kConcurrentRequests;
  const HexGenShares sheets_batch{0.2, 0.2, 0.1, 0, kAnyBatch, 1};
  const std::vector<HexGenShares> starts = {
      {0.15, 0.25, 0.9, 20e-6, 4, 1}, {0.2, 0.2, 0.2, 50e-6, 32, 1}, {0.2, 0.2, 0.16, 400e-6, 64, 1}};
  WINDLASS_ASSIGN_OR_RETURN(const auto without_batch, fitted_shares({3, 4}, {sheets_batch}, executor));
  WINDLASS_ASSIGN_OR_RETURN(const auto both, fitted_shares({3, 4}, starts, executor));
  WINDLASS_ASSIGN_OR_RETURN(const auto third, fitted_shares({3}, starts, executor));
  WINDLASS_ASSIGN_OR_RETURN(const auto fourth, fitted_shares({4}, starts, executor));
  for (const auto& [text, shares] : {std::pair<const char*, HexGenShares>{"nothing: Table 1 and data sheets", {}},
                                     {"nothing, but Appendix A's batch of 32", paper_batch},
                                     {"FLOP/s and bandwidth, to both", without_batch},
                                     {"all, to both", both},
                                     {"all, to Table 3", third},
                                     {"all, to Table 4", fourth}}) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string row, fit_row(text, shares, executor));
    made.fits += row;
  }
  WINDLASS_ASSIGN_OR_RETURN(made.figures, figures_table({third, fourth}));
  WINDLASS_ASSIGN_OR_RETURN(made.settings, settings_table(third, executor));
  return made;
}

}  // namespace windlass::bench
