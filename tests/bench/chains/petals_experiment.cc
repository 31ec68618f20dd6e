// What each of PETALS' rules and constants does in the setting of Fig. 8, one changed at a time, and Fig. 8 as the paper's
// published code has it (TingyangSunJeff/load_balance_llm_simulator, test_overall_comparison_v4.m).
#include <functional>
#include <iterator>
#include <optional>

#include <fmt/format.h>

#include "planner/chain/cg_bp.h"
#include "planner/chain/design_load.h"
#include "tests/bench/chains/experiments.h"

namespace windlass::bench {
namespace {

struct Trial {
  chain::Instance instance;
  chain::PetalsOptions options;
  sim::SessionRouting routing = sim::SessionRouting::kPetals;
  sim::StartRule start = sim::StartRule::kBackoff;

  // Each makes one rule what it was here before it followed PETALS' source.
  void route_by_true_times() { options.pings.reset(); }
  void cache_in_all_memory() {
    options.cache_sessions_per_block = 1;
    options.only_cache_share = false;
  }
  void as_before() {
    route_by_true_times();
    cache_in_all_memory();
  }

  void keep_claims() { start = sim::StartRule::kClaimAndRetry; }
  void start_when_free() { start = sim::StartRule::kWhenFree; }
  void join_in_list_order() { options.join_order.clear(); }
  void cap_blocks() { options = with_block_cap(instance, options); }
  // Every token takes a round trip and the input 50 ms more; the paper's text has one round trip and 18 ms a request.
  void communicate_by_token() {
    for (chain::Server& server : instance.servers) {
      server.communication_s = options.output_tokens * (server.communication_s - 0.018) + 0.05;
    }
  }
  void as_fig8_code() {
    cap_blocks();
    start_when_free();
    communicate_by_token();
  }

