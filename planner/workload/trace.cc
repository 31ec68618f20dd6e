// Parses the Azure trace format field by field, and replays traces. Times are integer nanoseconds until they become seconds
// since the first row, because a double of seconds since 1970 would lose the last of the trace's seven decimals.
#include "planner/workload/trace.h"

#include <cmath>
#include <cstdint>
#include <utility>

#include "planner/base/foreign_text.h"
#include "planner/workload/csv_text.h"

namespace windlass::workload {
namespace {

constexpr std::string_view kThing = "trace";
constexpr std::string_view kHeader = "TIMESTAMP,ContextTokens,GeneratedTokens";
constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

// Days from 1970-01-01 to a Gregorian date. Years are counted from March, so that a leap day comes last.
std::int64_t days_since_epoch(int year, int month, int day) {
  const int years = month <= 2 ? year - 1 : year;
  const int months = (month + 9) % 12;  // since March
  const std::int64_t leap_days = years / 4 - years / 100 + years / 400;
  return 365LL * years + leap_days + (153 * months + 2) / 5 + day - 719'469;
}

int days_in_month(int year, int month) {
  if (month == 2) return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) ? 29 : 28;
  return month == 4 || month == 6 || month == 9 || month == 11 ? 30 : 31;
}

// Parses exactly these digits; none if a character is not a digit or the number is not in low..high.
std::optional<int> digits(std::string_view text, int low, int high) {
  int number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    number = number * 10 + (c - '0');
  }
  if (number < low || number > high) return std::nullopt;
  return number;
}

// "2023-11-16 18:17:03.9799600" in nanoseconds since 1970.
std::optional<std::int64_t> timestamp_ns(std::string_view text) {
  constexpr std::string_view kUtc = "+00:00";
  constexpr std::string_view kShape = "dddd-dd-dd dd:dd:dd";
  if (text.ends_with(kUtc)) text.remove_suffix(kUtc.size());
  if (text.size() < kShape.size()) return std::nullopt;
  for (std::size_t i = 0; i < kShape.size(); ++i) {
    if (kShape[i] != 'd' && text[i] != kShape[i]) return std::nullopt;
  }
  const auto year = digits(text.substr(0, 4), 1970, 2200);
  const auto month = digits(text.substr(5, 2), 1, 12);
  if (!year || !month) return std::nullopt;
  const auto day = digits(text.substr(8, 2), 1, days_in_month(*year, *month));
  const auto hour = digits(text.substr(11, 2), 0, 23);
  const auto minute = digits(text.substr(14, 2), 0, 59);
  const auto second = digits(text.substr(17, 2), 0, 59);
  if (!day || !hour || !minute || !second) return std::nullopt;
  std::int64_t fraction_ns = 0;
  if (text.size() > kShape.size()) {
    const std::string_view decimals = text.substr(kShape.size() + 1);
    if (text[kShape.size()] != '.' || decimals.empty() || decimals.size() > 9) return std::nullopt;
    const auto number = digits(decimals, 0, 999'999'999);
    if (!number) return std::nullopt;
    fraction_ns = *number;
    for (std::size_t i = decimals.size(); i < 9; ++i) fraction_ns *= 10;
  }
  const std::int64_t seconds = ((days_since_epoch(*year, *month, *day) * 24 + *hour) * 60 + *minute) * 60 + *second;
  return seconds * kNanosecondsPerSecond + fraction_ns;
}

}  // namespace

