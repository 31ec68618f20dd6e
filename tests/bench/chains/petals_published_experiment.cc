// PETALS in the settings of Sun et al., "Optimizing Resource Allocation for Geographically-Distributed Inference by Large
// Language Models", next to the times that their simulator gave (Tables 4, 5, 8 and 10, in brackets there).
//
// Times and delays are those of their scripts (TingyangSunJeff/LLM_inference_simulator: test_general_case_online.m and
// test_general_case_online_large.m). Tables 4 and 5 are in docs/BPRR_Paper_Summary.md of their later repository
// (load_balance_llm_simulator). BLOOM-176B, 20 tokens in.
#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "planner/chain/cg_bp.h"
#include "planner/chain/design_load.h"
#include "tests/bench/chains/experiments.h"

namespace windlass::bench {
namespace {

constexpr int kInputTokens = 20;
constexpr int kMaxSlowBlocks = 4;  // in the scripts
constexpr double kBlockGb = 2466437120.0 * 4.25 / 8 * 1.01 / 1e9, kCacheGbPerToken = 4.0 * 14336 / 1e9;
constexpr double kCacheTokens = 4096;  // PETALS' share a block
constexpr double kRates[] = {0.1, 0.5};
constexpr int kOutputTokens[] = {64, 128};
// Five random orders in a comment of test_general_case_online.m, from 0; the last two servers are the A100s.
constexpr int kOrders[5][9] = {{1, 8, 2, 6, 5, 4, 0, 3, 7},
                               {2, 0, 6, 8, 5, 3, 7, 1, 4},
                               {1, 7, 6, 8, 5, 2, 3, 4, 0},
                               {4, 0, 5, 2, 1, 6, 3, 8, 7},
                               {1, 2, 4, 3, 0, 6, 8, 5, 7}};

// Simulated seconds a token, by rate and output tokens; 0: not in our text of the paper.
struct Published {
  double petals_later[2][2];  // without the first token
  double petals[2][2];
  double bprr[2][2];
};

// Inputs of a script.
struct Script {
  int slow, fast;  // servers: slices and A100s
  double slow_gb, fast_gb;
  int requests;
  double petals_setup_s;  // added to every request of PETALS; 60 s to those of BPRR
};
constexpr Script kClusters{7, 2, 9.1, 79.138, 100, 250}, kNine{7, 2, 8.2, 79.13, 100, 250},
    kLarge{21, 5, 10.2, 84.973, 50, 350};

struct Setting {
  const char* name;
  const char* graph;  // of kGraphs; none: three clusters
  double slow_rtt_s;  // clusters: of the client to the slices
  double fast_rtt_s;  // and to the A100s
  Script script;
  Published published;
};

constexpr Setting kSettings[] = {
    // clang-format off
    {"clusters, client in 0", nullptr, 0.1, 0.1, kClusters,
     {{{1.40, 1.41}, {1.40, 1.41}}, {{5.33, 4.74}, {5.33, 4.74}}, {{1.59, 0.92}, {1.59, 0.92}}}},
    {"clusters, client in 1", nullptr, 0.1, 0.005, kClusters,
     {{{1.25, 1.27}, {1.25, 1.27}}, {{5.17, 4.58}, {5.17, 4.58}}, {{1.65, 0.83}, {1.65, 0.83}}}},
    {"clusters, client in 2", nullptr, 0.005, 0.1, kClusters,
     {{{0.93, 0.91}, {0.93, 0.91}}, {{4.85, 4.07}, {4.85, 4.07}}, {{1.59, 0.92}, {1.59, 0.92}}}},
    {"AboveNet", "Abvt", 0, 0, kNine,
     {{{0, 0}, {0, 0}}, {{4.75, 3.88}, {5.11, 4.10}}, {{1.63, 1.36}, {1.83, 1.05}}}},
    {"BellCanada", "Bellcanada", 0, 0, kLarge,
     {{{0.53, 0.73}, {0.68, 0.66}}, {{6.03, 3.49}, {6.19, 3.41}}, {{1.41, 0.92}, {1.41, 0.92}}}},
    {"GTS-CE", "GtsCe", 0, 0, kLarge,
     {{{0.61, 0.71}, {0.44, 0.67}}, {{6.12, 3.47}, {5.97, 3.37}}, {{1.41, 0.91}, {1.40, 0.91}}}}};
// clang-format on

// One run: slices first, as in their scripts.
struct Trial {
  chain::Instance instance;
  chain::Placement placement;  // empty: PETALS'
  chain::PetalsOptions options;
  sim::SessionPolicy policy;
  std::vector<workload::TraceRow> rows;
  std::vector<int> random_order;  // of joining servers
  double published_setup_s = 0;
};

Trial make_trial(const Inputs& inputs, const Setting& setting, double rate_per_s, int output_tokens, std::uint64_t seed) {
  Trial trial;
  const auto slow = static_cast<std::size_t>(setting.script.slow),
             servers = slow + static_cast<std::size_t>(setting.script.fast);
  chain::PetalsPings pings;
  if (setting.graph != nullptr) {
    const RoundTrips& rtt_s = inputs.graphs.at(setting.graph);
    Rng rng(seed, "places");
    const std::vector<int> order = random_order(rng, rtt_s.size());  // the client, then the servers
    for (std::size_t j = 0; j < servers; ++j) {
      const auto& from_s = rtt_s[static_cast<std::size_t>(order[j + 1])];
      pings.client_s.push_back(from_s[static_cast<std::size_t>(order[0])]);
      pings.server_s.emplace_back();
      for (std::size_t to = 0; to < servers; ++to) pings.server_s[j].push_back(from_s[static_cast<std::size_t>(order[to + 1])]);
    }
  } else {
    for (std::size_t j = 0; j < servers; ++j) {
      pings.client_s.push_back(j < slow ? setting.slow_rtt_s : setting.fast_rtt_s);
      pings.server_s.emplace_back();
      for (std::size_t to = 0; to < servers; ++to) pings.server_s[j].push_back((j < slow) == (to < slow) ? 0.005 : 0.1);
    }
  }

  const bool clusters = setting.graph == nullptr;
  const double token_overhead_s = clusters ? 0.05 : 0.1;
  const double input_overhead_s = clusters ? 0.055 : 0.001 * (0.7049 * kInputTokens + 67);
  trial.instance = {70, kBlockGb, kCacheGbPerToken * (kInputTokens + output_tokens), rate_per_s, 0.7, {}};
  for (std::size_t j = 0; j < servers; ++j) {
    const bool fast = j >= slow;
    const double decode_s = fast ? (clusters ? 0.0022197 : 0.0032197) : 0.0162488;
    const double prefill_s = clusters ? decode_s + (fast ? 0.005 : 0.035)
                                      : 0.001 * (fast ? 0.0743 * kInputTokens + 32.99 : 0.1041 * kInputTokens + 206.3547);
    const chain::TokenTimes times{prefill_s, 0, decode_s, pings.client_s[j] + input_overhead_s,
                                  pings.client_s[j] + token_overhead_s};
    const double later = output_tokens - 1;
    trial.instance.servers.push_back({fmt::format("s{}", j), fast ? setting.script.fast_gb : setting.script.slow_gb,
                                      times.communication_first_s + later * times.communication_s_per_token,
                                      prefill_s + later * decode_s, 1, times});
    trial.options.block_rates.push_back(fast ? 20829.38 : 2757.72);  // throughput_v5.json, tokens/s
  }
  trial.options.cache_sessions_per_block = kCacheTokens / (kInputTokens + output_tokens);
  for (std::size_t j = 0; j < servers; ++j) {
    const int blocks = chain::petals_blocks(trial.instance, static_cast<int>(j), trial.options);
    trial.options.blocks.push_back(j < slow ? std::min(blocks, kMaxSlowBlocks) : blocks);
  }
  trial.options.pings = std::move(pings);
  if (clusters) {
    const auto& order = kOrders[seed % std::size(kOrders)];
    trial.options.join_order.assign(std::begin(order), std::end(order));
  }
  Rng joining(seed, "joining");
  trial.random_order = random_order(joining, servers);
  if (trial.options.join_order.empty()) trial.options.join_order = trial.random_order;
  trial.policy.routing = sim::SessionRouting::kPetals;
  trial.policy.start = sim::StartRule::kBackoff;
  trial.policy.setup_s = clusters ? 0.1 : 0.07;
  trial.published_setup_s = setting.script.petals_setup_s;
  Rng arrivals(seed, "arrivals");
  double now_s = 0;
  for (int i = 0; i < setting.script.requests; ++i) {
    trial.rows.push_back({now_s, kInputTokens, output_tokens});
    now_s += arrivals.exponential(rate_per_s);
  }
  return trial;
}

// --- what one rule was here before it followed PETALS' source

void route_by_true_times(Trial& trial) { trial.options.pings.reset(); }
void join_by_decode_time(Trial& trial) { trial.options.block_rates.clear(); }
void join_in_random_order(Trial& trial) { trial.options.join_order = trial.random_order; }
// 53 and 4 blocks, and all that the paper's memories leave is cache.
void cache_in_all_memory(Trial& trial) {
  trial.options.only_cache_share = false;
  for (std::size_t j = 0; j < trial.instance.servers.size(); ++j) {
    double& memory_gb = trial.instance.servers[j].memory_gb;
    const bool fast = memory_gb > 20;
    memory_gb = fast ? 79.13 : 8.2;
    trial.options.blocks[j] = fast ? 53 : kMaxSlowBlocks;
  }
}

void as_before(Trial& trial) {
  route_by_true_times(trial);
  join_by_decode_time(trial);
  join_in_random_order(trial);
  cache_in_all_memory(trial);
}

// --- as in the published scripts

void keep_claims(Trial& trial) { trial.policy.start = sim::StartRule::kClaimAndRetry; }
void add_setup(Trial& trial) { trial.policy.setup_s += trial.published_setup_s; }

// CG-BP and WS-RR with retries, and 60 s a request as published: a control of the settings.
void as_bprr(Trial& trial) {
  const chain::DesignLoad load = chain::poisson_design_load(trial.instance, trial.instance.arrival_rate_per_s);
  trial.placement = chain::cg_bp(trial.instance, load.requests).placement;
  trial.policy.routing = sim::SessionRouting::kWsRr;
  trial.policy.setup_s += 60;
  keep_claims(trial);
}

struct Variant {
  const char* name;
  std::vector<void (*)(Trial&)> changes;
};

const Variant kVariants[] = {
    {"**as it was here**", {as_before}},
    {"as it was, but PETALS' server choice", {join_by_decode_time, join_in_random_order, cache_in_all_memory}},
    {"as it was, but 4,096 tokens of cache a block and no more, in the memories of the scripts",
     {route_by_true_times, join_by_decode_time, join_in_random_order}},
    {"as it was, but servers join with the throughputs that PETALS measured",
     {route_by_true_times, join_in_random_order, cache_in_all_memory}},
    {"as it was, but in the clusters servers join in the five orders of the published script, not in any",
     {route_by_true_times, join_by_decode_time, cache_in_all_memory}},
    {"as it was, but the last two", {route_by_true_times, cache_in_all_memory}},
    {"as it was, but retries keep their claims (published code)", {as_before, keep_claims}},
    {"as it was, but 250 or 350 s a request (published code)", {as_before, add_setup}},
    {"**now**", {}},
    {"now, but retries keep their claims", {keep_claims}},
    {"now, but 250 or 350 s a request", {add_setup}},
    {"**published code**: now with both", {keep_claims, add_setup}},
    {"control: BPRR with 60 s a request (published code)", {as_bprr}}};
constexpr std::size_t kBefore = 0, kNow = 8, kCode = 11, kBprr = 12;

// Seconds a token, over all tokens and without the first ones.
struct Times {
  double all_s = 0, later_s = 0;
};

std::optional<Times> run(Trial trial, const Variant& variant, int output_tokens) {
  for (const auto change : variant.changes) change(trial);
  sim::SessionSimulationOptions options;
  if (trial.placement.empty()) {
    trial.placement = chain::petals_placement(trial.instance, trial.options);
    options.slots = chain::petals_cache_slots(trial.instance, trial.placement, trial.options);
  }
  trial.policy.petals = trial.options;
  Times times;
  options.on_event = [&](const sim::SessionEvent& event) {
    if (event.step != sim::SessionStep::kStarted) return;
    for (std::size_t hop = 0; hop < event.route.servers.size(); ++hop) {
      const auto& server = trial.instance.servers[static_cast<std::size_t>(event.route.servers[hop])];
      times.later_s += server.token_times->communication_s_per_token +
                       server.token_times->block_decode_s_per_token * event.route.blocks[hop];
    }
  };
  workload::TraceSource source(trial.rows);
  const auto result = sim::simulate_sessions(trial.instance, trial.placement, trial.policy, source, options);
  if (!result.ok()) return std::nullopt;
  times.later_s /= static_cast<double>(trial.rows.size());
  times.all_s = result->response.mean_s / output_tokens;
  return times;
}

// The mean over the runs with a full chain; NaN without any.
double mean_of(const std::vector<std::optional<Times>>& runs, double Times::*field) {
  double sum = 0, count = 0;
  for (const auto& run : runs) {
    if (!run) continue;
    sum += (*run).*field;
    ++count;
  }
  return sum / count;
}

struct Ratios {
  std::vector<double> values;

