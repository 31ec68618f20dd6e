// See distserve_shift.h.
#include "planner/strategies/distserve/distserve_shift.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace windlass::search {
namespace {

constexpr std::int64_t kLeastLengths = 30;  // minimum number of lengths for a meaningful mean

bool above_zero(double value) { return std::isfinite(value) && value > 0; }
bool not_negative(double value) { return std::isfinite(value) && value >= 0; }

}  // namespace

const char* to_string(ShiftedFigure figure) {
  switch (figure) {
    case ShiftedFigure::kRate: return "requests per second";
    case ShiftedFigure::kInputTokens: return "input tokens";
    case ShiftedFigure::kOutputTokens: return "output tokens";
  }
  return "";
}

std::string Shift::text() const { return fmt::format("{} went from {:.4g} to {:.4g}", to_string(figure), planned, found); }

Result<WorkloadShift> WorkloadShift::make(const WorkloadFigures& planned, double now_s, const ShiftOptions& options) {
  const auto wrong = [](const char* field, double found, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("shift.{}: must be {} (got {})", field, allowed, found)};
  };
  if (!above_zero(options.window_s)) return wrong("window", options.window_s, "a time above 0");
  if (!not_negative(options.rest_s)) return wrong("rest", options.rest_s, "a time of at least 0");
  if (!above_zero(options.least_change)) return wrong("leastChange", options.least_change, "a share above 0");
  if (!above_zero(options.certainty)) return wrong("certainty", options.certainty, "a number above 0");
  if (!not_negative(planned.requests_per_s)) return wrong("requestsPerSecond", planned.requests_per_s, "at least 0");
  if (!not_negative(planned.mean_input_tokens)) return wrong("inputTokens", planned.mean_input_tokens, "at least 0");
  if (!not_negative(planned.mean_output_tokens)) return wrong("outputTokens", planned.mean_output_tokens, "at least 0");
  return WorkloadShift(planned, now_s, options);
}

void WorkloadShift::Mean::add(double value) {
  ++count;
  sum += value;
  squares += value * value;
}

void WorkloadShift::Mean::add(const Mean& other) {
  count += other.count;
  sum += other.sum;
  squares += other.squares;
}

std::int64_t WorkloadShift::part_at(double now_s) const {
  return static_cast<std::int64_t>(std::floor(now_s / (options_.window_s / kParts)));
}

WorkloadShift::Part& WorkloadShift::part(double now_s) {
  const std::int64_t number = std::max<std::int64_t>(0, part_at(now_s));
  Part& at = parts_[static_cast<std::size_t>(number) % parts_.size()];
  if (at.number != number) {
    at = Part{};
    at.number = number;
  }
  return at;
}

void WorkloadShift::arrived(double now_s, int input_tokens) { part(now_s).input.add(input_tokens); }
void WorkloadShift::ended(double now_s, int output_tokens) { part(now_s).output.add(output_tokens); }

WorkloadShift::Window WorkloadShift::window(double now_s) const {
  const double part_s = options_.window_s / kParts;
  const std::int64_t now = part_at(now_s);
  const auto first =
      std::max(now - static_cast<std::int64_t>(kParts), static_cast<std::int64_t>(std::ceil(planned_at_s_ / part_s)));
  Window window;
  double parts = 0, squares = 0;
  for (std::int64_t number = std::max<std::int64_t>(0, first); number < now; ++number) {
    ++parts;
    const Part& at = parts_[static_cast<std::size_t>(number) % parts_.size()];
    if (at.number != number) continue;  // no arrivals
    window.input.add(at.input);
    window.output.add(at.output);
    squares += static_cast<double>(at.input.count * at.input.count);
  }
  window.seconds = parts * part_s;
  const auto count = static_cast<double>(window.input.count);
  if (parts > 1 && count > 0) {
    const double variance = (squares - count * count / parts) / (parts - 1);
    window.dispersion = std::max(1.0, variance / (count / parts));
  }
  return window;
}

WorkloadFigures WorkloadShift::recent(double now_s) {
  const Window found = window(now_s);
  WorkloadFigures figures = planned_;
  if (found.seconds > 0) figures.requests_per_s = static_cast<double>(found.input.count) / found.seconds;
  if (found.input.count > 0) figures.mean_input_tokens = found.input.sum / static_cast<double>(found.input.count);
  if (found.output.count > 0) figures.mean_output_tokens = found.output.sum / static_cast<double>(found.output.count);
  return figures;
}

std::optional<Shift> WorkloadShift::check(double now_s) {
  const Window found = window(now_s);
  const double part_s = options_.window_s / kParts;
  if (now_s - planned_at_s_ < options_.rest_s || found.seconds < options_.window_s - part_s / 2) return std::nullopt;
  std::optional<Shift> furthest;
  double furthest_errors = options_.certainty;
  const auto weigh = [&](ShiftedFigure figure, double planned, double now, double error) {
    const double off = std::abs(now - planned);
    if (!(off > options_.least_change * planned) || !(error > 0 ? off / error > furthest_errors : off > 0)) return;
    furthest = Shift{figure, planned, now};
    furthest_errors = error > 0 ? off / error : furthest_errors;
  };
  const double rate = static_cast<double>(found.input.count) / found.seconds;
  const double expected = std::max(rate, planned_.requests_per_s) * found.seconds;
  weigh(ShiftedFigure::kRate, planned_.requests_per_s, rate, std::sqrt(found.dispersion * expected) / found.seconds);
  const auto weigh_lengths = [&](ShiftedFigure figure, double planned, const Mean& lengths) {
    if (lengths.count < kLeastLengths) return;
    const auto count = static_cast<double>(lengths.count);
    const double mean = lengths.sum / count;
    const double variance = std::max(0.0, lengths.squares / count - mean * mean);
    weigh(figure, planned, mean, std::sqrt(variance / count));
  };
  weigh_lengths(ShiftedFigure::kInputTokens, planned_.mean_input_tokens, found.input);
  weigh_lengths(ShiftedFigure::kOutputTokens, planned_.mean_output_tokens, found.output);
  return furthest;
}

void WorkloadShift::planned(const WorkloadFigures& figures, double now_s) {
  planned_ = figures;
  planned_at_s_ = now_s;
}

}  // namespace windlass::search
