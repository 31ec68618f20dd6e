// Fig. 8: the proposed composition with JFFC against BPRR (CG-BP and WS-RR) and PETALS, by number of servers and share of fast
// ones; and the sensitivity to PETALS' unpublished constants.
#include <map>
#include <optional>

#include <fmt/format.h>

#include "planner/chain/cg_bp.h"
#include "planner/chain/design_load.h"
#include "planner/chain/petals.h"
#include "planner/sim/session_simulation.h"
#include "planner/workload/synthetic_source.h"
#include "tests/bench/chains/experiments.h"

namespace windlass::bench {
namespace {

// Mean response in seconds; nullopt: no full chain, or unstable.
struct Cell {
  std::optional<double> proposed_s, tuned_s, bprr_s, bprr_backoff_s, petals_s, petals_share_s;
};

std::optional<double> sessions_s(const chain::Instance& instance, const chain::Placement& placement,
                                 const sim::SessionPolicy& policy, const std::vector<long>& slots, const Scale& scale,
                                 std::uint64_t seed) {
  workload::SyntheticSource source({instance.arrival_rate_per_s, 1, seed});
  sim::SessionSimulationOptions options;
  options.warm_up_requests = scale.requests / 10;
  options.max_requests = scale.requests + options.warm_up_requests;
  options.slots = slots;
  const auto result = sim::simulate_sessions(instance, placement, policy, source, options);
  return result.ok() ? std::optional(result->response.mean_s) : std::nullopt;
}

std::optional<double> petals_s(const chain::Instance& instance, const chain::PetalsOptions& options, const Scale& scale,
                               std::uint64_t seed, sim::SessionRouting routing = sim::SessionRouting::kPetals) {
  const auto placement = chain::petals_placement(instance, options);
  sim::SessionPolicy policy;
  policy.routing = routing;
  policy.start = sim::StartRule::kBackoff;
  policy.petals = options;
  return sessions_s(instance, placement, policy, chain::petals_cache_slots(instance, placement, options), scale, seed);
}

// Servers join PETALS in a random order.
chain::PetalsOptions joining_at_random(const chain::Instance& instance, std::uint64_t seed) {
  chain::PetalsOptions options;
  Rng rng(seed, "joining");
  options.join_order = random_order(rng, instance.servers.size());
  return options;
}

Cell run(const chain::Instance& instance, const Scale& scale, std::uint64_t seed) {
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
    cell.bprr_s = sessions_s(instance, placed.placement, policy, {}, scale, seed);
    policy.start = sim::StartRule::kBackoff;
    cell.bprr_backoff_s = sessions_s(instance, placed.placement, policy, {}, scale, seed);
  }
  chain::PetalsOptions petals = joining_at_random(instance, seed);
  cell.petals_s = petals_s(instance, petals, scale, seed);
  petals.cache_sessions_per_block = 2;
  petals.only_cache_share = true;
  cell.petals_share_s = petals_s(instance, petals, scale, seed);
  return cell;
}

}  // namespace

Report overall_experiment(const Inputs& inputs) {
  constexpr int kServers[] = {10, 20, 30, 40};
  constexpr double kShares[] = {0.1, 0.2, 0.3, 0.4};
  Scale scale = inputs.scale;
  scale.requests /= 5;  // simulating the baselines at the level of servers is slower
  const int seeds = scale.seeds;
  std::vector<Cell> cells(static_cast<std::size_t>(16 * seeds));
  for_each_index(16 * seeds, [&](int index) {
    const int at = index / seeds;
    const auto seed = static_cast<std::uint64_t>(index % seeds);
    cells[static_cast<std::size_t>(index)] =
        run(paper_instance(inputs.network, {kServers[at / 4], kShares[at % 4], 0.2}, seed), scale, seed);
  });

  Report report;
  report.tables = fmt::format(
      "Mean response in seconds over {} seeds with {} requests each, 0.2 requests/s. Proposed: GBP-CR (c = {}, stop rule) + "
      "GCA + JFFC; tuned c: by the "
      "lower bound. BPRR: CG-BP for the mean plus one deviation of the arrivals during a session, WS-RR, a request starting as "
      "soon as its caches are "
      "free; with retries: after 1, 2, 4, ... 60 s. PETALS: its placement in random order, its routing, retries; one session's "
      "cache a block reserved "
      "and all memory left used (A), or the cache share of its source alone, two sessions a block (B). A mean of hundreds of "
      "seconds is an overload: it "
      "grows with the length of the run. Reductions are of the means over the seeds in which both have a result, with that "
      "number of seeds.\n\n"
      "| J | eta | proposed | tuned c | BPRR | BPRR, retries | PETALS (A) | PETALS (B) | vs BPRR | vs BPRR, retries | vs "
      "PETALS (A) | vs PETALS (B) |\n"
      "|---|---|---|---|---|---|---|---|---|---|---|---|\n",
      seeds, scale.requests, kPaperCapacity);
  for (int at = 0; at < 16; ++at) {
    const auto column = [&](std::optional<double> Cell::*field) {
      std::vector<double> values;
      for (int seed = 0; seed < seeds; ++seed) {
        const Cell& cell = cells[static_cast<std::size_t>(at * seeds + seed)];
        if (cell.*field) values.push_back(*(cell.*field));
      }
      if (values.empty()) return std::string("no full chain");
      return with_interval(values, 1) +
             (static_cast<int>(values.size()) < seeds ? fmt::format(" ({} seeds)", values.size()) : "");
    };
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
    report.tables += fmt::format("| {} | {} |", kServers[at / 4], kShares[at % 4]);
    for (const auto field :
         {&Cell::proposed_s, &Cell::tuned_s, &Cell::bprr_s, &Cell::bprr_backoff_s, &Cell::petals_s, &Cell::petals_share_s}) {
      report.tables += " " + column(field) + " |";
    }
    for (const auto field : {&Cell::bprr_s, &Cell::bprr_backoff_s, &Cell::petals_s, &Cell::petals_share_s}) {
      report.tables += " " + reduction(field) + " |";
    }
    report.tables += "\n";
  }
  Chart chart{"Mean response, 20 servers", "share of fast servers", "seconds", {}, false};
  const std::pair<const char*, std::optional<double> Cell::*> curves[] = {{"proposed, c = 7", &Cell::proposed_s},
                                                                          {"proposed, tuned c", &Cell::tuned_s},
                                                                          {"BPRR", &Cell::bprr_s},
                                                                          {"BPRR with retries", &Cell::bprr_backoff_s},
                                                                          {"PETALS (A)", &Cell::petals_s},
                                                                          {"PETALS (B)", &Cell::petals_share_s}};
  for (const auto& [name, field] : curves) {
    ChartSeries series{name, {}};
    for (int share = 0; share < 4; ++share) {
      std::vector<double> values;
      for (int seed = 0; seed < seeds; ++seed) {
        const Cell& cell = cells[static_cast<std::size_t>((4 + share) * seeds + seed)];
        if (cell.*field) values.push_back(*(cell.*field));
      }
      if (!values.empty()) series.points.push_back(point_of(kShares[share], values));
    }
    chart.series.push_back(series);
  }
  report.figures.push_back({"fig8", chart});
  return report;
}

