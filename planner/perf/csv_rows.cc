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

constexpr std::size_t kBytesPerField = 8;  // a guess for large tables; where fields are shorter, the vector grows

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
  csv.fields_.reserve(text.size() / kBytesPerField);
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

CsvRows::Column CsvRows::column(std::string_view name) const {
  const auto found = std::find(columns_.begin(), columns_.end(), name);
  assert(found != columns_.end());
  return {*found, static_cast<std::size_t>(found - columns_.begin())};
}

std::string_view CsvRows::field(std::size_t row, const Column& column) const {
  assert(row < rows());
  const std::size_t at = column.at_ != Column::kUnknown ? column.at_ : this->column(column.name_).at_;
  return fields_[row * columns_.size() + at];
}

Error CsvRows::mistake(std::size_t row, const Column& column, const std::string& allowed) const {
  return Error{ErrorCode::kInvalidArgument, fmt::format("line {}: {}: must be {} (got '{}')", lines_[row], column.name_,
                                                        allowed, shown_text(field(row, column)))};
}

Result<std::string_view> CsvRows::word(std::size_t row, const Column& column) const {
  const std::string_view found = field(row, column);
  if (found.empty()) return mistake(row, column, "a name");
  return found;
}

Result<std::string> CsvRows::text(std::size_t row, const Column& column) const {
  WINDLASS_ASSIGN_OR_RETURN(const std::string_view found, word(row, column));
  return std::string(found);
}

Result<double> CsvRows::number(std::size_t row, const Column& column, double low, double high) const {
  const std::string_view found = field(row, column);
  double value = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (error != std::errc() || end != found.data() + found.size() || !(low <= value && value <= high)) {
    return mistake(row, column, fmt::format("a number from {:g} to {:g}", low, high));
  }
  return value;
}

Result<int> CsvRows::integer(std::size_t row, const Column& column, int low, int high) const {
  const std::string_view found = field(row, column);
  int value = 0;
  const auto [end, error] = std::from_chars(found.data(), found.data() + found.size(), value);
  if (error != std::errc() || end != found.data() + found.size() || value < low || value > high) {
    return mistake(row, column, fmt::format("a whole number from {} to {}", low, high));
  }
  return value;
}

}  // namespace windlass::planner
