// Parses Prometheus text exposition (format 0.0.4; OpenMetrics' closing "# EOF" is accepted). Pure; usable on any thread.
//
// The text is untrusted: it comes from our own processes and from other engines. parse_exposition() returns an error that names
// the line for anything malformed. It never returns a partial page, because a missing series would look like a quiet service.
// parse_exposition_partially() returns the well-formed part, for readers that treat an absent series as unknown.
#pragma once

#include <cstdint>
#include <functional>
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
  double value = 0;  // may be NaN or infinite: the caller decides what to do
  std::optional<std::int64_t> timestamp_ms;

  bool operator==(const Sample&) const = default;
};

enum class MetricType { kUntyped, kCounter, kGauge, kHistogram, kSummary };

// A cumulative histogram as in Prometheus: counts[i] observations were <= bounds[i]; the last bound is +Inf.
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

  // The sum over find(); nullopt when there is no such series, NaN if any of them is NaN.
  [[nodiscard]] std::optional<double> sum(std::string_view name, const std::map<std::string, std::string>& match = {}) const;

  // The histogram `name` (series name_bucket, name_sum), summed over every label set that contains `match`. Errors: kNotFound
  // when there is none; kInvalidArgument when a bucket lacks a usable `le`, buckets differ between the summed series, +Inf is
  // missing, or counts decrease or are not finite.
  [[nodiscard]] Result<HistogramSnapshot> histogram(const std::string& name,
                                                    const std::map<std::string, std::string>& match = {}) const;

  // The values of that label over all series of that name, sorted and unique.
  [[nodiscard]] std::vector<std::string> label_values(std::string_view name, const std::string& label) const;
};

// Parses a value as the format writes it: a number, NaN, +Inf or -Inf. nullopt for anything else.
[[nodiscard]] std::optional<double> parse_value(std::string_view text);

// Whether a reader needs the series of this name. Others are left out, and mistakes in their lines are not noticed: most of a
// large page is histogram buckets that nobody reads.
using WantedSeries = std::function<bool(std::string_view name)>;

// `wanted`: none: all. Error kInvalidArgument: "line 7: label 'model': must be a closing '\"' (got end of line)".
[[nodiscard]] Result<Exposition> parse_exposition(std::string_view text, const WantedSeries& wanted = {});

// A page of which some series may have been unreadable.
struct PartialExposition {
  Exposition page;
  std::vector<std::string> broken;  // names of the series that were left out, sorted
};

// For pages of engines that print non-numbers (llama.cpp's "-nan") or some broken lines. A malformed line with a legible name
// removes every series of that name, because the rest would look like less load. A last line without a line feed may be cut
// short and counts as malformed. Broken "# TYPE" lines are skipped. REQUIRES: the reader treats absent series as unknown, never
// as 0. Error kInvalidArgument: a malformed line without a legible name (HTML, JSON), or only malformed lines.
[[nodiscard]] Result<PartialExposition> parse_exposition_partially(std::string_view text, const WantedSeries& wanted = {});

// a + b; an empty one (no bounds) is neutral. Error when bounds differ.
[[nodiscard]] Result<HistogramSnapshot> histogram_sum(const HistogramSnapshot& a, const HistogramSnapshot& b);

}  // namespace windlass::metrics