Result<std::vector<TraceRow>> parse_azure_trace(std::string_view text, const std::optional<ContextLimit>& context) {
  WINDLASS_RETURN_IF_ERROR(validate(context));
  const std::string_view header = take_line(text);
  if (header != kHeader) return bad_field(kThing, 1, "header", header, kHeader);
  std::vector<TraceRow> rows;
  std::int64_t first_ns = 0;
  std::int64_t last_ns = 0;
  std::size_t line = 1;
  while (!text.empty()) {
    const std::string_view row = take_line(text);
    ++line;
    if (row.empty() && text.empty()) break;  // an empty last line
    const std::size_t comma = row.find(',');
    const std::size_t second = comma == std::string_view::npos ? comma : row.find(',', comma + 1);
    if (second == std::string_view::npos) return bad_field(kThing, line, "row", row, kHeader);
    const std::string_view timestamp = row.substr(0, comma);
    const auto now_ns = timestamp_ns(timestamp);
    if (!now_ns) return bad_field(kThing, line, "TIMESTAMP", timestamp, "UTC such as 2023-11-16 18:17:03.9799600");
    if (rows.empty()) first_ns = *now_ns;
    if (!rows.empty() && *now_ns < last_ns) {
      return bad_field(kThing, line, "TIMESTAMP", timestamp, "a time no earlier than the line before has");
    }
    last_ns = *now_ns;
    const TokenFields fields{"ContextTokens", row.substr(comma + 1, second - comma - 1), "GeneratedTokens",
                             row.substr(second + 1)};
    WINDLASS_ASSIGN_OR_RETURN(const TokenPair tokens, read_tokens(kThing, line, fields, context));
    TraceRow parsed;
    parsed.arrival_s = static_cast<double>(*now_ns - first_ns) / static_cast<double>(kNanosecondsPerSecond);
    parsed.input_tokens = tokens.input_tokens;
    parsed.output_tokens = tokens.output_tokens;
    rows.push_back(parsed);
  }
  if (rows.empty()) return bad_field(kThing, line + 1, "row", "", "at least one row");
  return rows;
}

std::optional<double> mean_rate_per_s(std::span<const TraceRow> rows) {
  if (rows.size() < 2) return std::nullopt;
  const double length_s = rows.back().arrival_s - rows.front().arrival_s;
  if (!(length_s > 0)) return std::nullopt;
  return static_cast<double>(rows.size() - 1) / length_s;
}

std::optional<double> gap_cv(std::span<const TraceRow> rows) {
  const auto rate_per_s = mean_rate_per_s(rows);
  if (rows.size() < 3 || !rate_per_s) return std::nullopt;
  const double mean_s = 1 / *rate_per_s;
  double squares = 0;
  for (std::size_t i = 1; i < rows.size(); ++i) {
    const double off_s = rows[i].arrival_s - rows[i - 1].arrival_s - mean_s;
    squares += off_s * off_s;
  }
  return std::sqrt(squares / static_cast<double>(rows.size() - 2)) / mean_s;
}

std::vector<double> times_of(std::span<const TraceRow> rows) {
  std::vector<double> times_s;
  times_s.reserve(rows.size());
  for (const TraceRow& row : rows) times_s.push_back(row.arrival_s);
  return times_s;
}

TraceSource::TraceSource(std::vector<TraceRow> rows, std::size_t limit, const TraceScaling& scaling, std::uint64_t seed,
                         std::string_view source)
    : rows_(std::move(rows)) {
  if (rows_.size() > limit) rows_.resize(limit);
  double total = 0;
  for (const TraceRow& row : rows_) total += static_cast<double>(row.input_tokens) + row.output_tokens;
  if (!rows_.empty()) mean_tokens_ = total / static_cast<double>(rows_.size());
  replay_ = TraceReplay(times_of(rows_), scaling, seed, source);
}

std::optional<Request> TraceSource::next() {
  const auto arrival = replay_.next();
  if (!arrival) return std::nullopt;
  const TraceRow& row = rows_[arrival->row];
  Request request;
  request.arrival_s = arrival->time_s;
  request.input_tokens = row.input_tokens;
  request.output_tokens = row.output_tokens;
  if (mean_tokens_ > 0) request.size = (static_cast<double>(row.input_tokens) + row.output_tokens) / mean_tokens_;
  return request;
}

}  // namespace windlass::workload
