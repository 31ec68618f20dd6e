// See serving_json.h.
#include "planner/whatif/serving_json.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace windlass::sim {
namespace {

using Json = nlohmann::ordered_json;

// The mean of one figure over the results.
template <class Figure>
MeanEstimate over(std::span<const ServingResult> results, Figure figure) {
  std::vector<double> values;
  values.reserve(results.size());
  for (const ServingResult& result : results) values.push_back(figure(result));
  return mean_over_replications(values);
}

template <class Times>
TimeEstimates times_over(std::span<const ServingResult> results, Times times) {
  const auto figure = [&](double TimeSummary::*member) {
    return over(results, [&](const ServingResult& result) { return times(result).*member; });
  };
  TimeEstimates estimates{figure(&TimeSummary::mean_s), figure(&TimeSummary::p50_s), figure(&TimeSummary::p90_s),
                          figure(&TimeSummary::p95_s), figure(&TimeSummary::p99_s)};
  for (const ServingResult& result : results) estimates.max = std::max(estimates.max, times(result).max_s);
  return estimates;
}

// Without observations null, not a time of 0.
Json times_json(const TimeEstimates& times, bool observed) {
  if (!observed) {
    const Json none = nullptr;
    return {{"mean", none}, {"p50", none}, {"p90", none}, {"p95", none}, {"p99", none}, {"max", none}};
  }
  return {{"mean", times.mean.mean}, {"p50", times.p50.mean}, {"p90", times.p90.mean},
          {"p95", times.p95.mean},   {"p99", times.p99.mean}, {"max", times.max}};
}

Json ends_json(const planner::Interval& ends) { return Json::array({ends.low, ends.high}); }

Json intervals_json(const ReportIntervals& intervals) {
  const auto time = [](const ReportIntervals::OfTime& of) {
    return Json{{"p50", ends_json(of.p50)}, {"p95", ends_json(of.p95)}};
  };
  return {{"confidenceLevel", 0.9},
          {"basis", planner::to_string(intervals.from)},
          {"ttftSeconds", time(intervals.ttft)},
          {"tpotSeconds", time(intervals.tpot)},
          {"e2eSeconds", time(intervals.e2e)},
          {"sloAttainment", intervals.attainment ? ends_json(*intervals.attainment) : Json(nullptr)}};
}

Json ratios_json(const TimeEstimates& ratios, bool observed) {
  if (!observed) return {{"p50", nullptr}, {"p90", nullptr}, {"p99", nullptr}};
  return {{"p50", ratios.p50.mean}, {"p90", ratios.p90.mean}, {"p99", ratios.p99.mean}};
}

Json half_width(const MeanEstimate& estimate) { return estimate.half_width ? Json(*estimate.half_width) : Json(nullptr); }

Json half_widths_json(const TimeEstimates& times) {
  return {{"mean", half_width(times.mean)},
          {"p50", half_width(times.p50)},
          {"p90", half_width(times.p90)},
          {"p95", half_width(times.p95)},
          {"p99", half_width(times.p99)}};
}

Json worker_json(const WorkerFigures& worker) {
  const auto time = [](double seconds) { return std::isfinite(seconds) ? Json(seconds) : Json(nullptr); };
  return {{"worker", worker.worker},
          {"pool", worker.pool},
          {"role", to_string(worker.role)},
          {"createdSeconds", worker.created_s},
          {"readySeconds", time(worker.ready_s)},
          {"endedSeconds", time(worker.ended_s)},
          {"failed", worker.failed},
          {"completed", worker.completed},
          {"iterations", worker.iterations},
          {"prefillTokens", worker.prefill_tokens},
          {"decodeTokens", worker.decode_tokens},
          {"prefixHitTokens", worker.prefix_hit_tokens},
          {"preemptions", worker.preemptions},
          {"meanBatch", worker.mean_batch},
          {"busyShare", worker.busy_share},
          {"meanKvInUse", worker.mean_kv_in_use},
          {"mfu", worker.mfu}};
}

}  // namespace

