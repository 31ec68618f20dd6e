// Reads the CSV text of a profile by column name; see csv_rows.h.
#include "planner/perf/csv_rows.h"

#include <algorithm>
#include <cassert>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "planner/base/foreign_text.h"

namespace windlass::planner {
namespace {

void split_into(std::string_view line, std::vector<std::string_view>& fields) {
  while (true) {
    const std::size_t comma = line.find(',');
    fields.push_back(line.substr(0, comma));
    if (comma == std::string_view::npos) return;
    line.remove_prefix(comma + 1);
  }
}

}  // namespace

Result<CsvRows> CsvRows::parse(std::string_view text, std::initializer_list<const char*> required) {
  CsvRows csv;
  std::size_t number = 0;
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    ++number;
    if (line.empty()) continue;
    if (csv.columns_.empty()) {
      split_into(line, csv.columns_);
      continue;
    }
    const std::size_t before = csv.fields_.size();
    split_into(line, csv.fields_);
    if (const std::size_t found = csv.fields_.size() - before; found != csv.columns_.size()) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("line {}: must have {} fields, as in the first line (got {})",
                                                            number, csv.columns_.size(), found)};
    }
    csv.lines_.push_back(number);
  }
  for (const char* column : required) {
    if (csv.has(column)) continue;
    std::string all;
    for (const char* name : required) all += (all.empty() ? "" : ", ") + std::string(name);
    return Error{ErrorCode::kInvalidArgument, fmt::format("line 1: must have the columns {} (missing: {})", all, column)};
  }
  return csv;
}

bool CsvRows::has(std::string_view column) const {
  return std::find(columns_.begin(), columns_.end(), column) != columns_.end();
}

std::string_view CsvRows::field(std::size_t row, std::string_view column) const {
  const auto found = std::find(columns_.begin(), columns_.end(), column);
  assert(found != columns_.end() && row < rows());
  return fields_[row * columns_.size() + static_cast<std::size_t>(found - columns_.begin())];
}

Error CsvRows::mistake(std::size_t row, std::string_view column, const std::string& allowed) const {
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("line {}: {}: must be {} (got '{}')", lines_[row], column, allowed, shown_text(field(row, column)))};
}

Result<std::string> CsvRows::text(std::size_t row, std::string_view column) const {
  const std::string_view found = field(row, column);
  if (found.empty()) return mistake(row, column, "a name");
  return std::string(found);
}

Result<double> CsvRows::number(std::size_t row, std::string_view column, double low, double high) const {
  const std::string_view found = field(row, column);
  double value = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (error != std::errc() || end != found.data() + found.size() || !(low <= value && value <= high)) {
    return mistake(row, column, fmt::format("a number from {:g} to {:g}", low, high));
  }
  return value;
}

Result<int> CsvRows::integer(std::size_t row, std::string_view column, int low, int high) const {
  const std::string_view found = field(row, column);
  int value = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (error != std::errc() || end != found.data() + found.size() || value < low || value > high) {
    return mistake(row, column, fmt::format("a whole number from {} to {}", low, high));
  }
  return value;
}

}  // namespace windlass::planner
