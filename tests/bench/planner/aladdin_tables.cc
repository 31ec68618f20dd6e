// Aladdin's results (Nie, Fonseca, Liu 2024): Table 3 over efficiency and link, GPUs needed by rate with and without split
// phases (Fig. 11, 12), under which conditions it saves some, best fit next to the exact placement, and the time of a placement
// (Fig. 13).
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>

#include <fmt/format.h>

#include "controller/cli/charts/svg_chart.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/dispatch/aladdin_policy.h"
#include "planner/perf/data_sheet_model.h"
#include "planner/perf/linear_model.h"
#include "planner/strategies/aladdin/aladdin.h"
#include "planner/strategies/aladdin/aladdin_demand.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/worker_kinds.h"
#include "planner/workload/lengths.h"
#include "tests/bench/planner/experiments.h"
#include "tests/reference/papers/aladdin_mip.h"

namespace windlass::bench {
namespace {

using dispatch::PolicyKind;
using search::Problem;

constexpr double kPcie_bytes_per_s = 32e9;  // PCIe 4.0 x 16, the link of the authors' A100s
constexpr int kMachineGpus = 4;
constexpr int kContext = 4096, kMaxOutput = 2048;
// The authors' prefill objective is the time of a prompt of 4,096 tokens, which leaves no time to wait. A prompt of half that
// length may wait as long as it takes.
constexpr int kMaxPrompt = 2048;
constexpr int kMinDecoded = 20;                               // tokens of an answer with split phases
constexpr double kAll = 1 - 1e-9;                             // of the requests, the paper's P100: a trial has far fewer
constexpr std::array kRates = {5.0, 10.0, 15.0, 20.0, 25.0};  // requests per second; the paper uses about 25
constexpr double kSeconds = 120;                              // of arrivals in a trial
constexpr int kSeeds = 3;

struct Setting {
  const char* model;
  const char* accelerator;
  double ttft_s, tpot_s;  // Table 2
  int paper_gpus;         // Table 3; 0: the model does not fit
};

constexpr Setting kSettings[] = {
    {"llama2-70b", "a100-80gb", 1.6, 0.075, 2}, {"llama2-13b", "a100-80gb", 0.6, 0.030, 1},
    {"llama2-7b", "a100-80gb", 0.4, 0.015, 1},  {"llama2-13b", "v100-32gb", 0.8, 0.050, 2},
    {"llama2-7b", "v100-32gb", 0.8, 0.030, 1},
};

// Requests with prompts of at most `max_prompt` tokens and answers of at least `min_output`.
Result<workload::LengthDistribution> sharegpt(const std::string& data, int max_prompt, int min_output = 1) {
  const std::string path = data + "/traces/sharegpt_lengths.csv";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: must be a readable file; ../shared/data/README.md lists the data", path)};
  }
  std::ostringstream text;
  text << file.rdbuf();
  WINDLASS_ASSIGN_OR_RETURN(auto pairs, workload::parse_length_file(text.str()));
  std::erase_if(pairs, [&](const workload::TokenPair& pair) {
    return pair.input_tokens > max_prompt || pair.output_tokens > kMaxOutput || pair.output_tokens < min_output ||
           pair.input_tokens + pair.output_tokens > kContext;
  });
  return workload::LengthDistribution::empirical(std::move(pairs));
}

planner::AcceleratorSpec accelerator(const char* name, double link_bytes_per_s) {
  planner::AcceleratorSpec spec = planner::accelerator_by_name(name).value();
  spec.gpus_per_node = kMachineGpus;
  spec.intra_link_bandwidth_bytes_per_s = link_bytes_per_s;
  return spec;
}

// ---- Table 3 ----

std::string table_3(const workload::LengthDistribution& lengths) {
  std::string text =
      "| share of peak FLOP/s, of memory bandwidth | link of a GPU | 70B, A100 | 13B, A100 | 7B, A100 | 13B, V100 | 7B, V100 "
      "|\n|---|---|---|---|---|---|---|\n| *the paper, measured* | PCIe (A100), NVLink (V100) | 2 | 1 | 1 | 2 | 1 |\n";
  for (const auto& [compute, bandwidth] : {std::pair{0.3, 0.5}, {0.4, 0.65}, {0.5, 0.8}, {0.6, 0.9}}) {
    for (const double link : {16e9, kPcie_bytes_per_s, 150e9, 300e9}) {
      text += fmt::format("| {:.0f} %, {:.0f} % | {:.0f} GB/s |", 100 * compute, 100 * bandwidth, link / 1e9);
      for (const Setting& setting : kSettings) {
        planner::WorkerSearchInput input;
        input.shape = planner::model_shape_by_name(setting.model).value();
        input.accelerator = accelerator(setting.accelerator, link);
        // The data sheet's figures, multiplied by the shares that linear_coefficients() uses.
        const planner::Efficiency usual;
        for (auto& [type, flops] : input.accelerator.peak_flops) flops *= compute / usual.compute;
        input.accelerator.memory_bandwidth_bytes_per_s *= bandwidth / usual.bandwidth;
        input.objective = {setting.ttft_s, setting.tpot_s, 95};
        input.lengths = {lengths.mean_input_tokens(), lengths.mean_output_tokens()};
        input.max_gpus = kMachineGpus;
        input.max_context_tokens = kContext;
        const auto found = planner::search_worker_config(input);
        const bool same = found.best && found.best->spec.gpus() == setting.paper_gpus;
        text += !found.best ? " - |" : fmt::format(" {}{}{} |", same ? "**" : "", found.best->spec.gpus(), same ? "**" : "");
      }
      text += "\n";
    }
  }
  return text;
}

// ---- Fig. 11 and 12 ----

// A model on machines of four A100s, by the linear model.
struct Testbed {
  Setting setting;
  std::unique_ptr<search::DrawnRequests> requests;
  Problem problem;
  int best = 0;   // the kind that was best in the authors' measurements
  int whole = 0;  // the kind that uses all GPUs of a machine
};

Testbed testbed(const Setting& setting, const workload::LengthDistribution& lengths) {
  Testbed bed{setting, std::make_unique<search::DrawnRequests>(search::DrawnRequests::make(lengths).value()), {}, 0, 0};
  Problem& problem = bed.problem;
  problem.name = setting.model;
  problem.shape = planner::model_shape_by_name(setting.model).value();
  problem.accelerators = {{accelerator(setting.accelerator, kPcie_bytes_per_s)}};
  search::KindSpace space;
  space.least_kv_tokens = kContext;
  const auto model_of = [&](const planner::AcceleratorSpec& spec, int gpus, int) -> Result<search::KindModel> {
    const auto line = planner::linear_coefficients(problem.shape, spec, gpus, planner::EngineType::kWindlass);
    return search::KindModel{
        std::make_shared<planner::LinearIterationModel>(planner::data_sheet_model(line, line.kv_capacity_tokens)),
        line.kv_capacity_tokens};
  };
  problem.kinds = search::worker_kinds(problem.shape, problem.accelerators, space, model_of).kinds;
  problem.requests = bed.requests.get();
  problem.objectives.both = sim::ServingObjectives{setting.ttft_s, setting.tpot_s};
  problem.objectives.attainment = kAll;
  problem.engine.batching = planner::Batching::kVllm;
  problem.within_node = problem.between_nodes = {};
  for (std::size_t kind = 0; kind < problem.kinds.size(); ++kind) {
    if (problem.kinds[kind].gpus() == setting.paper_gpus) bed.best = static_cast<int>(kind);
  }
  bed.whole = static_cast<int>(problem.kinds.size()) - 1;
  return bed;
}

// Eq. 1 to 3 of the worker that was best in the authors' measurements.
dispatch::PackingModel packing_of(const Testbed& bed) {
  const auto& kind = bed.problem.kinds[static_cast<std::size_t>(bed.best)];
  const auto line =
      planner::linear_coefficients(bed.problem.shape, bed.problem.spec(kind), kind.gpus(), planner::EngineType::kWindlass);
  return {line.k1, line.c1, line.k2, line.c2, line.c3, line.kv_capacity_tokens, 16, 256};
}

enum class Rule { kWhole, kJsq, kPowerOfTwo, kBestFit, kAladdin, kAladdinKnown };

constexpr bool is_aladdin(Rule rule) { return rule == Rule::kBestFit || rule == Rule::kAladdin || rule == Rule::kAladdinKnown; }

search::Deployment deployment(const Testbed& bed, Rule rule, bool split) {
  search::Deployment made = search::unified(bed.problem, rule == Rule::kWhole ? bed.whole : bed.best, bed.problem.engine, 1);
  made.dispatch.policy = rule == Rule::kPowerOfTwo ? PolicyKind::kPowerOfTwo
                         : is_aladdin(rule)        ? PolicyKind::kAladdin
                                                   : PolicyKind::kJsq;
  made.dispatch.placement.rebalances = rule != Rule::kBestFit;
  made.dispatch.learns_lengths = rule != Rule::kAladdinKnown;
  if (split) {
    // More prefill workers than needed; only decode workers are counted.
    search::Pool prefill = made.pools.front();
    prefill.role = dispatch::Role::kPrefill;
    prefill.workers = 100;
    made.pools.front().role = dispatch::Role::kDecode;
    made.pools.insert(made.pools.begin(), prefill);
    made.dispatch.placement.ttft_s = bed.setting.ttft_s;
  }
  return made;
}

struct Needed {
  int gpus = 0;  // 0: more than the largest tried number
};

struct Asked {
  const Testbed* bed;
  double rate_per_s;
  Rule rule;
};

// GPUs with which the requests of every seed meet their objectives; with split phases: decode workers for TPOT.
Needed gpus_needed(const Asked& asked, bool split, int seeds, int first_seed = 1) {
  constexpr int kMost = 200;
  Problem problem = asked.bed->problem;
  if (split) problem.objectives.both->ttft_s = 1e4;
  search::Deployment made = deployment(*asked.bed, asked.rule, split);
  const std::size_t pool = split ? 1 : 0;
  int workers = 1;
  for (int seed = first_seed; seed < first_seed + seeds; ++seed) {
    search::WorkersAsked count;
    count.pool = pool;
    count.least = workers;  // the number for one seed is a lower bound for all
    count.first = std::max(workers, seed == first_seed ? static_cast<int>(asked.rate_per_s) : workers);
    count.most = kMost;
    count.trial = {asked.rate_per_s, static_cast<std::int64_t>(asked.rate_per_s * kSeconds), static_cast<std::uint64_t>(seed)};
    const auto found = search::fewest_workers(problem, made, count);
    if (!found.ok() || found->workers == 0) return {};
    workers = found->workers;
  }
  return {workers * made.pools[pool].spec.gpus()};
}

// GPUs that decoding needs at least, however requests are placed: every worker always runs the largest batch whose iteration
// takes T_dec by Eq. 3. Contexts are means over the time that requests stay.
double least_decode_gpus(const Testbed& bed, double rate_per_s) {
  const dispatch::PackingModel model = packing_of(bed);
  const auto lengths = search::lengths_of(*bed.requests, 1, 20'000);
  double outputs = 0, contexts = 0;
  for (const auto& [input, output] : lengths) {
    outputs += output;
    contexts += output * (input + output / 2.0);
  }
  const double context = contexts / outputs, output = outputs / static_cast<double>(lengths.size());
  const double by_time = (bed.setting.tpot_s - model.decode_s) / (model.context_token_s * context + model.decode_request_s);
  const double batch = std::min(by_time, model.kv_capacity_tokens / (context + model.kv_request_tokens));
  const int gpus = bed.problem.kinds[static_cast<std::size_t>(bed.best)].gpus();
  return gpus * rate_per_s * output * bed.setting.tpot_s / batch;
}

struct Comparison {
  std::string table;
  std::vector<std::pair<Rule, double>> max_saved;  // by Aladdin compared with the rule, in the best case
  charts::Chart chart;
};

constexpr const char* name_of(Rule rule) {
  switch (rule) {
    case Rule::kWhole: return "whole machines, JSQ";
    case Rule::kJsq: return "Table 3's workers, JSQ";
    case Rule::kPowerOfTwo: return "Table 3's workers, power of two";
    case Rule::kBestFit: return "Aladdin without Alg. 2";
    case Rule::kAladdin: return "Aladdin";
    case Rule::kAladdinKnown: return "Aladdin, lengths known";
  }
  return "";
}

Comparison compare(const std::vector<Testbed>& beds, const std::vector<Rule>& rules, bool split, Executor& executor) {
  std::vector<Asked> asked;
  for (const Testbed& bed : beds) {
    for (const double rate : kRates) {
      for (const Rule rule : rules) asked.push_back({&bed, rate, rule});
    }
  }
  std::vector<Needed> needed(asked.size());
  executor.run(asked.size(), [&](std::size_t i) { needed[i] = gpus_needed(asked[i], split, kSeeds); });
  Comparison made;
  made.table = "| model | workers | requests/s |";
  for (const Rule rule : rules) made.table += fmt::format(" {} |", name_of(rule));
  made.table += split ? " no placement with fewer than | least saved | most saved |\n|---|---|---|---|"
                      : " least saved | most saved |\n|---|---|---|";
  for (std::size_t i = 0; i < rules.size(); ++i) made.table += "---|";
  made.table += "---|---|\n";
  for (const Rule rule : rules) {
    if (!is_aladdin(rule)) made.max_saved.emplace_back(rule, -1);
  }
  std::size_t at = 0;
  for (const Testbed& bed : beds) {
    std::vector<charts::ChartSeries> series;
    for (const Rule rule : rules) series.push_back({name_of(rule), {}});
    for (const double rate : kRates) {
      made.table += fmt::format("| {} | {} GPU{} | {} |", bed.setting.model,
                                bed.problem.kinds[static_cast<std::size_t>(bed.best)].gpus(), bed.best == 0 ? "" : "s", rate);
      std::vector<int> gpus;
      for (std::size_t r = 0; r < rules.size(); ++r) {
        const int here = needed[at++].gpus;
        gpus.push_back(here);
        made.table += here == 0 ? " not with 200 workers |" : fmt::format(" {} |", here);
        if (here > 0) series[r].points.push_back({rate, static_cast<double>(here), {}, {}});
      }
      const auto aladdin = static_cast<std::size_t>(std::find(rules.begin(), rules.end(), Rule::kAladdin) - rules.begin());
      if (split) made.table += fmt::format(" {:.1f} |", least_decode_gpus(bed, rate));
      double least = 1, most = -1;
      for (auto& [rule, saved] : made.max_saved) {
        const auto other = static_cast<std::size_t>(std::find(rules.begin(), rules.end(), rule) - rules.begin());
        if (gpus[other] == 0 || gpus[aladdin] == 0) continue;
        const double here = 1 - static_cast<double>(gpus[aladdin]) / gpus[other];
        saved = std::max(saved, here);
        least = std::min(least, here);
        most = std::max(most, here);
      }
      made.table += most < least ? std::string(" - | - |\n") : fmt::format(" {:.0f} % | {:.0f} % |\n", 100 * least, 100 * most);
    }
    if (&bed == &beds.front()) {
      made.chart = {
          fmt::format("GPUs for all requests inside their objectives, {}{}", bed.setting.model, split ? ", decode phase" : ""),
          "requests per second",
          "GPUs",
          std::move(series),
          false,
          false};
    }
  }
  return made;
}

std::string summary(const Comparison& mixed, const Comparison& split) {
  std::string text = "| against | the paper: up to | here: up to |\n|---|---|---|\n";
  const auto row = [&](const char* what, const char* paper, const Comparison& of, Rule rule) {
    const auto found =
        std::find_if(of.max_saved.begin(), of.max_saved.end(), [&](const auto& saved) { return saved.first == rule; });
    text += found->second < 0 ? fmt::format("| {} | {} | nothing |\n", what, paper)
                              : fmt::format("| {} | {} | {:.0f} % |\n", what, paper, 100 * found->second);
  };
  row("whole machines (vLLM's default), Fig. 11", "71 %", mixed, Rule::kWhole);
  row("JSQ on Table 3's workers, Fig. 11", "40 %", mixed, Rule::kJsq);
  row("JSQ, decode phase, Fig. 12", "60 %", split, Rule::kJsq);
  row("power of two, decode phase, Fig. 12", "49 %", split, Rule::kPowerOfTwo);
  return text;
}

// ---- Conditions ----

// What may decide whether Aladdin saves GPUs.
struct Condition {
  const char* text;
  double inside;   // share of the requests that must meet the objectives
  int min_output;  // tokens of the shortest answer
  double tpot;     // of the paper's objective
  double ttft;
};

constexpr Condition kConditions[] = {
    {"all (the paper's P100)", kAll, 1, 1, 1},
    {"99.9 %", 0.999, 1, 1, 1},
    {"99 %", 0.99, 1, 1, 1},
    {"95 %", 0.95, 1, 1, 1},
    {"all; answers of at least 20 tokens", kAll, 20, 1, 1},
    {"all; TTFT x 3", kAll, 1, 1, 3},
    {"all; TPOT x 3", kAll, 1, 3, 1},
};
constexpr int kConditionSeeds = 5;
constexpr double kConditionRate = 15;

std::string range_of(const std::vector<int>& gpus) {
  const auto [least, most] = std::minmax_element(gpus.begin(), gpus.end());
  if (*least == 0)
    return *most == 0 ? "none holds"
                      : fmt::format("holds for {} of {}", std::count_if(gpus.begin(), gpus.end(), [](int n) { return n > 0; }),
                                    gpus.size());
  return *least == *most ? fmt::format("{}", *least) : fmt::format("{} to {}", *least, *most);
}

// Saved by `aladdin` compared with `other`, over the seeds for which both hold.
std::string saved_of(const std::vector<int>& aladdin, const std::vector<int>& other) {
  double least = 1, most = -10;
  for (std::size_t i = 0; i < aladdin.size(); ++i) {
    if (aladdin[i] == 0 || other[i] == 0) continue;
    const double saved = 1 - static_cast<double>(aladdin[i]) / other[i];
    least = std::min(least, saved);
    most = std::max(most, saved);
  }
  if (most < least) return "-";
  return std::abs(most - least) < 0.005 ? fmt::format("{:.0f} %", 100 * least)
                                        : fmt::format("{:.0f} to {:.0f} %", 100 * least, 100 * most);
}

Result<std::string> conditions(const std::string& data, Executor& executor) {
  constexpr std::array kRules = {Rule::kWhole, Rule::kJsq, Rule::kBestFit, Rule::kAladdin, Rule::kAladdinKnown};
  std::vector<Testbed> beds;
  std::vector<std::string> names;
  for (const Condition& condition : kConditions) {
    WINDLASS_ASSIGN_OR_RETURN(const auto lengths, sharegpt(data, kMaxPrompt, condition.min_output));
    for (Setting setting : kSettings) {
      if (std::string_view(setting.accelerator) != "a100-80gb") continue;
      setting.ttft_s *= condition.ttft;
      setting.tpot_s *= condition.tpot;
      beds.push_back(testbed(setting, lengths));
      beds.back().problem.objectives.attainment = condition.inside;
      names.push_back(fmt::format("{} | {}", condition.text, setting.model));
    }
  }
  std::vector<Needed> needed(beds.size() * kRules.size() * kConditionSeeds);
  executor.run(needed.size(), [&](std::size_t i) {
    const std::size_t pair = i / kConditionSeeds;
    needed[i] = gpus_needed({&beds[pair / kRules.size()], kConditionRate, kRules[pair % kRules.size()]}, false, 1,
                            1 + static_cast<int>(i % kConditionSeeds));
  });
  std::string text = "| inside their objectives | model |";
  for (const Rule rule : kRules) text += fmt::format(" {} |", name_of(rule));
  text += " saved to whole machines | saved to JSQ |\n|---|---|";
  for (std::size_t i = 0; i < kRules.size() + 2; ++i) text += "---|";
  text += "\n";
  for (std::size_t bed = 0; bed < beds.size(); ++bed) {
    std::array<std::vector<int>, kRules.size()> gpus;
    for (std::size_t r = 0; r < kRules.size(); ++r) {
      for (std::size_t seed = 0; seed < kConditionSeeds; ++seed) {
        gpus[r].push_back(needed[(bed * kRules.size() + r) * kConditionSeeds + seed].gpus);
      }
    }
    text += fmt::format("| {} |", names[bed]);
    for (const auto& of : gpus) text += fmt::format(" {} |", range_of(of));
    text += fmt::format(" {} | {} |\n", saved_of(gpus[3], gpus[0]), saved_of(gpus[3], gpus[1]));
  }
  return text;
}

// ---- Best fit and the exact placement ----

// Workers that new requests need by the exact program and by best fit, over random small clusters.
std::string exact(const std::vector<Testbed>& beds, const workload::LengthDistribution& lengths) {
  constexpr int kCases = 100, kRequests = 8;
  std::string text =
      "| model | cases | workers, exact | workers, best fit | more | cases with more |\n|---|---|---|---|---|---|\n";
  for (const Testbed& bed : beds) {
    const dispatch::PackingModel model = packing_of(bed);
    const dispatch::PackingRules rules = {bed.setting.ttft_s, bed.setting.tpot_s};
    Rng rng(17, "exact placements");
    int solved = 0, exactly = 0, by_best_fit = 0, more = 0;
    for (int at = 0; at < kCases; ++at) {
      dispatch::BestFit fit(rules);
      std::vector<dispatch::PackedWorker> workers;
      dispatch::BestFit::Handle handle = 0;
      for (int w = 0; w < kRequests + 2; ++w) {
        dispatch::PackedWorker worker(model, rules);
        for (int i = w < 2 ? static_cast<int>(rng.integer(1, model.max_requests)) : 0; i > 0; --i) {
          const auto pair = lengths.draw(rng);
          if (!worker.fits(pair.input_tokens, pair.output_tokens, 0)) continue;
          worker.add(handle, pair.input_tokens, pair.output_tokens, 0);
          worker.begin_decode(handle++, 0);
        }
        for (int i = w < 2 ? 20 : 0; i > 0; --i) worker.iterated();
        workers.push_back(worker);
        fit.add_worker(worker);
      }
      std::vector<search::NewRequest> requests;
      for (int i = 0; i < kRequests; ++i) {
        const auto pair = lengths.draw(rng);
        requests.push_back({pair.input_tokens, pair.output_tokens});
      }
      const double now_s = 10 * rules.tpot_s;  // what runs has saved some time
      const auto best = search::place_exactly(workers, rules, requests, now_s);
      if (!best.ok() || !best->proven) continue;
      for (const auto& request : requests) {
        const auto worker = fit.find(request.input_tokens, request.predicted_tokens, now_s);
        if (worker) fit.add(*worker, handle++, request.input_tokens, request.predicted_tokens, now_s);
      }
      int used = 0;
      for (std::size_t w = 0; w < fit.workers(); ++w) used += fit.worker(w).requests() > 0 ? 1 : 0;
      ++solved;
      exactly += best->used;
      by_best_fit += used;
      more += used > best->used ? 1 : 0;
    }
    text += fmt::format("| {} | {} | {} | {} | {:.1f} % | {} |\n", bed.setting.model, solved, exactly, by_best_fit,
                        100.0 * (by_best_fit - exactly) / std::max(1, exactly), more);
  }
  return text;
}

// ---- Eq. 7 ----

std::string equation_7(const std::vector<Testbed>& beds, Executor& executor) {
  constexpr std::array kLineRates = {10.0, 20.0, 30.0, 40.0};
  std::string text =
      "| model | k5, workers for a request/s | c5 | R at a heartbeat of 1 s | furthest from the line "
      "|\n|---|---|---|---|---|\n";
  for (const Testbed& bed : beds) {
    std::vector<search::WorkersAtRate> points(kLineRates.size());
    executor.run(kLineRates.size(), [&](std::size_t i) {
      const Needed needed = gpus_needed({&bed, kLineRates[i], Rule::kAladdin}, false, 1);
      const int gpus = bed.problem.kinds[static_cast<std::size_t>(bed.best)].gpus();
      points[i] = {kLineRates[i], static_cast<double>(needed.gpus) / gpus};
    });
    const auto lengths = search::lengths_of(*bed.requests, 1, 5000);
    const auto line = search::fit_worker_line(points, search::spread_of(lengths), 1);
    if (!line.ok()) continue;
    double furthest = 0;
    for (const auto& point : points) {
      furthest = std::max(furthest, std::abs(point.workers - line->workers_per_rate * point.requests_per_s - line->constant));
    }
    text += fmt::format("| {} | {:.3f} | {:.2f} | {:.0f} requests/s | {:.1f} workers |\n", bed.setting.model,
                        line->workers_per_rate, line->constant, line->valid_above_per_s, furthest);
  }
  return text;
}

// ---- Fig. 13 ----

struct PlacementTime {
  double request_s = 0;  // mean
  std::size_t workers = 0;
};

// A steady cluster whose requests stay for 15 s.
PlacementTime placement_time(const Testbed& bed, const workload::LengthDistribution& lengths, double rate_per_s) {
  constexpr int kStays = 15, kSeconds = 25;
  const dispatch::PackingModel model = packing_of(bed);
  dispatch::AladdinPolicy policy({bed.setting.ttft_s, bed.setting.tpot_s});
  const std::vector<dispatch::ChainState> chains(static_cast<std::size_t>(8 + 2 * rate_per_s),
                                                 {1, model.max_requests, 0, false, 0, &model});
  std::vector<dispatch::ChainState> keyed = chains;
  for (std::size_t k = 0; k < keyed.size(); ++k) keyed[k].key = k + 1;
  policy.reset(keyed);
  Rng rng(13, "scheduling");
  struct Running {
    std::uint64_t id;
    int until_s, output;
  };
  std::vector<Running> running;
  std::uint64_t id = 0;
  PlacementTime time;
  int measured = 0;
  for (int second = 0; second < kSeconds; ++second) {
    for (const Running& one : running) {
      if (one.until_s <= second) policy.ended(one.id, one.output);
    }
    std::erase_if(running, [&](const Running& one) { return one.until_s <= second; });
    for (int i = 0; i < static_cast<int>(rate_per_s); ++i) {
      const double now_s = second + i / rate_per_s;
      const auto pair = lengths.draw(rng);
      const auto begin = std::chrono::steady_clock::now();
      const auto chain = policy.choose_for({++id, pair.input_tokens, 0}, now_s);
      if (chain) policy.placed(*chain, {id, pair.input_tokens, 0});
      if (second >= kStays) {
        time.request_s += std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
        ++measured;
      }
      if (!chain) continue;
      policy.first_token(id, now_s);
      running.push_back({id, second + kStays, pair.output_tokens});
    }
    for (int iteration = 0; iteration < 20; ++iteration) {
      for (std::size_t k = 0; k < keyed.size(); ++k) policy.iterated(k);
    }
  }
  time.request_s /= std::max(1, measured);
  for (std::size_t k = 0; k < keyed.size(); ++k) time.workers += policy.workers().worker(k).requests() > 0 ? 1 : 0;
  return time;
}

std::string fig_13(const Testbed& bed, const workload::LengthDistribution& lengths) {
  std::string text = "| requests/s | busy workers | a request | all requests of a second |\n|---|---|---|---|\n";
  for (const double rate : {5.0, 25.0, 100.0, 400.0}) {
    const PlacementTime time = placement_time(bed, lengths, rate);
    text += fmt::format("| {} | {} | {:.2g} us | {:.2g} ms |\n", rate, time.workers, time.request_s * 1e6,
                        time.request_s * rate * 1e3);
  }
  return text;
}

}  // namespace

Result<std::vector<PlannerTable>> aladdin_tables(const std::string& data, Executor& executor) {
  WINDLASS_ASSIGN_OR_RETURN(const auto all_lengths, sharegpt(data, kContext));
  WINDLASS_ASSIGN_OR_RETURN(const auto lengths, sharegpt(data, kMaxPrompt));
  // The first gap of an answer includes the iteration that was running; with fewer tokens, no placement could make up for that.
  WINDLASS_ASSIGN_OR_RETURN(const auto longer, sharegpt(data, kMaxPrompt, kMinDecoded));
  std::vector<Testbed> beds, decoding;
  for (const Setting& setting : kSettings) {
    if (std::string_view(setting.accelerator) != "a100-80gb") continue;
    beds.push_back(testbed(setting, lengths));
    decoding.push_back(testbed(setting, longer));
  }
  WINDLASS_ASSIGN_OR_RETURN(const std::string by_condition, conditions(data, executor));
  const Comparison mixed =
      compare(beds, {Rule::kWhole, Rule::kPowerOfTwo, Rule::kJsq, Rule::kBestFit, Rule::kAladdin, Rule::kAladdinKnown}, false,
              executor);
  const Comparison split =
      compare(decoding, {Rule::kPowerOfTwo, Rule::kJsq, Rule::kBestFit, Rule::kAladdin, Rule::kAladdinKnown}, true, executor);
  return std::vector<PlannerTable>{{"aladdin-table-3", table_3(all_lengths)},
                                   {"aladdin-savings", summary(mixed, split)},
                                   {"aladdin-fig-11", mixed.table},
                                   {"aladdin-fig-12", split.table},
                                   {"aladdin-equation-7", equation_7(beds, executor)},
                                   {"aladdin-fig-13", fig_13(beds.front(), lengths)},
                                   {"aladdin-conditions", by_condition},
                                   {"aladdin-exact", exact(beds, lengths)},
                                   {"aladdin-fig-11", charts::svg_of(mixed.chart), "svg"},
                                   {"aladdin-fig-12", charts::svg_of(split.chart), "svg"}};
}

}  // namespace windlass::bench
