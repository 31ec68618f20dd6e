// Reads runs and draws them as tables and charts; see comparison.h.
#include "controller/cli/compare/comparison.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/cli/console/html_page.h"
#include "controller/cli/console/text_table.h"
#include "controller/cli/load/generator/load_result.h"
#include "planner/base/foreign_text.h"
#include "planner/base/json_reader.h"
#include "planner/perf/csv_rows.h"

namespace windlass::cli {
namespace {

using charts::Chart;
using charts::ChartSeries;
using Value = std::optional<double> ComparedRequest::*;

constexpr int kSlices = 60;  // of a run's time, one per column

std::optional<double> optional_number(JsonReader& reader, const char* key) {
  return reader.given(key) ? std::optional(reader.number(key)) : std::nullopt;
}

std::optional<double> p95_of(JsonReader& reader, const char* key) {
  if (!reader.given(key)) return std::nullopt;
  JsonReader percentiles(reader.require(key), reader.path_of(key));
  const double p95 = percentiles.number("p95");
  reader.take(percentiles.first_mistake());
  return p95;
}

std::size_t count(JsonReader& reader, const char* key) {
  return static_cast<std::size_t>(reader.integer(key, 0, 1'000'000'000));
}

double longest_s(const std::vector<ComparedRun>& runs) {
  double longest = 0;
  for (const ComparedRun& run : runs) {
    for (const ComparedRequest& request : run.requests) longest = std::max(longest, request.scheduled_s);
  }
  return longest;
}

struct Slice {
  double middle_s = 0;
  double p95 = 0;
};

// The percentile per slice of time, over the requests sent in it. Slices without requests are left out.
std::vector<Slice> slices_of(const ComparedRun& run, Value value, double slice_s) {
  if (!(slice_s > 0)) return {};
  std::vector<std::vector<double>> values(kSlices);
  for (const ComparedRequest& request : run.requests) {
    if (!(request.*value)) continue;
    const int slice = std::clamp(static_cast<int>(request.scheduled_s / slice_s), 0, kSlices - 1);
    values[static_cast<std::size_t>(slice)].push_back(*(request.*value));
  }
  std::vector<Slice> found;
  for (int slice = 0; slice < kSlices; ++slice) {
    const auto percentiles = load::percentiles(values[static_cast<std::size_t>(slice)]);
    if (percentiles) found.push_back({(slice + 0.5) * slice_s, percentiles->p95});
  }
  return found;
}

std::string table(const std::vector<ComparedRun>& runs) {
  std::vector<std::string> header = {""};
  for (const ComparedRun& run : runs) header.push_back(run.name);
  TextTable table(header);
  const auto row = [&](const char* name, const std::function<std::string(const ComparedRun&)>& cell) {
    std::vector<std::string> cells = {name};
    for (const ComparedRun& run : runs) cells.push_back(cell(run));
    table.add(std::move(cells));
  };
  row("attainment", [](const ComparedRun& run) { return percent_text(run.attainment); });
  row("TTFT P95", [](const ComparedRun& run) { return seconds_text(run.ttft_p95_s); });
  row("TPOT P95", [](const ComparedRun& run) { return seconds_text(run.tpot_p95_s); });
  row("sent", [](const ComparedRun& run) { return fmt::format("{}", run.sent); });
  row("answered", [](const ComparedRun& run) { return fmt::format("{}", run.completed); });
  row("rejected", [](const ComparedRun& run) { return fmt::format("{}", run.rejected); });
  row("lost", [](const ComparedRun& run) { return fmt::format("{}", run.lost); });
  row("duration", [](const ComparedRun& run) { return seconds_text(run.elapsed_s); });
  row("worker-seconds", [](const ComparedRun& run) { return number_text(run.worker_seconds, 0); });
  return table.text();
}

// Columns are slices of time, rows are TTFT in powers of two.
std::string ttft_chart(const std::vector<ComparedRun>& runs, const Objectives& objectives) {
  constexpr std::array<char, 6> kMarks = {'o', '#', '+', 'x', '@', '%'};
  const double slice_s = longest_s(runs) / kSlices;
  std::vector<std::vector<Slice>> all;
  double low = objectives.ttft_s.value_or(1e9), high = objectives.ttft_s.value_or(0);
  for (const ComparedRun& run : runs) {
    all.push_back(slices_of(run, &ComparedRequest::ttft_s, slice_s));
    for (const Slice& slice : all.back()) {
      if (slice.p95 > 0) low = std::min(low, slice.p95);
      high = std::max(high, slice.p95);
    }
  }
  if (!(high >= low)) return "";
  const int bottom = static_cast<int>(std::floor(std::log2(low))), top = static_cast<int>(std::ceil(std::log2(high)));
  const auto row_of = [&](double seconds) {
    return std::clamp(static_cast<int>(std::lround(std::log2(std::max(seconds, 1e-9)))), bottom, top);
  };
  std::string text = fmt::format("TTFT P95 of the requests sent in each {}:", seconds_text(slice_s));
  for (std::size_t i = 0; i < runs.size(); ++i) text += fmt::format("  {} {}", kMarks[i % kMarks.size()], runs[i].name);
  text += objectives.ttft_s ? fmt::format("  - the objective, {}\n", seconds_text(objectives.ttft_s)) : "\n";
  for (int row = top; row >= bottom; --row) {
    std::string line(kSlices, objectives.ttft_s && row == row_of(*objectives.ttft_s) ? '-' : ' ');
    for (std::size_t i = 0; i < all.size(); ++i) {
      for (const Slice& slice : all[i]) {
        if (row_of(slice.p95) == row) line[static_cast<std::size_t>(slice.middle_s / slice_s)] = kMarks[i % kMarks.size()];
      }
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += fmt::format("{:>8} |{}\n", seconds_text(std::exp2(row)), line);
  }
  return text + fmt::format("{:8} +{}\n{:9}0s{:>58}\n", "", std::string(kSlices, '-'), "", seconds_text(longest_s(runs)));
}

std::string figure(const std::vector<ComparedRun>& runs, Value value, std::optional<double> objective, const char* name) {
  const double end_s = longest_s(runs), slice_s = end_s / kSlices;
  Chart chart{fmt::format("{} P95", name), "seconds since the start of the load", "seconds", {}};
  chart.y_log = true;
  for (const ComparedRun& run : runs) {
    ChartSeries series{run.name, {}};
    for (const Slice& slice : slices_of(run, value, slice_s)) {
      if (slice.p95 > 0) series.points.push_back({slice.middle_s, slice.p95, {}, {}});
    }
    chart.series.push_back(std::move(series));
  }
  if (objective) chart.series.push_back({"objective", {{0, *objective, {}, {}}, {end_s, *objective, {}, {}}}, true, false});
  return figure_of(chart, fmt::format("Over the requests sent in each {}, as measured by the client.", seconds_text(slice_s)));
}

std::string workers_figure(const std::vector<ComparedRun>& runs) {
  Chart chart{"Workers", "seconds since the start of the load", "ready workers", {}};
  for (const ComparedRun& run : runs) {
    ChartSeries series{run.name, {}, true, false};
    for (const auto& [at_s, workers] : run.workers) {
      if (!series.points.empty()) series.points.push_back({at_s, series.points.back().y, {}, {}});
      series.points.push_back({at_s, workers, {}, {}});
    }
    if (!series.points.empty()) series.points.push_back({run.elapsed_s, series.points.back().y, {}, {}});
    chart.series.push_back(std::move(series));
  }
  return figure_of(chart, "Workers that could take requests.");
}

}  // namespace

Result<ComparedRun> compared_run(std::string name, std::string_view json) {
  WINDLASS_ASSIGN_OR_RETURN(const nlohmann::json value, parse_json(json, "a file written by `windlass load -o json`"));
  JsonReader reader(value, "");
  ComparedRun run;
  run.name = std::move(name);
  run.elapsed_s = reader.number("elapsedSeconds");
  run.sent = count(reader, "sent");
  run.completed = count(reader, "completed");
  run.rejected = count(reader, "rejected");
  run.lost = count(reader, "lost");
  run.attainment = optional_number(reader, "attainment");
  run.ttft_p95_s = p95_of(reader, "timeToFirstTokenSeconds");
  run.tpot_p95_s = p95_of(reader, "timePerOutputTokenSeconds");
  reader.list("requests", [&](const nlohmann::json& element, const std::string& path) {
    JsonReader request(element, path);
    ComparedRequest one;
    one.scheduled_s = request.number("scheduledSeconds");
    one.ttft_s = optional_number(request, "timeToFirstTokenSeconds");
    one.tpot_s = optional_number(request, "timePerOutputTokenSeconds");
    run.requests.push_back(one);
    reader.take(request.first_mistake());
  });
  WINDLASS_RETURN_IF_ERROR(reader.first_mistake());
  return run;
}

Result<void> add_workers(ComparedRun& run, std::string_view csv) {
  constexpr double kLongestS = 1e9;
  constexpr int kMaxWorkers = 1'000'000;
  WINDLASS_ASSIGN_OR_RETURN(const auto rows, planner::CsvRows::parse(csv, {"elapsed_s", "service", "ready"}));
  std::string only;
  double now_s = 0;
  std::vector<std::pair<double, double>> workers;
  for (std::size_t row = 0; row < rows.rows(); ++row) {
    WINDLASS_ASSIGN_OR_RETURN(const std::string service, rows.text(row, "service"));
    if (only.empty()) only = service;
    if (service != only)
      return rows.mistake(row, "service", fmt::format("the same service in every line: {}", shown_text(only)));
    WINDLASS_ASSIGN_OR_RETURN(now_s, rows.number(row, "elapsed_s", now_s, kLongestS));
    WINDLASS_ASSIGN_OR_RETURN(const int ready, rows.integer(row, "ready", 0, kMaxWorkers));
    if (now_s <= run.elapsed_s) workers.emplace_back(now_s, ready);
  }
  if (workers.empty()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("must have at least one line within the run's {} (got none)", seconds_text(run.elapsed_s))};
  }
  double seconds = workers.front().first * workers.front().second;  // before the first record, the same count as in it
  for (std::size_t i = 0; i < workers.size(); ++i) {
    seconds += ((i + 1 < workers.size() ? workers[i + 1].first : run.elapsed_s) - workers[i].first) * workers[i].second;
  }
  run.workers = std::move(workers);
  run.worker_seconds = seconds;
  return {};
}

void add_workers(ComparedRun& run, double count) {
  run.workers = {{0, count}};
  run.worker_seconds = count * run.elapsed_s;
}

std::string comparison_text(const std::vector<ComparedRun>& runs, const Objectives& objectives) {
  const std::string chart = ttft_chart(runs, objectives);
  return table(runs) + (chart.empty() ? "" : "\n" + chart);
}

std::string comparison_page(const std::vector<ComparedRun>& runs, const Objectives& objectives) {
  std::string title;
  for (const ComparedRun& run : runs) title += (title.empty() ? "" : " and ") + run.name;
  return page_head(title) + preformatted(table(runs)) + figure(runs, &ComparedRequest::ttft_s, objectives.ttft_s, "TTFT") +
         figure(runs, &ComparedRequest::tpot_s, objectives.tpot_s, "TPOT") + workers_figure(runs) + page_end();
}

}  // namespace windlass::cli
