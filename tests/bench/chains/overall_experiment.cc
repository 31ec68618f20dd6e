// Fig. 8: the proposed composition with JFFC against BPRR (CG-BP and WS-RR) and PETALS, by number of servers and share of fast
// ones.
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/chain/cg_bp.h"
#include "planner/chain/design_load.h"
#include "tests/bench/chains/experiments.h"

namespace windlass::bench {
namespace {

// Mean response in seconds; nullopt: no full chain, or unstable.
struct Cell {
  std::optional<double> proposed_s, tuned_s, bprr_s, bprr_retries_s, petals_s, petals_capped_s;
};

Cell run(const Inputs& inputs, const PaperSetting& setting, const Scale& scale, std::uint64_t seed) {
  const chain::Instance instance = paper_instance(inputs.network, setting, seed);
  Cell cell;
  const auto jffc_s = [&](const Result<chain::Composition>& composed) -> std::optional<double> {
    if (!composed.ok() || !composed->stable) return std::nullopt;
    return simulate(instance, *composed, dispatch::PolicyKind::kJffc, instance.arrival_rate_per_s, scale, seed).response.mean_s;
  };
  cell.proposed_s = jffc_s(chain::compose(instance, kPaperCapacity));
  cell.tuned_s = jffc_s(chain::compose(instance, chain::Tuning::kLowerBound));

  const chain::DesignLoad load = chain::poisson_design_load(instance, instance.arrival_rate_per_s);
  if (load.requests > 0) {
    const auto placed = chain::cg_bp(instance, load.requests);
    sim::SessionPolicy policy;
    cell.bprr_s = simulate_routed(instance, placed.placement, policy, {}, scale, seed);
    policy.start = sim::StartRule::kBackoff;
    cell.bprr_retries_s = simulate_routed(instance, placed.placement, policy, {}, scale, seed);
  }
  const chain::PetalsOptions petals = paper_petals(inputs.network, setting.servers, seed);
  cell.petals_s = simulate_petals(instance, petals, scale, seed);
  cell.petals_capped_s = simulate_petals(instance, with_block_cap(instance, petals), scale, seed);
  return cell;
}

}  // namespace

Report overall_experiment(const Inputs& inputs) {
  Scale scale = inputs.scale;
  scale.requests /= 5;  // simulating the baselines at the level of servers is slower
  const int seeds = scale.seeds;
  std::vector<Cell> cells(static_cast<std::size_t>(16 * seeds));
  for_each_index(16 * seeds, [&](int index) {
    const int at = index / seeds;
    const auto seed = static_cast<std::uint64_t>(index % seeds);
    cells[static_cast<std::size_t>(index)] = run(inputs, {kFig8Servers[at / 4], kFig8Shares[at % 4], 0.2}, scale, seed);
  });

  Report report;
  report.tables = fmt::format(
      "Mean response in seconds over {} seeds with {} requests each, 0.2 requests/s. Proposed: GBP-CR (c = {}, stop rule) + "
      "GCA + JFFC; tuned c: by the lower bound. BPRR: CG-BP for the mean plus one deviation of the arrivals during a session, "
      "WS-RR, a request starting as soon as its caches are free; with retries: after 1, 2, 4, ... 60 s. PETALS: "
      "servers join in random order, its source's caches (4,096 tokens a block) and routing, retries. Cap: at most 4 "
      "blocks on a 20 GB server, and throughputs, as in the paper's published code. A mean of hundreds of "
      "seconds is an overload: it grows with the length of the run. Reductions are of the means over the seeds in which both "
      "have a result, with that number of seeds.\n\n"
      "| J | eta | proposed | tuned c | BPRR | BPRR, retries | PETALS | PETALS, cap | vs BPRR | vs BPRR, retries | vs "
      "PETALS | vs PETALS, cap |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      seeds, scale.requests, kPaperCapacity);
  for (int at = 0; at < 16; ++at) {
    const auto reduction = [&](std::optional<double> Cell::*field) {
      double ours = 0, theirs = 0;
      int both = 0;
      for (int seed = 0; seed < seeds; ++seed) {
        const Cell& cell = cells[static_cast<std::size_t>(at * seeds + seed)];
        if (!cell.proposed_s || !(cell.*field)) continue;
        ours += *cell.proposed_s;
        theirs += *(cell.*field);
        ++both;
      }
      return both > 0 ? fmt::format("{:.0f} % ({})", 100 * (1 - ours / theirs), both) : std::string("-");
    };
    report.tables += fmt::format("| {} | {} |", kFig8Servers[at / 4], kFig8Shares[at % 4]);
    for (const auto field :
         {&Cell::proposed_s, &Cell::tuned_s, &Cell::bprr_s, &Cell::bprr_retries_s, &Cell::petals_s, &Cell::petals_capped_s}) {
      report.tables += " " + of_seeds(over_seeds(cells, at, seeds, field), seeds) + " |";
    }
    for (const auto field : {&Cell::bprr_s, &Cell::bprr_retries_s, &Cell::petals_s, &Cell::petals_capped_s}) {
      report.tables += " " + reduction(field) + " |";
    }
    report.tables += "\n";
  }
  Chart chart{"Mean response, 20 servers", "share of fast servers", "seconds", {}, true};
  const std::pair<const char*, std::optional<double> Cell::*> curves[] = {{"proposed, c = 7", &Cell::proposed_s},
                                                                          {"proposed, tuned c", &Cell::tuned_s},
                                                                          {"BPRR", &Cell::bprr_s},
                                                                          {"BPRR with retries", &Cell::bprr_retries_s},
                                                                          {"PETALS", &Cell::petals_s},
                                                                          {"PETALS, cap of 4 blocks", &Cell::petals_capped_s}};
  for (const auto& [name, field] : curves) {
    ChartSeries series{name, {}};
    for (int share = 0; share < 4; ++share) {
      const auto values = over_seeds(cells, 4 + share, seeds, field);
      if (!values.empty()) series.points.push_back(point_of(kFig8Shares[share], values));
    }
    chart.series.push_back(series);
  }
  report.figures.push_back({"fig8", chart});
  return report;
}

}  // namespace windlass::bench