ServingReport report_of(std::span<const ServingResult> results, std::uint64_t first_seed,
                        const std::optional<double>& percentile, double wall_s) {
  assert(!results.empty());
  ServingReport report;
  report.replications = static_cast<int>(results.size());
  report.seed = first_seed;
  for (const ServingResult& result : results) {
    report.requests += result.requests;
    report.completed += result.completed;
    report.refused += result.refused;
    report.failed += result.failed;
    report.retried += result.retried;
    report.iterations += result.iterations;
    report.extrapolated_iterations += result.extrapolated_iterations;
    report.preemptions += result.preemptions;
    report.kv_transfers += result.kv_transfers;
    report.swapped_tokens += result.swapped_tokens;
    report.prefix_hit_tokens += result.prefix_hit_tokens;
    report.flips += result.flips;
    report.max_workers = std::max(report.max_workers, result.max_workers);
  }
  const auto times = [&](TimeSummary ServingResult::*member) {
    return times_over(results, [member](const ServingResult& result) { return result.*member; });
  };
  report.scheduling_delay = times(&ServingResult::scheduling_delay);
  report.ttft = times(&ServingResult::ttft);
  report.tbt = times(&ServingResult::tbt);
  report.tpot = times(&ServingResult::tpot);
  report.e2e = times(&ServingResult::e2e);
  report.normalised = times(&ServingResult::normalised);
  if (results.front().slowdown) {
    const auto slowdown = [&](TimeSummary ServingResult::Slowdown::*member) {
      return times_over(results, [member](const ServingResult& result) { return *result.slowdown.*member; });
    };
    report.slowdown = ServingReport::Slowdown{slowdown(&ServingResult::Slowdown::ttft), slowdown(&ServingResult::Slowdown::tbt),
                                              slowdown(&ServingResult::Slowdown::e2e)};
  }
  const auto mean = [&](double ServingResult::*member) {
    return over(results, [member](const ServingResult& result) { return result.*member; });
  };
  if (percentile) report.attainment = mean(&ServingResult::attainment);
  report.percentile = percentile;
  report.mean_batch = mean(&ServingResult::mean_batch);
  report.busy_share = mean(&ServingResult::busy_share);
  report.mean_kv_in_use = mean(&ServingResult::mean_kv_in_use);
  report.mfu = mean(&ServingResult::mfu);
  report.mean_workers = mean(&ServingResult::mean_workers);
  report.simulated_s = mean(&ServingResult::simulated_s);
  report.gpu_hours = mean(&ServingResult::gpu_hours);
  report.cost = mean(&ServingResult::cost);
  report.energy_kwh = mean(&ServingResult::energy_kwh);
  report.workers = results.front().workers;
  report.wall_s = wall_s;
  return report;
}

void add_intervals(ServingReport& report, const ServingResult& expected, const ServingResult& shorter,
                   const ServingResult& longer, planner::Provenance from) {
  constexpr double kMaxExtrapolatedShare = 0.1;
  if (expected.completed == 0) return;
  const auto ends = [&](const MeanEstimate& of, TimeSummary ServingResult::*time, double TimeSummary::*quantile) {
    return planner::interval_of_time(of.mean, expected.*time.*quantile, shorter.*time.*quantile, longer.*time.*quantile);
  };
  const auto of_time = [&](const TimeEstimates& of, TimeSummary ServingResult::*time) {
    return ReportIntervals::OfTime{ends(of.p50, time, &TimeSummary::p50_s), ends(of.p95, time, &TimeSummary::p95_s)};
  };
  ReportIntervals intervals{of_time(report.ttft, &ServingResult::ttft), of_time(report.tpot, &ServingResult::tpot),
                            of_time(report.e2e, &ServingResult::e2e)};
  if (report.attainment) {
    intervals.attainment =
        planner::interval_of_share(report.attainment->mean, expected.attainment, shorter.attainment, longer.attainment);
  }
  const auto beyond = static_cast<double>(expected.extrapolated_iterations);
  const bool extrapolated = beyond > kMaxExtrapolatedShare * static_cast<double>(expected.iterations);
  intervals.from = extrapolated ? std::max(from, planner::Provenance::kExtrapolated) : from;
  report.intervals = intervals;
}

