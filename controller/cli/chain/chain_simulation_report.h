// What `windlass chain simulate` found, over all replications, as JSON and as a table. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "controller/cli/console/chain_choice.h"
#include "planner/sim/recorder.h"

namespace windlass::cli {

// One kind of time over the replications: each figure is the mean of the replications' own, the largest apart.
struct TimeEstimate {
  sim::MeanEstimate mean;
  double standard_deviation_s = 0;
  double p50_s = 0;
  double p95_s = 0;
  double p99_s = 0;
  double max_s = 0;
};

struct ChainSimulationReport {
  std::string policy;
  std::string trace;                 // the file; empty: made-up requests
  std::optional<double> rate_per_s;  // of the requests that came; none: all came at once
  std::optional<double> gap_cv;
  std::int64_t warm_up_requests = 0;
  std::uint64_t seed = 1;  // of the first replication; each further one counts up
  int replications = 1;

  std::int64_t requests = 0;  // measured, over all replications
  double simulated_s = 0;     // over all replications
  double wall_s = 0;
  TimeEstimate waiting;
  TimeEstimate service;
  TimeEstimate response;
  sim::WaitingByTenth waiting_by_tenth;  // of the measured requests as they came
};

// Fills the measured part of the report. REQUIRES: at least one result.
void add_results(ChainSimulationReport& report, std::span<const sim::SimulationResult> results);

// Whether and how far the demand that came is within what the chains serve.
[[nodiscard]] nlohmann::ordered_json report_json(const ChosenChains& chosen, const ChainSimulationReport& report);
[[nodiscard]] std::string report_text(const ChosenChains& chosen, const ChainSimulationReport& report);

}  // namespace windlass::cli
