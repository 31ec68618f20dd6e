// Lays out the screen of `windlass top`; see top_screen.h.
#include "controller/cli/top/top_screen.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "controller/cli/console/text_table.h"

namespace windlass::cli {
namespace {

using Style = ScreenLine::Style;

constexpr std::size_t kMaxHistory = 600;      // updates: ten minutes at one per second
constexpr std::size_t kLeastForDetails = 12;  // lines of the terminal
constexpr std::size_t kNarrowestName = 8;     // columns
constexpr const char* kKeys = "q quit  ↑↓ select  sort: n name w ready r req/s t TTFT p TPOT a attained";

struct Column {
  const char* title;
  std::optional<SortBy> sort;
  std::string (*text)(const ServiceRow& row);
};

// The name first, then the others by importance: the last ones are left out if the terminal is too narrow.
constexpr std::array<Column, 10> kColumns = {{
    {"SERVICE", SortBy::kName, [](const ServiceRow& row) { return row.title(); }},
    {"READY", SortBy::kWorkers, [](const ServiceRow& row) { return fmt::format("{}/{}", row.ready, row.desired); }},
    {"ATTAINED", SortBy::kAttained, attained_text},
    {"TTFT/SLO", SortBy::kTtft, ttft_text},
    {"TPOT/SLO", SortBy::kTpot, tpot_text},
    {"REQ/S", SortBy::kRequests, [](const ServiceRow& row) { return number_text(row.arrivals_per_s, 1); }},
    {"QUEUE", std::nullopt, [](const ServiceRow& row) { return number_text(row.queued, 0); }},
    {"COST/H", std::nullopt, [](const ServiceRow& row) { return number_text(row.cost_per_hour, 2); }},
    {"STARTING", std::nullopt, [](const ServiceRow& row) { return std::to_string(row.starting); }},
    {"DRAINING", std::nullopt, [](const ServiceRow& row) { return std::to_string(row.draining); }},
}};

// Unknown values sort last in either direction.
std::optional<double> value_of(const ServiceRow& row, SortBy by) {
  switch (by) {
    case SortBy::kWorkers: return row.ready;
    case SortBy::kRequests: return row.arrivals_per_s;
    case SortBy::kTtft: return row.ttft_s;
    case SortBy::kTpot: return row.tpot_s;
    case SortBy::kAttained: return row.attainment ? std::optional(-*row.attainment) : std::nullopt;  // worst first
    case SortBy::kName: break;
  }
  return std::nullopt;
}

std::string summary(const std::vector<ServiceRow>& rows) {
  int ready = 0, desired = 0;
  double cost = 0;
  for (const ServiceRow& row : rows) {
    ready += row.ready;
    desired += row.desired;
    cost += row.cost_per_hour;
  }
  return fmt::format("windlass: {} service{}, {} of {} worker{} ready, {:.2f} per hour", rows.size(),
                     rows.size() == 1 ? "" : "s", ready, desired, desired == 1 ? "" : "s", cost);
}

std::vector<std::string> split_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

}  // namespace

std::string sparkline(const std::vector<std::optional<double>>& values, double most) {
  constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::string line;
  for (const auto& value : values) {
    if (!value || !std::isfinite(*value)) {
      line += ' ';
      continue;
    }
    const double share = most > 0 ? std::clamp(*value / most, 0.0, 1.0) : 0.0;
    line += kBlocks.at(static_cast<std::size_t>(std::lround(share * (kBlocks.size() - 1))));
  }
  return line;
}

void TopScreen::take(std::vector<ServiceRow> rows) {
  rows_ = std::move(rows);
  std::set<std::string> known;
  for (const ServiceRow& row : rows_) {
    known.insert(row.title());
    auto& looks = history_[row.title()];
    looks.push_back({row.arrivals_per_s, row.attainment});
    if (looks.size() > kMaxHistory) looks.pop_front();
  }
  std::erase_if(history_, [&](const auto& one) { return !known.contains(one.first); });
  sort();
}

void TopScreen::sort() {
  std::stable_sort(rows_.begin(), rows_.end(), [&](const ServiceRow& a, const ServiceRow& b) {
    if (sort_ != SortBy::kName) {
      const auto left = value_of(a, sort_), right = value_of(b, sort_);
      if (left.has_value() != right.has_value()) return left.has_value();
      if (left != right) return reversed_ ? *left < *right : *left > *right;
    }
    return reversed_ && sort_ == SortBy::kName ? b.title() < a.title() : a.title() < b.title();
  });
  const bool there = std::any_of(rows_.begin(), rows_.end(), [&](const ServiceRow& row) { return row.title() == chosen_; });
  if (!there) chosen_ = rows_.empty() ? "" : rows_.front().title();
}

std::size_t TopScreen::chosen_index() const {
  const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const ServiceRow& row) { return row.title() == chosen_; });
  return found == rows_.end() ? 0 : static_cast<std::size_t>(found - rows_.begin());
}

bool TopScreen::press(Key key) {
  constexpr std::array<std::pair<Key, SortBy>, 6> kSorts = {{{'n', SortBy::kName},
                                                             {'w', SortBy::kWorkers},
                                                             {'r', SortBy::kRequests},
                                                             {'t', SortBy::kTtft},
                                                             {'p', SortBy::kTpot},
                                                             {'a', SortBy::kAttained}}};
  for (const auto& [letter, by] : kSorts) {
    if (key != letter) continue;
    reversed_ = sort_ == by && !reversed_;
    sort_ = by;
    sort();
    return true;
  }
  constexpr int kPage = 10;
  const int step = key == kKeyDown || key == 'j' ? 1
                   : key == kKeyUp || key == 'k' ? -1
                   : key == kKeyPageDown         ? kPage
                   : key == kKeyPageUp           ? -kPage
                                                 : 0;
  if (step == 0) return false;
  if (!rows_.empty()) {
    const int last = static_cast<int>(rows_.size()) - 1;
    chosen_ = rows_[static_cast<std::size_t>(std::clamp(static_cast<int>(chosen_index()) + step, 0, last))].title();
  }
  return true;
}