Report petals_sweep_experiment(const Inputs& inputs) {
  struct Variant {
    const char* name;
    double sessions;
    bool only_share;
    double penalty_s;
    double weight;
    bool optimised_order = false, optimised_number = false, optimised_routing = false;
  };
  constexpr Variant kVariants[] = {
      {"ours: 1 session a block, all free memory is cache, penalty 10 s", 1, false, 10, 1},
      {"2 sessions a block", 2, false, 10, 1},
      {"4 sessions a block", 4, false, 10, 1},
      {"8 sessions a block", 8, false, 10, 1},
      {"1 session a block and no more cache than that", 1, true, 10, 1},
      {"2 sessions a block and no more cache than that (its source's 4,096 tokens)", 2, true, 10, 1},
      {"4 sessions a block and no more cache than that", 4, true, 10, 1},
      {"8 sessions a block and no more cache than that", 8, true, 10, 1},
      {"no penalty for a full server", 1, false, 0, 1},
      {"network weighs nothing", 1, false, 10, 0},
      {"optimised order: servers join in CG-BP's", 1, false, 10, 1, true},
      {"optimised number: CG-BP's blocks per server", 1, false, 10, 1, false, true},
      {"optimised routing: WS-RR", 1, false, 10, 1, false, false, true},
      {"all three", 1, false, 10, 1, true, true, true}};
  Scale scale = inputs.scale;
  scale.requests /= 5;
  const int seeds = scale.seeds, variants = static_cast<int>(std::size(kVariants));
  std::vector<std::optional<double>> response(static_cast<std::size_t>(variants * seeds));
  for_each_index(variants * seeds, [&](int index) {
    const Variant& variant = kVariants[index / seeds];
    const auto seed = static_cast<std::uint64_t>(index % seeds);
    const auto instance = paper_instance(inputs.network, {}, seed);
    chain::PetalsOptions options = joining_at_random(instance, seed);
    options.cache_sessions_per_block = variant.sessions;
    options.only_cache_share = variant.only_share;
    options.no_room_penalty_s = variant.penalty_s;
    options.communication_weight = variant.weight;
    if (variant.optimised_order || variant.optimised_number) {
      const auto placed = chain::cg_bp(instance, chain::poisson_design_load(instance, instance.arrival_rate_per_s).requests);
      if (variant.optimised_order) options.join_order = placed.order;
      if (variant.optimised_number) {
        for (const chain::BlockRange& range : placed.placement) options.blocks.push_back(range.blocks);
      }
    }
    response[static_cast<std::size_t>(index)] = petals_s(
        instance, options, scale, seed, variant.optimised_routing ? sim::SessionRouting::kWsRr : sim::SessionRouting::kPetals);
  });
  Report report;
  report.tables =
      "J = 20, eta = 0.2, 0.2 requests/s; the last four are the ablations of the BPRR paper:\n\n| PETALS with | mean response "
      "(s) |\n|---|---|\n";
  for (int v = 0; v < variants; ++v) {
    std::vector<double> values;
    for (int seed = 0; seed < seeds; ++seed) {
      if (const auto& value = response[static_cast<std::size_t>(v * seeds + seed)]) values.push_back(*value);
    }
    report.tables +=
        fmt::format("| {} | {}{} |\n", kVariants[v].name, values.empty() ? "no full chain" : with_interval(values, 1),
                    static_cast<int>(values.size()) < seeds ? fmt::format(" ({} seeds)", values.size()) : "");
  }
  return report;
}

}  // namespace windlass::bench
