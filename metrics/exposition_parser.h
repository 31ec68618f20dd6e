// Parses Prometheus text exposition (format 0.0.4; OpenMetrics' closing "# EOF" is accepted). Pure; usable on any thread.
//
// The text is foreign bytes: from our own processes and from engines that are not ours. To parse_exposition() anything
// malformed is an error that names the line; a half-read page is never returned, since a missing series would look like a quiet
// service. parse_exposition_partially() gives what is whole, for readers to whom an absent series is unknown.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::metrics {

struct Sample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;  // may be NaN or infinite: the caller decides what that means
  std::optional<std::int64_t> timestamp_ms;

  bool operator==(const Sample&) const = default;
};

enum class MetricType { kUntyped, kCounter, kGauge, kHistogram, kSummary };

// A cumulative histogram, as Prometheus counts: counts[i] observations were <= bounds[i]; the last bound is +Inf.
struct HistogramSnapshot {
  std::vector<double> bounds;
  std::vector<double> counts;
  double sum = 0;

  [[nodiscard]] double count() const { return counts.empty() ? 0 : counts.back(); }
  bool operator==(const HistogramSnapshot&) const = default;
};

struct Exposition {
  std::vector<Sample> samples;              // in the order of the text
  std::map<std::string, MetricType> types;  // by family name, from "# TYPE"

  // Every series of that name whose labels contain all of `match`.
  [[nodiscard]] std::vector<const Sample*> find(std::string_view name,
                                                const std::map<std::string, std::string>& match = {}) const;

  // The sum over find(); nullopt when there is no such series. NaN if any of them is.
  [[nodiscard]] std::optional<double> sum(std::string_view name, const std::map<std::string, std::string>& match = {}) const;

  // The histogram `name` (series name_bucket, name_sum), summed over every label set that contains `match`.
  // Errors: kNotFound when there is none; kInvalidArgument when a bucket lacks a usable `le`, buckets differ between the summed
  // series, +Inf is missing, or counts fall or are not finite.
  [[nodiscard]] Result<HistogramSnapshot> histogram(const std::string& name,
                                                    const std::map<std::string, std::string>& match = {}) const;

  // The values that label takes over all series of that name, sorted, each once.
  [[nodiscard]] std::vector<std::string> label_values(std::string_view name, const std::string& label) const;
};

// A value as the format writes it: a number, NaN, +Inf or -Inf. nullopt for anything else.
[[nodiscard]] std::optional<double> parse_value(std::string_view text);

// Error kInvalidArgument: "line 7: label 'model': found end of line, allowed is a closing '\"'".
[[nodiscard]] Result<Exposition> parse_exposition(std::string_view text);

// A page of which some series could not be read.
struct PartialExposition {
  Exposition page;
  std::vector<std::string> broken;  // names whose every series was left out, sorted
};

// For pages of engines that print what is no number (llama.cpp's "-nan") or a broken line among good ones. A line that is
// malformed behind a legible name takes away every series of that name, since the rest of them would look like less load; a
// last line without its line feed may be cut short and counts as malformed. Broken "# TYPE" lines are passed over. REQUIRES of
// the reader: what is absent is unknown to it, never 0. Error kInvalidArgument: a malformed line without a legible name (HTML,
// JSON), or nothing but malformed lines.
[[nodiscard]] Result<PartialExposition> parse_exposition_partially(std::string_view text);

// a + b; an empty one (no bounds) is neutral. Error when bounds differ.
[[nodiscard]] Result<HistogramSnapshot> histogram_sum(const HistogramSnapshot& a, const HistogramSnapshot& b);

}  // namespace windlass::metrics
