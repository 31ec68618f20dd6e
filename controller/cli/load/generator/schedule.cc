// Generates Poisson and constant arrivals, phase by phase; see schedule.h.
#include "controller/cli/load/generator/schedule.h"

#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "planner/base/rng.h"
#include "planner/workload/lengths.h"

namespace windlass::load {
namespace {

std::optional<double> number(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value) || value < 0) return std::nullopt;
  return value;
}

std::optional<double> duration_s(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 4> kUnits{{{"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}}};
  for (const auto& [unit, seconds] : kUnits) {
    if (text.size() <= unit.size() || text.substr(text.size() - unit.size()) != unit) continue;
    if (const auto value = number(text.substr(0, text.size() - unit.size()))) return *value * seconds;
  }
  return std::nullopt;
}

}  // namespace

Result<std::vector<Phase>> parse_phases(std::string_view text) {
  std::vector<Phase> phases;
  while (true) {
    const auto comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const auto slash = part.find('/');
    const auto rate = slash == std::string_view::npos ? std::nullopt : number(part.substr(0, slash));
    const auto seconds = slash == std::string_view::npos ? std::nullopt : duration_s(part.substr(slash + 1));
    if (!rate.has_value() || !seconds.has_value() || *seconds <= 0 || *rate * *seconds > 1e7) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("phase {}: must be RATE/DURATION such as 12/30s, requests per second and how long (got '{}')",
                               phases.size() + 1, part)};
    }
    phases.push_back({*rate, *seconds});
    if (comma == std::string_view::npos) return phases;
    text.remove_prefix(comma + 1);
  }
}

std::vector<double> arrival_times_s(const std::vector<Phase>& phases, Arrivals arrivals, std::uint64_t seed) {
  Rng rng(seed, "load.arrivals");
  std::vector<double> times_s;
  double begin_s = 0;
  for (const Phase& phase : phases) {
    const double end_s = begin_s + phase.seconds;
    if (phase.rate_per_s > 0 && arrivals == Arrivals::kPoisson) {
      for (double t = begin_s + rng.exponential(phase.rate_per_s); t < end_s; t += rng.exponential(phase.rate_per_s)) {
        times_s.push_back(t);
      }
    } else if (phase.rate_per_s > 0) {
      const auto count = static_cast<std::size_t>(std::floor(phase.rate_per_s * phase.seconds + 1e-9));
      for (std::size_t i = 0; i < count; ++i) times_s.push_back(begin_s + static_cast<double>(i) / phase.rate_per_s);
    }
    begin_s = end_s;
  }
  return times_s;
}

double total_s(const std::vector<Phase>& phases) {
  double sum_s = 0;
  for (const Phase& phase : phases) sum_s += phase.seconds;
  return sum_s;
}

Result<std::vector<workload::TokenPair>> request_lengths(const workload::TokenPair& means, double cv, int context_tokens,
                                                         std::uint64_t seed, std::size_t count) {
  const auto drawn = workload::LengthDistribution::around(means.input_tokens, means.output_tokens, cv,
                                                          context_tokens > 0 ? std::optional(context_tokens) : std::nullopt);
  if (!drawn.ok()) return drawn.error().within("lengths");
  Rng rng(seed, "load.lengths");
  std::vector<workload::TokenPair> lengths;
  lengths.reserve(count);
  for (std::size_t i = 0; i < count; ++i) lengths.push_back(drawn->draw(rng));
  return lengths;
}

std::string prompt_text(std::size_t index, int words, std::uint64_t seed) {
  constexpr std::array<std::string_view, 16> kWords{"the", "of",  "and", "to", "in",  "is",   "that", "for",
                                                    "it",  "was", "on",  "as", "are", "with", "be",   "at"};
  Rng rng(seed + index, "load.prompt");
  std::string text = fmt::format("{}:", index);
  for (int i = 1; i < words; ++i) {
    text += ' ';
    text += kWords[static_cast<std::size_t>(rng.integer(0, kWords.size() - 1))];
  }
  return text;
}

}  // namespace windlass::load
