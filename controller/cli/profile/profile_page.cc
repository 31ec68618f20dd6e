// Plots measurements and fit; see profile_page.h.
#include "controller/cli/profile/profile_page.h"

#include <algorithm>
#include <cmath>
#include <map>

#include <fmt/format.h>

#include "controller/cli/console/html_page.h"
#include "controller/cli/console/text_table.h"

namespace windlass::cli {
namespace {

using charts::Chart;
using charts::ChartSeries;

constexpr std::size_t kMaxGroups = 8;  // the number of colours
constexpr int kSteps = 40;             // points of a fitted curve
constexpr double kLikeOtherSizes = 1.1;

using Group = std::vector<const MeasuredPoint*>;

// Breaks lines at the width of the page.
std::string broken(const std::string& text) {
  constexpr std::size_t kWidth = 105;
  std::string out;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (line.size() > kWidth) line = wrapped(line, 0, kWidth);
    while (!line.empty() && line.back() == '\n') line.pop_back();
    out += line + "\n";
    begin = end + 1;
  }
  return out;
}

// At most kMaxGroups groups, evenly chosen.
std::vector<std::pair<double, Group>> some_of(const std::map<double, Group>& groups) {
  std::vector<std::pair<double, Group>> all(groups.begin(), groups.end()), some;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::size_t place = all.size() <= kMaxGroups ? i : i * (kMaxGroups - 1) / (all.size() - 1);
    if (some.size() <= place) some.push_back(all[i]);
  }
  return some;
}

// Adds points, and the fit over the range of their x, in one colour.
void add(Chart& chart, std::string name, std::vector<charts::ChartPoint> points, const std::function<double(double)>& fit) {
  if (points.empty()) return;
  std::sort(points.begin(), points.end(), [](const auto& a, const auto& b) { return a.x < b.x; });
  const std::size_t measured = chart.series.size();
  const double from = points.front().x, to = points.back().x;
  ChartSeries line{{}, {}, true, false};
  line.like = measured;
  for (int i = 0; i <= kSteps; ++i) {
    const double x = from * std::pow(to / from, static_cast<double>(i) / kSteps);
    line.points.push_back({x, fit(x), {}, {}});
  }
  chart.series.push_back({std::move(name), std::move(points), false});
  chart.series.push_back(std::move(line));
}

std::string prefill_figure(const planner::IterationModel& model, const std::vector<MeasuredPoint>& points) {
  std::map<double, Group> by_batch;
  for (const MeasuredPoint& point : points) {
    if (point.row.prompt_s > 0) by_batch[point.row.batch_size].push_back(&point);
  }
  Chart chart{"Prefill", "tokens per prompt", "ms until the last first token", {}};
  chart.x_log = chart.y_log = true;
  for (const auto& [batch, group] : some_of(by_batch)) {
    std::vector<charts::ChartPoint> measured;
    for (const MeasuredPoint* point : group)
      measured.push_back(
          {point->row.prompt_tokens, point->row.prompt_s * 1e3, point->prompt_low_s * 1e3, point->prompt_high_s * 1e3});
    add(chart, fmt::format("batch {:.0f}", batch), std::move(measured), [&, batch = batch](double tokens) {
      return model.iteration_s(planner::prefill_batch(static_cast<int>(batch), tokens)) * 1e3;
    });
  }
  return figure_of(chart, "Points: medians of the measurements, with the range of the runs without outliers. Lines: the fit.");
}

std::string decode_figure(const planner::IterationModel& model, const std::vector<MeasuredPoint>& points) {
  // Prompts with the same number of words differ by a few tokens.
  std::vector<const MeasuredPoint*> sorted;
  for (const MeasuredPoint& point : points) {
    if (point.row.output_tokens > 1) sorted.push_back(&point);
  }
  const auto context = [](const MeasuredPoint* point) { return planner::mean_context_tokens(point->row); };
  std::stable_sort(sorted.begin(), sorted.end(), [&](const auto* a, const auto* b) { return context(a) < context(b); });
  std::map<double, Group> by_context;
  for (const MeasuredPoint* point : sorted) {
    const bool fits = !by_context.empty() && context(point) <= kLikeOtherSizes * by_context.rbegin()->first;
    by_context[fits ? by_context.rbegin()->first : context(point)].push_back(point);
  }
  Chart chart{"Decode", "concurrent requests", "ms per token", {}};
  chart.x_log = chart.y_log = true;
  for (const auto& [least, group] : some_of(by_context)) {
    std::vector<charts::ChartPoint> measured;
    double tokens = 0;
    for (const MeasuredPoint* point : group) {
      measured.push_back(
          {point->row.batch_size, point->row.token_s * 1e3, point->token_low_s * 1e3, point->token_high_s * 1e3});
      tokens += context(point) / static_cast<double>(group.size());
    }
    add(chart, fmt::format("context {:.0f}", tokens), std::move(measured), [&](double batch) {
      const double below = std::floor(batch), share = batch - below;
      const auto at = [&](double whole) {
        return model.iteration_s(planner::decode_batch(static_cast<int>(whole), tokens)) * 1e3;
      };
      return at(below) * (1 - share) + (share > 0 ? at(below + 1) * share : 0);
    });
  }
  return figure_of(chart, "Each colour is a mean context length in tokens. Points, ranges and lines as above.");
}

}  // namespace

std::vector<MeasuredPoint> points_of(const std::vector<ProfileCell>& cells) {
  std::vector<MeasuredPoint> points;
  for (const ProfileCell& cell : cells) {
    const planner::RobustMedian prompt = cell.prompt_s(), token = cell.token_s();
    points.push_back({cell.row(), prompt.low, prompt.high, token.low, token.high});
  }
  return points;
}

std::vector<MeasuredPoint> points_of(const std::vector<planner::ProfileRow>& rows) {
  std::vector<MeasuredPoint> points;
  for (const planner::ProfileRow& row : rows) points.push_back({row, row.prompt_s, row.prompt_s, row.token_s, row.token_s});
  return points;
}

Result<std::string> profile_page(const planner::PerformanceProfile& profile, const std::vector<MeasuredPoint>& points,
                                 const std::string& text) {
  if (std::holds_alternative<planner::MeasuredOperators>(profile.fit))
    return Error{ErrorCode::kInvalidArgument, "--html: must go with a linear or profile fit (got operators)"};
  WINDLASS_ASSIGN_OR_RETURN(const auto model, planner::iteration_model(profile, {}, {}, 1));
  return page_head(fmt::format("{} on {}: measured and fitted", profile.model, profile.accelerator)) +
         prefill_figure(*model, points) + decode_figure(*model, points) + preformatted(broken(text)) + page_end();
}

}  // namespace windlass::cli