  [[nodiscard]] chain::ConservativePlacement conservative() const {
    return chain::cg_bp(instance, chain::poisson_design_load(instance, instance.arrival_rate_per_s).requests);
  }
  void take_order() { options.join_order = conservative().order; }
  void take_numbers() {
    for (const chain::BlockRange& range : conservative().placement) options.blocks.push_back(range.blocks);
    options.only_cache_share = false;
  }
};

struct Variant {
  const char* name;
  std::function<void(Trial&)> change;
};

const Variant kVariants[] = {
    {"**as it was here**: true times as weights, 2,048 tokens a block reserved and all free memory as cache",
     [](Trial& t) { t.as_before(); }},
    {"as it was, but PETALS' server choice", [](Trial& t) { t.cache_in_all_memory(); }},
    {"as it was, but 4,096 tokens of cache a block and no more", [](Trial& t) { t.route_by_true_times(); }},
    {"as it was, but retries keep their claims (BPRR's code)",
     [](Trial& t) {
       t.as_before();
       t.keep_claims();
     }},
    {"as it was, but at most 4 blocks on a 20 GB server (code of Fig. 8)",
     [](Trial& t) {
       t.as_before();
       t.cap_blocks();
     }},
    {"as it was, but fast servers join first instead of in random order",
     [](Trial& t) {
       t.as_before();
       t.join_in_list_order();
     }},
    {"**PETALS**: its server choice, 4,096 tokens of cache a block and no more", [](Trial&) {}},
    {"PETALS, but fast servers join first", [](Trial& t) { t.join_in_list_order(); }},
    {"PETALS, but 2,048 tokens of cache a block", [](Trial& t) { t.options.cache_sessions_per_block = 1; }},
    {"PETALS, but 8,192 tokens of cache a block (a later version)", [](Trial& t) { t.options.cache_sessions_per_block = 4; }},
    {"PETALS, but no penalty for a full server", [](Trial& t) { t.options.no_room_penalty_s = 0; }},
    {"PETALS, but retries keep their claims (BPRR's code)", [](Trial& t) { t.keep_claims(); }},
    {"PETALS, but starts as soon as caches are free (code of Fig. 8)", [](Trial& t) { t.start_when_free(); }},
    {"PETALS, but at most 4 blocks on a 20 GB server (code of Fig. 8)", [](Trial& t) { t.cap_blocks(); }},
    {"PETALS, but a round trip a token (code of Fig. 8)", [](Trial& t) { t.communicate_by_token(); }},
    {"**code of Fig. 8**: the last three", [](Trial& t) { t.as_fig8_code(); }},
    {"optimised order: servers join in CG-BP's", [](Trial& t) { t.take_order(); }},
    {"optimised number: CG-BP's blocks per server, the rest is cache", [](Trial& t) { t.take_numbers(); }},
    {"optimised routing: WS-RR", [](Trial& t) { t.routing = sim::SessionRouting::kWsRr; }},
    {"all three", [](Trial& t) {
       t.take_order();
       t.take_numbers();
       t.routing = sim::SessionRouting::kWsRr;
     }}};

// The first requests of a run from an empty system, as the published code simulates it.
constexpr Scale kFirstRequests{1, 300, false};

std::optional<double> mean_response_s(const Trial& trial, const Scale& scale, std::uint64_t seed) {
  return simulate_petals(trial.instance, trial.options, scale, seed, trial.routing, trial.start);
}

}  // namespace

Report petals_experiment(const Inputs& inputs) {
  Scale scale = inputs.scale;
  scale.requests /= 5;
  const int seeds = scale.seeds, variants = static_cast<int>(std::size(kVariants));
  const PaperSetting setting;
  struct Cell {
    std::optional<double> first_s, steady_s;
  };
  std::vector<Cell> cells(static_cast<std::size_t>(variants * seeds));
  for_each_index(variants * seeds, [&](int index) {
    const auto seed = static_cast<std::uint64_t>(index % seeds);
    Trial trial{paper_instance(inputs.network, setting, seed), paper_petals(inputs.network, setting.servers, seed)};
    kVariants[index / seeds].change(trial);
    cells[static_cast<std::size_t>(index)] = {mean_response_s(trial, kFirstRequests, seed),
                                              mean_response_s(trial, scale, seed)};
  });
  Report report;
  report.tables = fmt::format(
      "Mean response in seconds; J = {}, eta = {}, {} requests/s, {} seeds. The last four are the ablations of the BPRR "
      "paper.\n\n"
      "| rules | first {} requests | {} requests after a warm-up |\n|---|---|---|\n",
      setting.servers, setting.fast_share, setting.arrival_rate_per_s, seeds, kFirstRequests.requests, scale.requests);
  for (int v = 0; v < variants; ++v) {
    const auto text = [&](std::optional<double> Cell::*field) { return of_seeds(over_seeds(cells, v, seeds, field), seeds); };
    report.tables += fmt::format("| {} | {} | {} |\n", kVariants[v].name, text(&Cell::first_s), text(&Cell::steady_s));
  }
  return report;
}

Report petals_fig8_experiment(const Inputs& inputs) {
  struct Cell {
    std::optional<double> before_s, now_s, code_s, proposed_s;  // the last two with a round trip a token
  };
  const int seeds = inputs.scale.seeds;
  std::vector<Cell> cells(static_cast<std::size_t>(16 * seeds));
  for_each_index(16 * seeds, [&](int index) {
    const int at = index / seeds;
    const auto seed = static_cast<std::uint64_t>(index % seeds);
    const PaperSetting setting{kFig8Servers[at / 4], kFig8Shares[at % 4], 0.2};
    const Trial now{paper_instance(inputs.network, setting, seed), paper_petals(inputs.network, setting.servers, seed)};
    Trial before = now, code = now;
    before.as_before();
    code.as_fig8_code();
    Cell& cell = cells[static_cast<std::size_t>(index)];
    cell = {mean_response_s(before, kFirstRequests, seed), mean_response_s(now, kFirstRequests, seed),
            mean_response_s(code, kFirstRequests, seed), std::nullopt};
    if (const auto composed = chain::compose(code.instance, kPaperCapacity); composed.ok()) {
      cell.proposed_s =
          simulate(code.instance, *composed, dispatch::PolicyKind::kJffc, setting.arrival_rate_per_s, kFirstRequests, seed)
              .response.mean_s;
    }
  });
  Report report;
  report.tables = fmt::format(
      "Mean response in seconds of the first {} requests over {} seeds; ratios to the code of Fig. 8 in brackets. The code: at "
      "most 4 blocks on a 20 GB server, a round trip a token, starts as soon as caches are free.\n\n"
      "| J | eta | PETALS, as it was | PETALS | PETALS, code of Fig. 8 | proposed (c = {}), a round trip a token | reduction, "
      "code "
      "of Fig. 8 |\n|---|---|---|---|---|---|---|\n",
      kFirstRequests.requests, seeds, kPaperCapacity);
  for (int at = 0; at < 16; ++at) {
    const auto values = [&](std::optional<double> Cell::*field) { return over_seeds(cells, at, seeds, field); };
    const std::vector<double> code = values(&Cell::code_s), proposed = values(&Cell::proposed_s);
    const auto ratio = [&](std::optional<double> Cell::*field) {
      const std::vector<double> ours = values(field);
      const bool both = !ours.empty() && !code.empty();
      return of_seeds(ours, seeds) + (both ? fmt::format(" ({:.2f})", point_of(0, ours).y / point_of(0, code).y) : "");
    };
    const bool both = !code.empty() && !proposed.empty();
    report.tables += fmt::format(
        "| {} | {} | {} | {} | {} | {} | {} |\n", kFig8Servers[at / 4], kFig8Shares[at % 4], ratio(&Cell::before_s),
        ratio(&Cell::now_s), of_seeds(code, seeds), of_seeds(proposed, seeds),
        both ? fmt::format("{:.0f} %", 100 * (1 - point_of(0, proposed).y / point_of(0, code).y)) : std::string("-"));
  }
  return report;
}

}  // namespace windlass::bench
