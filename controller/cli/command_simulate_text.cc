// See command_simulate_text.h.
#include "controller/cli/command_simulate_text.h"

#include <fmt/format.h>

#include "controller/cli/text_table.h"
#include "planner/base/yaml_reader.h"

namespace windlass::cli {
namespace {

std::string with_interval(const std::string& value, const std::string& half_width) {
  return half_width == "-" ? value : value + " +- " + half_width;
}

std::string objectives_text(const sim::Scenario& scenario, const sim::ServingReport& report) {
  const sim::ScenarioSlo& slo = *scenario.slo;
  std::string asked;
  if (slo.ttft_s) asked += "TTFT " + duration_text(*slo.ttft_s);
  if (slo.tpot_s) asked += (asked.empty() ? "" : ", ") + ("TPOT " + duration_text(*slo.tpot_s));
  return fmt::format("Objectives ({}): {} of the requests meet them; {:g}% are asked for: {}\n", asked,
                     with_interval(percent_text(report.attainment->mean), percent_text(report.attainment->half_width)),
                     *report.percentile, report.meets_objectives() ? "MET" : "NOT MET");
}

}  // namespace

std::string extrapolation_text(const sim::ServingReport& report) {
  if (report.extrapolated_iterations == 0) return "";
  return fmt::format(
      "PREDICTED OUTSIDE OF WHAT WAS MEASURED: {} of {} iterations ({}); the figures are only as good as the formula "
      "there.\n",
      report.extrapolated_iterations, report.iterations,
      percent_text(static_cast<double>(report.extrapolated_iterations) / static_cast<double>(report.iterations)));
}

std::string simulation_text(const sim::PreparedScenario& prepared, const sim::ServingReport& report) {
  const sim::Scenario& scenario = prepared.scenario();
  std::string text;
  for (const std::string& basis : prepared.bases()) text += basis + "\n";
  if (!scenario.defaults.empty()) {
    std::string defaults;
    for (const std::string& one : scenario.defaults) defaults += (defaults.empty() ? "" : ", ") + one;
    text += "Defaults used:\n" + wrapped(defaults, 2);
  }
  text += fmt::format("{} requests at {:.4g}/s, {} completed, {} refused; {} replication{} (seed {}{}), {} simulated in {}\n",
                      report.requests, prepared.requests_per_second(), report.completed, report.refused, report.replications,
                      report.replications == 1 ? "" : "s", report.seed, report.replications == 1 ? "" : " and up",
                      seconds_text(report.simulated_s.mean * report.replications), seconds_text(report.wall_s));
  if (report.refused > 0) text += "REFUSED requests are longer than any worker's KV cache.\n";
  text += extrapolation_text(report) + "\n";

  TextTable times({"TIME", "MEAN", "+- 95%", "P50", "P90", "P95", "P99", "MAX"});
  const auto row = [&](const char* name, const sim::TimeEstimates& time) {
    times.add({name, seconds_text(time.mean.mean), seconds_text(time.mean.half_width), seconds_text(time.p50.mean),
               seconds_text(time.p90.mean), seconds_text(time.p95.mean), seconds_text(time.p99.mean), seconds_text(time.max)});
  };
  row("scheduling delay", report.scheduling_delay);
  row("TTFT", report.ttft);
  row("TBT", report.tbt);
  row("E2E", report.e2e);
  row("E2E per token", report.normalised);
  text += times.text();
  if (report.replications == 1 && prepared.random()) {
    text += "One replication gives no confidence interval; --replications N does.\n";
  }
  if (report.slowdown) {
    TextTable ratios({"SLOWDOWN", "P50", "P90", "P99"});
    const auto ratio = [&](const char* name, const sim::TimeEstimates& slowdown) {
      ratios.add({name, number_text(slowdown.p50.mean), number_text(slowdown.p90.mean), number_text(slowdown.p99.mean)});
    };
    ratio("TTFT", report.slowdown->ttft);
    ratio("TBT", report.slowdown->tbt);
    ratio("E2E", report.slowdown->e2e);
    text += "\n" + ratios.text();
  }
  text += "\n";
  if (report.attainment) text += objectives_text(scenario, report);
  text += fmt::format("Workers: {} busy, {} sequences in an iteration, {} iterations, {} preemptions, {} KV transfers\n",
                      percent_text(report.busy_share.mean), number_text(report.mean_batch.mean), report.iterations,
                      report.preemptions, report.kv_transfers);
  text += fmt::format("One run: {} GPU-hours, ${}, {} kWh\n", number_text(report.gpu_hours.mean), number_text(report.cost.mean),
                      number_text(report.energy_kwh.mean));
  return text;
}

}  // namespace windlass::cli
