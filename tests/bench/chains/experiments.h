// Reproduces the results of the two papers on server chains: one function per figure or table, each writing a Markdown table
// and SVG charts. `scripts/bench chains` runs them and puts the tables into docs/algorithms/chains.md.
//
// Setting of Section 4.1.1 of Sun, He, Hou 2026: L = 70, s_m = 1.32 GB, s_c = 0.11 GB; a share eta of the servers has 40 GB and
// 109 ms per block and request, the others 20 GB and 175 ms; communication is the RTT to the orchestrator plus 18 ms, once per
// request, with orchestrator and servers at random places of the RIPE Atlas network.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/cli/charts/svg_chart.h"
#include "planner/base/rng.h"
#include "planner/chain/compose.h"
#include "planner/chain/petals.h"
#include "planner/dispatch/policies.h"
#include "planner/sim/recorder.h"
#include "planner/sim/session_simulation.h"
#include "planner/workload/request_source.h"
#include "planner/workload/trace.h"
#include "tests/bench/repetita.h"
#include "tests/bench/ripe_network.h"

namespace windlass::bench {

using charts::Chart;
using charts::ChartPoint;
using charts::ChartSeries;

struct Scale {
  int seeds = 20;
  std::int64_t requests = 100'000;  // measured per seed and point
  bool warm_up = true;              // a tenth of them before
};

struct Inputs {
  RipeNetwork network;
  std::vector<workload::TraceRow> code_trace;
  Scale scale;
  std::map<std::string, RoundTrips> graphs;  // by the names below
};

inline constexpr const char* kGraphs[] = {"Abvt", "Bellcanada", "GtsCe"};  // topology/NAME.graph

// Output of an experiment: `tables` is Markdown; each chart becomes a file.
struct Report {
  struct Figure {
    std::string file;  // without the extension
    Chart chart;
  };
  std::string tables;
  std::vector<Figure> figures;
};

struct PaperSetting {
  int servers = 20;         // J
  double fast_share = 0.2;  // eta
  double arrival_rate_per_s = 0.2;
};

inline constexpr int kPaperCapacity = 7;  // c
// Fig. 8.
inline constexpr int kFig8Servers[] = {10, 20, 30, 40};
inline constexpr double kFig8Shares[] = {0.1, 0.2, 0.3, 0.4};

[[nodiscard]] chain::Instance paper_instance(const RipeNetwork& network, const PaperSetting& setting, std::uint64_t seed);

// PETALS on that instance: servers join in a random order, and pings are the network's RTTs.
[[nodiscard]] chain::PetalsOptions paper_petals(const RipeNetwork& network, int servers, std::uint64_t seed);

// GBP-CR without its stop rule, then GCA: every server is placed (Fig. 4 to 7).
[[nodiscard]] chain::Composition compose_all(const chain::Instance& instance, int capacity);

// Mean response time of the chains under a policy, with Poisson arrivals and exponential sizes. The seed fixes arrivals and
// sizes.
[[nodiscard]] sim::SimulationResult simulate(const chain::Instance& instance, const chain::Composition& composition,
                                             dispatch::PolicyKind policy, double rate_per_s, const Scale& scale,
                                             std::uint64_t seed);

// Mean response in seconds of requests that are routed over servers, with the same arrivals and sizes; none without a full
// chain. `slots`: as in SessionSimulationOptions.
[[nodiscard]] std::optional<double> simulate_routed(const chain::Instance& instance, const chain::Placement& placement,
                                                    const sim::SessionPolicy& policy, const std::vector<long>& slots,
                                                    const Scale& scale, std::uint64_t seed);

// The same with PETALS' placement and caches.
[[nodiscard]] std::optional<double> simulate_petals(const chain::Instance& instance, const chain::PetalsOptions& options,
                                                    const Scale& scale, std::uint64_t seed,
                                                    sim::SessionRouting routing = sim::SessionRouting::kPetals,
                                                    sim::StartRule start = sim::StartRule::kBackoff);

// PETALS with at most four blocks on every 20 GB server, and with the throughputs by which servers join there: both as in the
// paper's published code, which has them from the A100 and the 10 GB slices of the BPRR paper.
[[nodiscard]] chain::PetalsOptions with_block_cap(const chain::Instance& instance, chain::PetalsOptions options);

// 0 ... count - 1 in random order (Fisher and Yates). REQUIRES: count > 0.
[[nodiscard]] std::vector<int> random_order(Rng& rng, std::size_t count);

// Runs body(0) ... body(count - 1) on all cores; each call stores its own result by index.
void for_each_index(int count, const std::function<void(int)>& body);

// Mean and 95 % half-width over seeds, as text ("12.3 ± 0.4") and as a point.
[[nodiscard]] std::string with_interval(const std::vector<double>& values, int decimals);
[[nodiscard]] ChartPoint point_of(double x, const std::vector<double>& values);

// The results that some of the seeds of a cell have. `cells`: all seeds of the first one, then of the next.
template <class Cell>
[[nodiscard]] std::vector<double> over_seeds(const std::vector<Cell>& cells, int cell, int seeds,
                                             std::optional<double> Cell::*field) {
  std::vector<double> values;
  const auto begin = cells.begin() + static_cast<std::ptrdiff_t>(cell) * seeds;
  std::for_each(begin, begin + seeds, [&](const Cell& one) {
    if (one.*field) values.push_back(*(one.*field));
  });
  return values;
}
// with_interval(), and how many of the seeds that is; "no full chain" without any.
[[nodiscard]] std::string of_seeds(const std::vector<double>& values, int seeds);

[[nodiscard]] Report placement_experiment(const Inputs& inputs);         // Fig. 3
[[nodiscard]] Report cache_experiment(const Inputs& inputs);             // Fig. 4
[[nodiscard]] Report policy_experiment(const Inputs& inputs);            // Fig. 5
[[nodiscard]] Report capacity_experiment(const Inputs& inputs);          // Fig. 6 and 7
[[nodiscard]] Report overall_experiment(const Inputs& inputs);           // Fig. 8
[[nodiscard]] Report trace_experiment(const Inputs& inputs);             // Table 1
[[nodiscard]] Report block_counts_experiment(const Inputs& inputs);      // bprr_petals, Section 4.2
[[nodiscard]] Report petals_experiment(const Inputs& inputs);            // what each of PETALS' rules and constants does
[[nodiscard]] Report petals_fig8_experiment(const Inputs& inputs);       // Fig. 8 as its published code has it
[[nodiscard]] Report petals_published_experiment(const Inputs& inputs);  // PETALS in the tables of bprr_petals

}  // namespace windlass::bench