// Details of the selected service: objective, trouble and recent history.
std::vector<std::string> TopScreen::details(std::size_t width) const {
  const ServiceRow& row = rows_.at(chosen_index());
  std::vector<std::string> lines;
  const auto add = [&](const std::string& text) {
    for (std::string& line : split_lines(wrapped(text, 0, static_cast<int>(width)))) lines.push_back(std::move(line));
  };
  add(fmt::format("{}: {:g} % within TTFT {} and TPOT {}; {} starting, {} draining, {} failed", row.title(), row.percentile,
                  seconds_text(row.ttft_slo_s), seconds_text(row.tpot_slo_s), row.starting, row.draining, row.failed));
  const auto slack = [](const std::optional<double>& measured_s, double objective_s) {
    return measured_s && objective_s > 0 ? percent_text(1 - *measured_s / objective_s) : std::string("-");
  };
  add(fmt::format("burn rate {} over 1m (above 1: too many miss), slack TTFT {}, TPOT {}",
                  row.burn_rate ? number_text(*row.burn_rate, 1) : "-", slack(row.ttft_s, row.ttft_slo_s),
                  slack(row.tpot_s, row.tpot_slo_s)));
  if (!row.trouble_code.empty()) add(row.trouble_code + ": " + row.trouble);
  const auto& looks = history_.at(row.title());
  constexpr std::size_t kLabel = 22;
  const std::size_t shown = std::min(looks.size(), width > kLabel ? width - kLabel : 0);
  std::vector<std::optional<double>> arrivals, attained;
  for (std::size_t i = looks.size() - shown; i < looks.size(); ++i) {
    arrivals.push_back(looks[i].arrivals_per_s);
    attained.push_back(looks[i].attainment);
  }
  double most = 0;
  for (const auto& one : arrivals) most = std::max(most, one.value_or(0));
  lines.push_back(fitted(fmt::format("req/s, max {}", number_text(most, 1)), kLabel) + sparkline(arrivals, most));
  lines.push_back(fitted("attained, of 100 %", kLabel) + sparkline(attained, 1));
  return lines;
}

std::vector<ScreenLine> TopScreen::lines(std::size_t width, std::size_t height, const std::string& problem) const {
  std::vector<ScreenLine> screen;
  screen.push_back(
      {fitted(problem.empty() ? summary(rows_) : problem, width), problem.empty() ? Style::kBold : Style::kReverse});
  if (rows_.empty()) {
    if (problem.empty()) screen.push_back({fitted("No ModelService yet.", width)});
  } else {
    // Keep the columns that fit. The name gets the remaining width and is cut if that is too little.
    std::vector<std::vector<std::string>> cells;
    std::size_t taken = 0;
    std::size_t longest_name = 0;
    for (const Column& column : kColumns) {
      std::vector<std::string> one{column.title};
      if (column.sort == sort_) one.front() += (sort_ == SortBy::kName || sort_ == SortBy::kAttained) != reversed_ ? "▲" : "▼";
      for (const ServiceRow& row : rows_) one.push_back(column.text(row));
      std::size_t wide = 0;
      for (const std::string& cell : one) wide = std::max(wide, width_of(cell));
      if (cells.empty()) {
        longest_name = wide;
      } else {
        if (std::max(kNarrowestName, std::min<std::size_t>(longest_name, 20)) + taken + wide + 2 > width) break;
        taken += wide + 2;
        for (std::string& cell : one) cell = std::string(wide + 2 - width_of(cell), ' ') + cell;
      }
      cells.push_back(std::move(one));
    }
    const std::size_t name_width = std::min(longest_name, width > taken ? width - taken : kNarrowestName);
    const auto line = [&](std::size_t i) {
      std::string text = fitted(cells.front().at(i), name_width);
      for (std::size_t c = 1; c < cells.size(); ++c) text += cells[c].at(i);
      return fitted(text, width);
    };
    std::vector<std::string> below;
    if (height >= kLeastForDetails) below = details(width);
    const std::size_t around = 3 + (below.empty() ? 0 : below.size() + 1);  // lines above and below the services
    const std::size_t room = height > around ? height - around : 1;
    const std::size_t chosen = chosen_index();
    const std::size_t first = chosen < room ? 0 : chosen - room + 1;
    screen.push_back({line(0), Style::kBold});
    for (std::size_t i = first; i < rows_.size() && i < first + room; ++i) {
      const Style rest = problem.empty() ? Style::kPlain : Style::kDim;
      screen.push_back({line(i + 1), i == chosen && rows_.size() > 1 ? Style::kReverse : rest});
    }
    if (!below.empty()) screen.push_back({""});
    for (const std::string& text : below)
      screen.push_back({fitted(text, width), problem.empty() ? Style::kPlain : Style::kDim});
  }
  while (screen.size() + 1 < height) screen.push_back({""});
  if (screen.size() >= height) screen.resize(height > 0 ? height - 1 : 0);
  if (height > 0) screen.push_back({fitted(kKeys, width), Style::kDim});
  return screen;
}

}  // namespace windlass::cli
