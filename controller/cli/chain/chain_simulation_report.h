// The results of `windlass chain simulate` over all replications, as JSON and as a table. Pure.
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

// Statistics of one kind of time. Each figure is the mean over the replications' own figures; max_s is the largest of all.
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
  std::string trace;                 // path of the trace; empty: generated requests
  std::optional<double> rate_per_s;  // measured arrival rate; nullopt: all requests arrived at the same time
  std::optional<double> gap_cv;
  std::int64_t warm_up_requests = 0;
  std::uint64_t seed = 1;  // of the first replication; each later one adds 1
  int replications = 1;

  std::int64_t requests = 0;  // measured requests of all replications
  double simulated_s = 0;     // over all replications
  double wall_s = 0;
  TimeEstimate waiting;
  TimeEstimate service;
  TimeEstimate response;
  sim::WaitingByTenth waiting_by_tenth;  // mean waiting per tenth of the measured requests, in order of arrival
};

// Fills the measured part of the report. REQUIRES: at least one result.
void add_results(ChainSimulationReport& report, std::span<const sim::SimulationResult> results);

// Includes whether the chains can serve the demand, and how much of their capacity it takes.
[[nodiscard]] nlohmann::ordered_json report_json(const ChosenChains& chosen, const ChainSimulationReport& report);
[[nodiscard]] std::string report_text(const ChosenChains& chosen, const ChainSimulationReport& report);

}  // namespace windlass::cli
