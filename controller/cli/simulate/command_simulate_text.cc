// Formats reports as tables; see command_simulate_text.h.
#include "controller/cli/simulate/command_simulate_text.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "controller/cli/console/plan_text.h"
#include "controller/cli/console/text_table.h"
#include "planner/base/yaml_reader.h"

namespace windlass::cli {
namespace {

constexpr std::size_t kMaxWorkersShown = 12;
constexpr std::size_t kMaxDecisionsShown = 20;

std::string with_interval(const std::string& value, const std::string& half_width) {
  return half_width == "-" ? value : value + " +- " + half_width;
}

std::string objectives_text(const sim::ScenarioSlo& slo, const sim::ServingReport& report) {
  std::string asked;
  if (slo.ttft_s) asked += "TTFT " + duration_text(*slo.ttft_s);
  if (slo.tpot_s) asked += (asked.empty() ? "" : ", ") + ("TPOT " + duration_text(*slo.tpot_s));
  return fmt::format("Objectives ({}): {} of the requests meet them, {:g}% must: {}\n", asked,
                     with_interval(percent_text(report.attainment->mean), percent_text(report.attainment->half_width)),
                     *report.percentile, report.meets_objectives() ? "MET" : "NOT MET");
}

std::string intervals_text(const sim::ServingReport& report) {
  if (!report.intervals) return "";
  const sim::ReportIntervals& of = *report.intervals;
  TextTable table({"90% INTERVAL", "P50", "P95"});
  const auto row = [&](const char* name, const sim::ReportIntervals::OfTime& time) {
    const auto ends = [](const auto& end) { return seconds_text(end.low) + " to " + seconds_text(end.high); };
    table.add({name, ends(time.p50), ends(time.p95)});
  };
  row("TTFT", of.ttft);
  row("TPOT", of.tpot);
  row("E2E", of.e2e);
  if (of.attainment)
    table.add({"attainment", percent_text(of.attainment->low) + " to " + percent_text(of.attainment->high), ""});
  return fmt::format("\n{}Intervals show how far iteration times may be off. Times: {}.\n", table.text(),
                     basis_text(planner::to_string(of.from)));
}

// Lines that only some scenarios have.
std::string happenings_text(const sim::ServingReport& report) {
  std::vector<std::string> happened;
  if (report.prefix_hit_tokens > 0) {
    happened.push_back(fmt::format("{} prompt tokens came from cached prefixes", report.prefix_hit_tokens));
  }
  if (report.swapped_tokens > 0) {
    happened.push_back(fmt::format("{} tokens of KV cache were swapped between GPU and host", report.swapped_tokens));
  }
  if (report.flips > 0) happened.push_back(fmt::format("{} role changes of workers", report.flips));
  if (report.failed + report.retried > 0) {
    happened.push_back(fmt::format("{} requests FAILED with their worker, {} were dispatched again after a worker failed",
                                   report.failed, report.retried));
  }
  return happened.empty() ? "" : fmt::format("{}\n", fmt::join(happened, "; "));
}

// One line per worker, if there are few.
std::string workers_text(const sim::ServingReport& report) {
  if (report.workers.size() < 2 || report.workers.size() > kMaxWorkersShown) return "";
  bool changes = false;
  for (const sim::WorkerFigures& worker : report.workers) changes = changes || worker.created_s > 0 || worker.failed;
  TextTable table({"WORKER", "POOL", "FROM", "TO", "REQUESTS", "BATCH", "BUSY", "KV CACHE", "MFU"});
  for (const sim::WorkerFigures& worker : report.workers) {
    table.add({fmt::format("{}", worker.worker), worker.pool,
               std::isfinite(worker.ready_s) ? seconds_text(worker.ready_s) : "-",
               seconds_text(worker.ended_s) + (worker.failed ? " (failed)" : ""), fmt::format("{}", worker.completed),
               number_text(worker.mean_batch), percent_text(worker.busy_share), percent_text(worker.mean_kv_in_use),
               worker.mfu > 0 ? percent_text(worker.mfu) : "-"});
  }
  std::string text = "\n" + table.text();
  if (report.replications > 1) text += "Workers of the first replication.\n";
  if (changes) {
    text +=
        fmt::format("Workers holding GPUs: mean {}, maximum {}.\n", number_text(report.mean_workers.mean), report.max_workers);
  }
  return text;
}

// The reasons of a decision to print: the first that speaks of the demand, and the last.
std::string why(const std::vector<planner::Reason>& reasons) {
  if (reasons.empty()) return "";
  const auto demand =
      std::find_if(reasons.begin(), reasons.end(), [](const planner::Reason& reason) { return reason.code == "Demand"; });
  if (demand == reasons.end() || &*demand == &reasons.back()) return reasons.back().message;
  return demand->message + "; " + reasons.back().message;
}

// The autoscaler's decisions, whenever they changed.
std::string decisions_text(const sim::ServingReport& report) {
  if (report.decisions.empty()) return "";
  TextTable table({"AT", "POOL", "WORKERS", "WHY"});
  const std::size_t shown = std::min(report.decisions.size(), kMaxDecisionsShown);
  for (std::size_t i = 0; i < shown; ++i) {
    const auto& decision = report.decisions[i];
    table.add({seconds_text(decision.time_s), decision.pool, fmt::format("{}", decision.workers), why(decision.reasons)});
  }
  std::string text = "\n" + table.text();
  if (shown < report.decisions.size()) {
    text += fmt::format("{} more changes; -o json has them all.\n", report.decisions.size() - shown);
  }
  return text;
}

}  // namespace

std::string extrapolation_text(const sim::ServingReport& report) {
  if (report.extrapolated_iterations == 0) return "";
  return fmt::format(
      "EXTRAPOLATED beyond the measurements: {} of {} iterations ({}); the figures are only as good as the formula there.\n",
      report.extrapolated_iterations, report.iterations,
      percent_text(static_cast<double>(report.extrapolated_iterations) / static_cast<double>(report.iterations)));
}

std::string basis_text(const sim::PreparedScenario& prepared) {
  std::string text;
  for (const std::string& basis : prepared.bases()) text += basis + "\n";
  const auto& given = prepared.scenario().defaults;
  if (given.empty()) return text;
  return text + "Defaults used:\n" + wrapped(fmt::format("{}", fmt::join(given, ", ")), 2);
}

std::string simulation_text(const sim::PreparedScenario& prepared, std::span<const sim::ServingReport> reports) {
  std::string text = basis_text(prepared);
  const auto& services = prepared.scenario().services;
  for (std::size_t s = 0; s < reports.size(); ++s) {
    if (reports.size() > 1) text += fmt::format("\nSERVICE {}\n", services[s].name);
    text += service_text(prepared, s, reports[s]);
  }
  return text;
}

std::string service_text(const sim::PreparedScenario& prepared, std::size_t service, const sim::ServingReport& report) {
  const sim::ScenarioService& scenario = prepared.scenario().services[service];
  std::string text =
      fmt::format("{} requests at {:.4g}/s, {} completed, {} refused; {} replication{} (seed {}{}), {} simulated in {}\n",
                  report.requests, prepared.requests_per_second(service), report.completed, report.refused, report.replications,
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
    text += "One replication gives no confidence interval; use --replications N.\n";
  }
  text += intervals_text(report);
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
  if (report.attainment) text += objectives_text(*scenario.slo, report);
  text += fmt::format(
      "Workers: {} busy{}, {} of the KV cache in use, {} sequences per iteration, {} iterations, {} preemptions, {} KV "
      "transfers\n",
      percent_text(report.busy_share.mean), report.mfu.mean > 0 ? ", MFU " + percent_text(report.mfu.mean) : "",
      percent_text(report.mean_kv_in_use.mean), number_text(report.mean_batch.mean), report.iterations, report.preemptions,
      report.kv_transfers);
  text += happenings_text(report);
  text += fmt::format("One run: {} GPU-hours, ${}, {} kWh\n", number_text(report.gpu_hours.mean), number_text(report.cost.mean),
                      number_text(report.energy_kwh.mean));
  return text + workers_text(report) + decisions_text(report);
}

}  // namespace windlass::cli
