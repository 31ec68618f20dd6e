// Implements report.h.
#include "tests/bench/outcome/report.h"

#include <algorithm>
#include <array>
#include <map>

#include <fmt/format.h>

#include "controller/cli/charts/svg_chart.h"

namespace windlass::bench {
namespace {

using charts::Chart;
using charts::ChartSeries;

constexpr double kLeastMissed = 0.01;  // %, because a logarithmic axis has no 0
// The rules whose workers are plotted over time; with all of them, curves would hide each other.
constexpr std::array kOverTime = {"windlass", "fixed", "wva", "dynamo", "clairvoyant"};
constexpr double kPanelWidth = 720, kPanelHeight = 420;  // of svg_of()

const OutcomeRun* find_run(const OutcomeRow& row, const std::string& rule) {
  const auto found = std::find_if(row.runs.begin(), row.runs.end(), [&](const OutcomeRun& run) { return run.rule == rule; });
  return found == row.runs.end() ? nullptr : &*found;
}

double floor_gpu_hours(const OutcomeRow& row) {
  const OutcomeSetting& s = *row.setting;
  return s.pool.spec.gpus() / 3600.0 *
         sim::work_floor_s(row.workload->requests, s.coefficients, s.pool.spec.engine.max_sequences, kAttainment);
}

std::string bold(const std::string& text, bool yes) { return yes ? "**" + text + "**" : text; }

// Rules that appear in both charts come first, so that each rule has the same colour everywhere.
std::vector<const OutcomeRun*> in_chart_order(const OutcomeRow& row) {
  std::vector<const OutcomeRun*> order;
  for (const char* rule : kOverTime) {
    if (const OutcomeRun* run = find_run(row, rule)) order.push_back(run);
  }
  for (const OutcomeRun& run : row.runs) {
    if (std::find(order.begin(), order.end(), &run) == order.end()) order.push_back(&run);
  }
  return order;
}

Chart attainment_chart(const OutcomeRow& row) {
  Chart chart;
  chart.title = row.workload->title;
  chart.x_label = "GPU-hours";
  chart.y_label = "requests outside the objectives, %";
  chart.y_log = true;
  double fewest = 1e300, most = 0;
  for (const OutcomeRun* run : in_chart_order(row)) {
    ChartSeries series;
    series.name = title_of(run->rule);
    series.joined = false;
    series.points = {{run->gpu_hours, std::max(kLeastMissed, (1 - run->attainment) * 100), {}, {}}};
    chart.series.push_back(std::move(series));
    fewest = std::min(fewest, run->gpu_hours);
    most = std::max(most, run->gpu_hours);
  }
  ChartSeries aim;
  aim.name = "aim: at most 1 %";
  aim.marked = false;
  for (const double gpu_hours : {fewest, most}) aim.points.push_back({gpu_hours, (1 - kAttainment) * 100, {}, {}});
  chart.series.push_back(std::move(aim));
  return chart;
}

Chart workers_chart(const OutcomeRow& row) {
  Chart chart;
  chart.title = row.workload->title + ": workers that hold GPUs";
  chart.x_label = "minute";
  chart.y_label = "workers, mean over the minute";
  for (const char* rule : kOverTime) {
    const OutcomeRun* found = find_run(row, rule);
    if (found == nullptr) continue;
    const OutcomeRun& run = *found;
    ChartSeries series;
    series.name = title_of(run.rule);
    series.marked = false;
    // The last minutes show the end of the run, not the rule.
    const auto last = static_cast<std::size_t>(row.workload->end_s / 60);
    for (std::size_t minute = 0; minute < std::min(last, run.minutes.size()); ++minute)
      series.points.push_back({static_cast<double>(minute), run.minutes[minute].held, {}, {}});
    chart.series.push_back(std::move(series));
  }
  return chart;
}

}  // namespace

std::string title_of(const std::string& rule) {
  static const std::map<std::string, std::string> titles = {
      {"windlass", "Windlass"}, {"fixed", "fixed at the peak"}, {"hpa", "HPA, queue length"},  {"keda", "KEDA, requests"},
      {"wva", "llm-d WVA"},     {"dynamo", "Dynamo planner"},   {"clairvoyant", "clairvoyant"}};
  const auto found = titles.find(rule);
  return found == titles.end() ? rule : found->second;
}

std::string outcome_table(const std::vector<OutcomeRow>& rows) {
  std::string text =
      "| workload | requests/s | rule | attained | GPU-hours | of the clairvoyant's | most workers |\n"
      "|---|---|---|---|---|---|---|\n";
  for (const OutcomeRow& row : rows) {
    const OutcomeRun* best = find_run(row, "clairvoyant");
    const auto share = [&](double gpu_hours) {
      return best == nullptr ? std::string("-") : fmt::format("{:.2f}", gpu_hours / best->gpu_hours);
    };
    for (const OutcomeRun& run : row.runs) {
      const bool ours = run.rule == "windlass";
      text += fmt::format("| {} | {:.1f} | {} | {} | {} | {} | {} |\n", row.workload->title, row.workload->rate_per_s(),
                          bold(title_of(run.rule), ours), bold(fmt::format("{:.2f} %", run.attainment * 100), ours),
                          bold(fmt::format("{:.1f}", run.gpu_hours), ours), bold(share(run.gpu_hours), ours), run.max_workers);
    }
    const double floor_hours = floor_gpu_hours(row);
    text += fmt::format("| {} | {:.1f} | bound: the work itself | 99 % | {:.1f} | {} | |\n", row.workload->title,
                        row.workload->rate_per_s(), floor_hours, share(floor_hours));
  }
  return text;
}

std::string outcome_chart(const std::vector<OutcomeRow>& rows, const std::string& over_time) {
  std::vector<std::string> panels;
  for (const OutcomeRow& row : rows) panels.push_back(charts::svg_of(attainment_chart(row)));
  for (const OutcomeRow& row : rows) {
    if (row.workload->name == over_time) panels.push_back(charts::svg_of(workers_chart(row)));
  }
  const std::size_t columns = 2, lines = (panels.size() + columns - 1) / columns;
  std::string svg = fmt::format("<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {0} {1}' width='{0}' height='{1}'>\n",
                                columns * kPanelWidth, static_cast<double>(lines) * kPanelHeight);
  for (std::size_t i = 0; i < panels.size(); ++i) {
    svg += fmt::format("<g transform='translate({} {})'>\n{}</g>\n", static_cast<double>(i % columns) * kPanelWidth,
                       static_cast<double>(i / columns) * kPanelHeight, panels[i]);
  }
  return svg + "</svg>\n";
}

}  // namespace windlass::bench