Json to_json(const ServingReport& report) {
  Json json = {{"requests", report.requests},
               {"completed", report.completed},
               {"refused", report.refused},
               {"failed", report.failed},
               {"retried", report.retried},
               {"ttftSeconds", times_json(report.ttft, report.completed > 0)},
               {"tbtSeconds", times_json(report.tbt, report.completed > 0)},
               {"tpotSeconds", times_json(report.tpot, report.completed > 0)},
               {"e2eSeconds", times_json(report.e2e, report.completed > 0)},
               {"schedulingDelaySeconds", times_json(report.scheduling_delay, report.completed > 0)},
               {"normalisedLatencySeconds", times_json(report.normalised, report.completed > 0)},
               {"sloAttainment", report.attainment ? Json(report.attainment->mean) : Json(nullptr)},
               {"sloMet", report.attainment ? Json(report.meets_objectives()) : Json(nullptr)}};
  if (report.intervals) json["intervals"] = intervals_json(*report.intervals);
  if (report.slowdown) {
    json["slowdown"] = {{"ttft", ratios_json(report.slowdown->ttft, report.completed > 0)},
                        {"tbt", ratios_json(report.slowdown->tbt, report.completed > 0)},
                        {"e2e", ratios_json(report.slowdown->e2e, report.completed > 0)}};
  }
  json["gpuHours"] = report.gpu_hours.mean;
  json["cost"] = report.cost.mean;
  json["energyKWh"] = report.energy_kwh.mean;
  json["meanBatch"] = report.mean_batch.mean;
  json["busyShare"] = report.busy_share.mean;
  json["meanKvInUse"] = report.mean_kv_in_use.mean;
  json["mfu"] = report.mfu.mean;
  json["meanWorkers"] = report.mean_workers.mean;
  json["mostWorkers"] = report.max_workers;
  json["preemptions"] = report.preemptions;
  json["swappedTokens"] = report.swapped_tokens;
  json["prefixHitTokens"] = report.prefix_hit_tokens;
  json["kvTransfers"] = report.kv_transfers;
  json["flips"] = report.flips;
  json["iterations"] = report.iterations;
  json["extrapolatedIterations"] = report.extrapolated_iterations;
  json["extrapolated"] = report.extrapolated_iterations > 0;
  json["simulatedSeconds"] = report.simulated_s.mean;
  json["wallSeconds"] = report.wall_s;
  json["seed"] = report.seed;
  json["replications"] = report.replications;
  if (report.replications > 1) {
    json["halfWidths"] = {{"confidenceLevel", 0.95},
                          {"ttftSeconds", half_widths_json(report.ttft)},
                          {"tbtSeconds", half_widths_json(report.tbt)},
                          {"tpotSeconds", half_widths_json(report.tpot)},
                          {"e2eSeconds", half_widths_json(report.e2e)},
                          {"sloAttainment", report.attainment ? half_width(*report.attainment) : Json(nullptr)},
                          {"gpuHours", half_width(report.gpu_hours)},
                          {"cost", half_width(report.cost)}};
  }
  json["workers"] = Json::array();
  for (const WorkerFigures& worker : report.workers) json["workers"].push_back(worker_json(worker));
  if (!report.decisions.empty()) {
    json["decisions"] = Json::array();
    for (const auto& decision : report.decisions) {
      Json reasons = Json::array();
      for (const planner::Reason& reason : decision.reasons) {
        reasons.push_back({{"code", reason.code}, {"message", reason.message}});
      }
      json["decisions"].push_back({{"seconds", decision.time_s},
                                   {"pool", decision.pool},
                                   {"workers", decision.workers},
                                   {"reasons", std::move(reasons)}});
    }
  }
  return json;
}

Json to_json(std::span<const ServingReport> reports, std::span<const std::string> names) {
  assert(!reports.empty() && reports.size() == names.size());
  const auto total = [&](auto figure) {
    auto sum = figure(reports.front());
    for (const ServingReport& report : reports.subspan(1)) sum += figure(report);
    return sum;
  };
  const auto count = [&](std::int64_t ServingReport::*member) {
    return total([member](const ServingReport& report) { return report.*member; });
  };
  const auto mean = [&](MeanEstimate ServingReport::*member) {
    return total([member](const ServingReport& report) { return (report.*member).mean; });
  };
  const auto judged = [](const ServingReport& report) { return report.attainment.has_value(); };
  Json json;
  for (const auto& [name, member] : {std::pair{"requests", &ServingReport::requests},
                                     {"completed", &ServingReport::completed},
                                     {"refused", &ServingReport::refused},
                                     {"failed", &ServingReport::failed},
                                     {"retried", &ServingReport::retried}}) {
    json[name] = count(member);
  }
  json["sloMet"] = nullptr;
  if (std::any_of(reports.begin(), reports.end(), judged)) {
    json["sloMet"] = std::all_of(reports.begin(), reports.end(),
                                 [&](const ServingReport& report) { return !judged(report) || report.meets_objectives(); });
  }
  json["gpuHours"] = mean(&ServingReport::gpu_hours);
  json["cost"] = mean(&ServingReport::cost);
  json["energyKWh"] = mean(&ServingReport::energy_kwh);
  json["iterations"] = count(&ServingReport::iterations);
  json["extrapolatedIterations"] = count(&ServingReport::extrapolated_iterations);
  json["extrapolated"] = count(&ServingReport::extrapolated_iterations) > 0;
  json["wallSeconds"] = reports.front().wall_s;
  json["seed"] = reports.front().seed;
  json["replications"] = reports.front().replications;
  json["services"] = Json::array();
  for (std::size_t s = 0; s < reports.size(); ++s) {
    Json service = {{"name", names[s]}};
    Json own = to_json(reports[s]);
    for (const char* shared : {"wallSeconds", "seed", "replications"}) own.erase(shared);
    service.update(own);
    json["services"].push_back(std::move(service));
  }
  return json;
}

}  // namespace windlass::sim
