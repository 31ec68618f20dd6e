// Draws the report page; see simulation_page.h.
#include "controller/cli/simulate/simulation_page.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "controller/cli/charts/svg_chart.h"
#include "controller/cli/console/html_page.h"
#include "controller/cli/console/text_table.h"
#include "controller/cli/simulate/command_simulate_text.h"

namespace windlass::cli {
namespace {

using charts::Chart;
using charts::ChartSeries;
using charts::escaped;

constexpr std::size_t kCdfPoints = 400;

// The distribution function of the times. Times of 0 have no place on a logarithmic axis.
ChartSeries cdf(const std::string& name, std::vector<double> times_s) {
  ChartSeries series{name, {}, true, false};
  std::sort(times_s.begin(), times_s.end());
  const std::size_t count = times_s.size(), points = std::min(count, kCdfPoints);
  for (std::size_t point = 1; point <= points; ++point) {
    const std::size_t within = point * count / points;  // the last point is the largest time
    series.points.push_back({times_s[within - 1], static_cast<double>(within) / static_cast<double>(count), {}, {}});
  }
  return series;
}

// Whether a chart has anything to show: a logarithmic axis needs two values, a linear one only one point.
std::string latency_charts(const RequestLog& log, int service) {
  std::vector<double> ttft, tbt, e2e, delay;
  for (const sim::ServedRequest& request : log.requests()) {
    if (request.service != service || request.refused || request.failed) continue;
    ttft.push_back(request.ttft_s);
    e2e.push_back(request.e2e_s);
    delay.push_back(request.scheduling_delay_s);
    if (request.output_tokens > 1) tbt.push_back(request.tbt_s);
  }
  Chart first{"Time to first token", "seconds", "share of requests", {}, false, true};
  first.series = {cdf("TTFT", ttft), cdf("scheduling delay", delay)};
  Chart between{"Time between tokens, mean of a request", "seconds", "share of requests", {}, false, true};
  between.series = {cdf("TBT", tbt)};
  Chart whole{"Arrival to last token", "seconds", "share of requests", {}, false, true};
  whole.series = {cdf("E2E", e2e)};
  return figure_of(
             first,
             "Share of requests whose first token came, and whose processing started, within a time; first replication.") +
         figure_of(between, "Without requests of a single token; first replication.") + figure_of(whole, "First replication.");
}

std::string rate_chart(const sim::ServingReport& report, std::span<const RatePoint> rates) {
  if (rates.empty()) return "";
  ChartSeries series{"attainment", {}};
  ChartSeries wanted{"target", {}, true, false};
  for (const RatePoint& rate : rates) {
    charts::ChartPoint point{rate.requests_per_second, rate.attainment.mean, {}, {}};
    if (rate.attainment.half_width) {
      point.low = std::max(0.0, rate.attainment.mean - *rate.attainment.half_width);
      point.high = std::min(1.0, rate.attainment.mean + *rate.attainment.half_width);
    }
    series.points.push_back(point);
    wanted.points.push_back({rate.requests_per_second, report.percentile.value_or(0) / 100, {}, {}});
  }
  Chart chart{"SLO attainment by request rate", "requests per second", "share of requests", {series, wanted}};
  return figure_of(chart, report.replications > 1
                              ? "Each rate with the scenario's replications; whiskers are 95 % confidence intervals."
                              : "One run per rate, with the scenario's seed.");
}

std::string time_charts(const RequestLog& log, int service) {
  Chart kv{"KV cache in use", "seconds", "share of pages, mean of the workers", {}, false};
  Chart batch{"Batches", "seconds", "sequences per worker", {}, false};
  Chart workers{"Workers", "seconds", "workers", {}, false};
  for (const auto& [role, samples] : log.samples(service)) {
    const std::string name = dispatch::to_string(role);
    ChartSeries in_use{name, {}, true, false}, running{name + ": running", {}, true, false},
        waiting{name + ": waiting", {}, true, false}, ready{name + ": ready", {}, true, false},
        starting{name + ": starting", {}, true, false}, draining{name + ": draining", {}, true, false},
        busy{name + ": busy", {}, true, false};
    bool starts = false, drains = false;
    for (const RoleSample& sample : samples) {
      const int serving = std::max(1, sample.serving());
      in_use.points.push_back({sample.time_s, sample.kv_in_use, {}, {}});
      running.points.push_back({sample.time_s, static_cast<double>(sample.running) / serving, {}, {}});
      waiting.points.push_back({sample.time_s, static_cast<double>(sample.waiting) / serving, {}, {}});
      ready.points.push_back({sample.time_s, static_cast<double>(sample.ready), {}, {}});
      starting.points.push_back({sample.time_s, static_cast<double>(sample.starting), {}, {}});
      draining.points.push_back({sample.time_s, static_cast<double>(sample.draining), {}, {}});
      busy.points.push_back({sample.time_s, static_cast<double>(sample.busy), {}, {}});
      starts = starts || sample.starting > 0;
      drains = drains || sample.draining > 0;
    }
    kv.series.push_back(std::move(in_use));
    batch.series.push_back(std::move(running));
    batch.series.push_back(std::move(waiting));
    workers.series.push_back(std::move(ready));
    workers.series.push_back(std::move(busy));
    if (starts) workers.series.push_back(std::move(starting));
    if (drains) workers.series.push_back(std::move(draining));
  }
  return figure_of(kv, "Pages held by sequences, including caches in transfer; first replication.") +
         figure_of(batch, "Sequences in prefill or decode, and sequences waiting for prefill; first replication.") +
         figure_of(workers,
                   "Workers that are ready, in an iteration, and, if any, starting or "
                   "draining; first replication.");
}

}  // namespace

std::string simulation_page(const std::string& title, const sim::PreparedScenario& scenario,
                            std::span<const sim::ServingReport> reports, const RequestLog& log,
                            std::span<const std::vector<RatePoint>> rates) {
  constexpr int kWidth_px = 760;
  std::string page = page_head(title, kWidth_px);
  if (reports.size() > 1) page += preformatted(basis_text(scenario));
  for (std::size_t s = 0; s < reports.size(); ++s) {
    if (reports.size() > 1) page += fmt::format("<h2>{}</h2>\n", escaped(scenario.scenario().services[s].name));
    if (const std::string note = extrapolation_text(reports[s]); !note.empty()) {
      page += fmt::format("<p class='note'>{}</p>\n", escaped(note));
    }
    const std::string text = service_text(scenario, s, reports[s]);
    page += preformatted(reports.size() > 1 ? text : basis_text(scenario) + text);
    page += latency_charts(log, static_cast<int>(s)) + rate_chart(reports[s], rates[s]) + time_charts(log, static_cast<int>(s));
  }
  return page + page_end();
}

}  // namespace windlass::cli