  [[nodiscard]] std::string text() const {
    if (values.empty()) return "-";
    double logs = 0;
    for (const double value : values) logs += std::log(value);
    return fmt::format("{:.2f} ({:.2f} to {:.2f})", std::exp(logs / static_cast<double>(values.size())),
                       *std::min_element(values.begin(), values.end()), *std::max_element(values.begin(), values.end()));
  }
};

}  // namespace

Report petals_published_experiment(const Inputs& inputs) {
  constexpr std::size_t kCells = std::size_t{4} * std::size(kSettings), kRuns = kCells * std::size(kVariants);
  std::vector<Times> times(kRuns);
  for_each_index(static_cast<int>(kRuns), [&](int index) {
    const auto at = static_cast<std::size_t>(index), cell = at / std::size(kVariants), variant = at % std::size(kVariants);
    const int output_tokens = kOutputTokens[cell % 2];
    std::vector<std::optional<Times>> runs;
    runs.reserve(static_cast<std::size_t>(inputs.scale.seeds));
    for (int seed = 0; seed < inputs.scale.seeds; ++seed) {
      runs.push_back(
          run(make_trial(inputs, kSettings[cell / 4], kRates[cell / 2 % 2], output_tokens, static_cast<std::uint64_t>(seed)),
              kVariants[variant], output_tokens));
    }
    times[at] = {mean_of(runs, &Times::all_s), mean_of(runs, &Times::later_s)};
  });
  const auto of = [&](std::size_t cell, std::size_t variant) { return times[cell * std::size(kVariants) + variant]; };

  Report report;
  report.tables = fmt::format(
      "Seconds a token over {} seeds; ratios to the published simulator in brackets. Published code: now, with retries that "
      "keep "
      "their claims and with 250 s for every request, 350 s in BellCanada and GTS-CE.\n\n"
      "| setting | requests/s | tokens out | later tokens, published | it was | now | all tokens, published | it was | now | "
      "published code |\n|---|---|---|---|---|---|---|---|---|---|\n",
      inputs.scale.seeds);
  for (std::size_t cell = 0; cell < kCells; ++cell) {
    const std::size_t rate = cell / 2 % 2, tokens = cell % 2;
    const Setting& setting = kSettings[cell / 4];
    const double later = setting.published.petals_later[rate][tokens], all = setting.published.petals[rate][tokens];
    const auto against = [](double ours, double published) {
      return published > 0 ? fmt::format("{:.2f} ({:.2f})", ours, ours / published) : fmt::format("{:.2f}", ours);
    };
    report.tables += fmt::format("| {} | {} | {} | {} | {} | {} | {:.2f} | {} | {} | {} |\n", setting.name, kRates[rate],
                                 kOutputTokens[tokens], later > 0 ? fmt::format("{:.2f}", later) : "-",
                                 against(of(cell, kBefore).later_s, later), against(of(cell, kNow).later_s, later), all,
                                 against(of(cell, kBefore).all_s, all), against(of(cell, kNow).all_s, all),
                                 against(of(cell, kCode).all_s, all));
  }
  report.tables +=
      "\nRatios of ours to the published simulator, geometric mean (least to most) over these rows. One rule at a time:\n\n"
      "| rules | later tokens | all tokens |\n|---|---|---|\n";
  for (std::size_t v = 0; v < std::size(kVariants); ++v) {
    Ratios later, all;
    for (std::size_t cell = 0; cell < kCells; ++cell) {
      const Published& published = kSettings[cell / 4].published;
      const std::size_t rate = cell / 2 % 2, tokens = cell % 2;
      if (v != kBprr && published.petals_later[rate][tokens] > 0) {
        later.values.push_back(of(cell, v).later_s / published.petals_later[rate][tokens]);
      }
      all.values.push_back(of(cell, v).all_s / (v == kBprr ? published.bprr : published.petals)[rate][tokens]);
    }
    report.tables += fmt::format("| {} | {} | {} |\n", kVariants[v].name, later.text(), all.text());
  }
  return report;
}

}  // namespace windlass::bench
