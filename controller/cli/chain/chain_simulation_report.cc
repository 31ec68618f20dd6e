// Writes the report of `windlass chain simulate`; see chain_simulation_report.h.
#include "controller/cli/chain/chain_simulation_report.h"

#include <algorithm>
#include <cassert>
#include <cmath>

#include <fmt/format.h>

#include "controller/cli/console/text_table.h"

namespace windlass::cli {
namespace {

using Json = nlohmann::ordered_json;

TimeEstimate estimate(std::span<const sim::SimulationResult> results, sim::TimeSummary sim::SimulationResult::*kind) {
  TimeEstimate estimate;
  std::vector<double> means;
  const double n = static_cast<double>(results.size());
  for (const auto& result : results) {
    const sim::TimeSummary& summary = result.*kind;
    means.push_back(summary.mean_s);
    estimate.standard_deviation_s += summary.standard_deviation_s / n;
    estimate.p50_s += summary.p50_s / n;
    estimate.p95_s += summary.p95_s / n;
    estimate.p99_s += summary.p99_s / n;
    estimate.max_s = std::max(estimate.max_s, summary.max_s);
  }
  estimate.mean = sim::mean_over_replications(means);
  return estimate;
}

template <class Value>
Json or_null(const std::optional<Value>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json time_json(const TimeEstimate& time) {
  return {{"meanSeconds", time.mean.mean},
          {"meanHalfWidthSeconds", or_null(time.mean.half_width)},
          {"standardDeviationSeconds", time.standard_deviation_s},
          {"p50", time.p50_s},
          {"p95", time.p95_s},
          {"p99", time.p99_s},
          {"maxSeconds", time.max_s}};
}

bool session_policy(const ChainSimulationReport& report) { return report.policy == "ws-rr" || report.policy == "petals"; }

// The arrival rate as a share of the chains' total service rate; nullopt if all requests arrived at the same time.
std::optional<double> load_of(const ChosenChains& chosen, const ChainSimulationReport& report) {
  const double nu = chosen.composition.total_service_rate_per_s;
  if (!report.rate_per_s || nu <= 0) return std::nullopt;
  return *report.rate_per_s / nu;
}

// Theorem 3.7 holds for JFFC with Poisson arrivals and exponential sizes only.
bool within_theorem(const ChosenChains& chosen, const ChainSimulationReport& report) {
  return report.policy == "jffc" && report.trace.empty() && report.gap_cv == 1.0 && chosen.composition.mean_response_lower_s &&
         chosen.composition.mean_response_upper_s;
}

bool waiting_grows(const ChainSimulationReport& report) {
  return sim::waiting_grows(report.waiting_by_tenth, report.service.mean.mean);
}

}  // namespace

void add_results(ChainSimulationReport& report, std::span<const sim::SimulationResult> results) {
  assert(!results.empty());
  report.replications = static_cast<int>(results.size());
  for (const auto& result : results) {
    report.requests += result.requests;
    report.simulated_s += result.simulated_s;
  }
  report.waiting = estimate(results, &sim::SimulationResult::waiting);
  report.service = estimate(results, &sim::SimulationResult::service);
  report.response = estimate(results, &sim::SimulationResult::response);
  std::vector<sim::WaitingByTenth> tenths;
  for (const auto& result : results) tenths.push_back(result.waiting_by_tenth);
  report.waiting_by_tenth = sim::mean_by_tenth(tenths);
}

Json report_json(const ChosenChains& chosen, const ChainSimulationReport& report) {
  const chain::Composition& composition = chosen.composition;
  const auto load = load_of(chosen, report);
  Json bounds = nullptr;
  if (within_theorem(chosen, report)) {
    bounds = {{"meanResponseTimeLowerSeconds", *composition.mean_response_lower_s},
              {"meanResponseTimeUpperSeconds", *composition.mean_response_upper_s}};
  }
  return {{"policy", report.policy},
          {"placement", chosen.placement},
          {"capacity", composition.capacity > 0 ? Json(composition.capacity) : Json(nullptr)},
          {"totalCapacity", composition.total_capacity},
          {"totalServiceRatePerSecond", composition.total_service_rate_per_s},
          {"arrivalRate", or_null(report.rate_per_s)},
          {"arrivalCV", or_null(report.gap_cv)},
          {"load", or_null(load)},
          {"stable", load && *load < 1},
          {"meetsMaxLoad", load && *load <= chosen.instance.max_load},
          {"waitingGrows", waiting_grows(report)},
          {"meanResponseTimeSeconds", report.response.mean.mean},
          {"p50", report.response.p50_s},
          {"p95", report.response.p95_s},
          {"p99", report.response.p99_s},
          {"meanWaitingTimeSeconds", report.waiting.mean.mean},
          {"meanServiceTimeSeconds", report.service.mean.mean},
          {"response", time_json(report.response)},
          {"waiting", time_json(report.waiting)},
          {"service", time_json(report.service)},
          {"confidenceLevel", 0.95},
          {"bounds", std::move(bounds)},
          {"requests", report.requests},
          {"warmUpRequests", report.warm_up_requests},
          {"replications", report.replications},
          {"seed", report.seed},
          {"simulatedSeconds", report.simulated_s},
          {"wallSeconds", report.wall_s}};
}

std::string report_text(const ChosenChains& chosen, const ChainSimulationReport& report) {
  const chain::Composition& composition = chosen.composition;
  const auto load = load_of(chosen, report);
  std::string text = fmt::format("policy {} on the {} placement: ", report.policy, chosen.placement);
  text += session_policy(report) ? "requests are routed server by server; "
                                 : fmt::format("{} chain{}, {} concurrent requests, ", composition.chains.size(),
                                               composition.chains.size() == 1 ? "" : "s", composition.total_capacity);
  text += fmt::format("at most {:.4g} requests/s\n", composition.total_service_rate_per_s);
  text += fmt::format(
      "{}: {} requests/s, CV of the inter-arrival times {}, load {}\n", report.trace.empty() ? "arrivals" : report.trace,
      report.rate_per_s ? fmt::format("{:.4g}", *report.rate_per_s) : "-", number_text(report.gap_cv), percent_text(load));
  const double composed_for = chosen.instance.arrival_rate_per_s;
  if (!report.trace.empty() && report.rate_per_s && std::abs(*report.rate_per_s - composed_for) > 0.2 * composed_for) {
    text +=
        fmt::format("the chains are composed for {:.4g} requests/s; --arrival-rate {:.4g} composes them for the trace's rate\n",
                    composed_for, *report.rate_per_s);
  }
  if (!load || *load >= 1) {
    text += "NOT STABLE: more requests arrive than are served, so these times grow with the number of requests\n";
  }
  text +=
      fmt::format("{} requests measured in {} replication{} (seed {}{}), {} of warm-up before each; {} of wall-clock time\n\n",
                  report.requests, report.replications, report.replications == 1 ? "" : "s", report.seed,
                  report.replications == 1 ? "" : " and up", report.warm_up_requests, seconds_text(report.wall_s));
  TextTable table({"TIME", "MEAN", "+- 95%", "P50", "P95", "P99", "MAX"});
  const auto row = [&](const char* name, const TimeEstimate& time) {
    table.add({name, seconds_text(time.mean.mean), seconds_text(time.mean.half_width), seconds_text(time.p50_s),
               seconds_text(time.p95_s), seconds_text(time.p99_s), seconds_text(time.max_s)});
  };
  row("waiting", report.waiting);
  row("service", report.service);
  row("response", report.response);
  text += table.text();
  if (report.replications == 1) text += "\nOne replication gives no confidence interval; use --replications N.\n";
  if (waiting_grows(report)) {
    text += fmt::format(
        "\nWAITING GROWS during the run, from {} in the first tenth of the measured requests to {} in the last: "
        "a longer run would give longer times\n",
        seconds_text(report.waiting_by_tenth.front()), seconds_text(report.waiting_by_tenth.back()));
  }
  if (within_theorem(chosen, report)) {
    text += fmt::format("\nBounds on the mean response time under JFFC with Poisson arrivals and exponential sizes: {} to {}\n",
                        seconds_text(composition.mean_response_lower_s), seconds_text(composition.mean_response_upper_s));
  }
  return text;
}

}  // namespace windlass::cli
