// A hand-written scanner for one line at a time, and the arithmetic of histograms.
#include "metrics/exposition_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

namespace windlass::metrics {

// Parses floats as Prometheus does (Go's ParseFloat). from_chars accepts neither a leading '+' nor "+Inf".
std::optional<double> parse_value(std::string_view text) {
  if (text == "+Inf" || text == "Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text.empty()) return std::nullopt;
  if (text.front() == '+') {
    text.remove_prefix(1);
    if (text.empty() || text.front() == '-') return std::nullopt;
  }
  // From here on only digits may follow: from_chars would also accept "inf" and "nan(...)".
  const char first = text.front() == '-' && text.size() > 1 ? text[1] : text.front();
  if (first != '.' && (first < '0' || first > '9')) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (end != text.data() + text.size()) return std::nullopt;
  if (error == std::errc::result_out_of_range) return value;  // like Go: the nearest representable value is good enough
  if (error != std::errc()) return std::nullopt;
  return value;
}

namespace {

bool is_space(char c) { return c == ' ' || c == '\t'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c, bool colon) { return is_name_start(c) || (c >= '0' && c <= '9') || (colon && c == ':'); }

// The text at the cursor for an error: printable and short.
std::string shown(std::string_view text) {
  if (text.empty()) return "end of line";
  std::string out;
  for (char c : text.substr(0, 24)) {
    out += (static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x7f) ? c : '?';
  }
  return "'" + out + (text.size() > 24 ? "...'" : "'");
}

class LineScanner {
 public:
  LineScanner(std::string_view line, std::size_t number) : rest_(line), number_(number) {}

  Result<Sample> sample() {
    Sample sample;
    WINDLASS_RETURN_IF_ERROR(read(sample));
    return sample;
  }

  // Parses the line into an empty sample.
  Result<void> read(Sample& sample) {
    skip_spaces();
    const std::string_view found = name(true);
    if (found.empty()) return no_name("metric name");
    sample.name = found;
    skip_spaces();
    if (!rest_.empty() && rest_.front() == '{') {
      rest_.remove_prefix(1);
      WINDLASS_RETURN_IF_ERROR(labels(sample));
    }
    skip_spaces();
    const std::string_view value_text = word();
    const auto value = parse_value(value_text);
    if (!value) return bad(fmt::format("value of {}", sample.name), value_text, "a number, NaN, +Inf or -Inf");
    sample.value = *value;
    skip_spaces();
    if (!rest_.empty()) {
      const std::string_view time_text = word();
      std::int64_t time_ms = 0;
      const auto [end, error] = std::from_chars(time_text.data(), time_text.data() + time_text.size(), time_ms);
      if (error != std::errc() || end != time_text.data() + time_text.size()) {
        return bad(fmt::format("timestamp of {}", sample.name), time_text, "whole milliseconds");
      }
      sample.timestamp_ms = time_ms;
    }
    skip_spaces();
    if (!rest_.empty()) return bad(fmt::format("after {}", sample.name), rest_, "end of line");
    return {};
  }

  void skip_spaces() {
    while (!rest_.empty() && is_space(rest_.front())) rest_.remove_prefix(1);
  }

  [[nodiscard]] bool at_end() const { return rest_.empty(); }
  [[nodiscard]] bool next_is(std::string_view any_of) const {
    return !rest_.empty() && any_of.find(rest_.front()) != std::string_view::npos;
  }

  std::string_view word() {
    std::size_t n = 0;
    while (n < rest_.size() && !is_space(rest_[n])) ++n;
    const std::string_view found = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return found;
  }

  // Empty when there is no name at the cursor.
  std::string_view name(bool colon) {
    std::size_t n = 0;
    while (n < rest_.size() && (n == 0 ? is_name_start(rest_[0]) || (colon && rest_[0] == ':') : is_name_char(rest_[n], colon)))
      ++n;
    const std::string_view found = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return found;
  }
  Error no_name(const std::string& what) const { return bad(what, rest_, "a letter or '_', then letters, digits and '_'"); }

  Error bad(const std::string& what, std::string_view found, const std::string& allowed) const {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("line {}: {}: must be {} (got {})", number_, what, allowed, shown(found))};
  }

 private:
  Result<void> labels(Sample& sample) {
    while (true) {
      skip_spaces();
      if (!rest_.empty() && rest_.front() == '}') break;
      const std::string_view found = name(false);
      if (found.empty()) return no_name("label name of " + sample.name);
      std::string label(found);
      skip_spaces();
      if (rest_.empty() || rest_.front() != '=') return bad("label " + label, rest_, "'='");
      rest_.remove_prefix(1);
      skip_spaces();
      const auto [place, is_new] = sample.labels.try_emplace(std::move(label));
      const std::string& key = place->first;
      WINDLASS_RETURN_IF_ERROR(read_quoted(key, is_new ? place->second : spare_));
      if (!is_new) return bad("label " + key, key, "a label that is not given yet");
      skip_spaces();
      if (rest_.empty() || (rest_.front() != ',' && rest_.front() != '}'))
        return bad("after label " + key, rest_, "',' or '}'");
      if (rest_.front() == '}') break;
      rest_.remove_prefix(1);
    }
    rest_.remove_prefix(1);
    return {};
  }

  Result<void> read_quoted(const std::string& label, std::string& value) {
    if (rest_.empty() || rest_.front() != '"') return bad("value of label " + label, rest_, "a '\"'");
    // Everything before the first of these characters needs no unescaping.
    const std::size_t plain = std::min(rest_.find_first_of("\"\\", 1), rest_.size());
    value = rest_.substr(1, plain - 1);
    for (std::size_t i = plain; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (c == '"') {
        rest_.remove_prefix(i + 1);
        return {};
      }
      if (c != '\\') {
        value += c;
        continue;
      }
      if (++i == rest_.size()) break;
      if (rest_[i] == 'n') {
        value += '\n';
      } else if (rest_[i] == '\\' || rest_[i] == '"') {
        value += rest_[i];
      } else {
        return bad("value of label " + label, rest_.substr(i - 1), R"(\\, \" or \n after a backslash)");
      }
    }
    return bad("value of label " + label, "", "a closing '\"'");
  }

  std::string_view rest_;
  std::size_t number_;
  std::string spare_;  // the value of a repeated label
};

std::optional<MetricType> parse_type(std::string_view text) {
  if (text == "counter") return MetricType::kCounter;
  if (text == "gauge") return MetricType::kGauge;
  if (text == "histogram") return MetricType::kHistogram;
  if (text == "summary") return MetricType::kSummary;
  if (text == "untyped" || text == "unknown") return MetricType::kUntyped;
  return std::nullopt;
}

bool matches(const Sample& sample, const std::map<std::string, std::string>& match) {
  return std::all_of(match.begin(), match.end(), [&](const auto& wanted) {
    const auto found = sample.labels.find(wanted.first);
    return found != sample.labels.end() && found->second == wanted.second;
  });
}

using Labels = std::map<std::string, std::string>;

// Orders label sets as if they had no "le" label.
struct SameButForBound {
  bool operator()(const Labels* a, const Labels* b) const {
    auto left = a->begin(), right = b->begin();
    while (true) {
      if (left != a->end() && left->first == "le") ++left;
      if (right != b->end() && right->first == "le") ++right;
      if (right == b->end()) return false;
      if (left == a->end()) return true;
      if (*left != *right) return *left < *right;
      ++left;
      ++right;
    }
  }
};

Error invalid(std::string message) { return Error{ErrorCode::kInvalidArgument, std::move(message)}; }

}  // namespace

namespace {

// Calls `line(text, number, whole)` for every line with its number; whole: the line ends with a line feed. Stops at an error.
template <class Line>
Result<void> for_each_line(std::string_view text, Line line) {
  for (std::size_t number = 1; !text.empty(); ++number) {
    const std::size_t end = text.find('\n');
    std::string_view one = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!one.empty() && one.back() == '\r') one.remove_suffix(1);
    if (one.find_first_not_of(" \t") == std::string_view::npos) continue;
    WINDLASS_RETURN_IF_ERROR(line(one, number, end != std::string_view::npos));
  }
  return {};
}

bool is_comment(std::string_view line) { return line[line.find_first_not_of(" \t")] == '#'; }

Result<void> read_type(std::string_view line, std::size_t number, Exposition& page) {
  LineScanner scanner(line, number);
  scanner.skip_spaces();
  scanner.word();
  scanner.skip_spaces();
  if (scanner.word() != "TYPE") return {};  // HELP and comments
  scanner.skip_spaces();
  const std::string name(scanner.name(true));
  if (name.empty()) return scanner.no_name("name after # TYPE");
  scanner.skip_spaces();
  const std::string_view type_text = scanner.word();
  const auto type = parse_type(type_text);
  if (!type) return scanner.bad("type of " + name, type_text, "counter, gauge, histogram, summary or untyped");
  if (!page.types.emplace(name, *type).second)
    return scanner.bad("type of " + name, type_text, "a name without an earlier # TYPE line");
  return {};
}

// The name at the start of the line, if a value or labels follow it; otherwise empty.
std::string_view legible_name(std::string_view line, std::size_t number) {
  LineScanner scanner(line, number);
  scanner.skip_spaces();
  const std::string_view name = scanner.name(true);
  return scanner.at_end() || scanner.next_is(" \t{") ? name : std::string_view();
}

bool left_out(std::string_view line, std::size_t number, const WantedSeries& wanted) {
  if (!wanted) return false;
  const std::string_view name = legible_name(line, number);
  return !name.empty() && !wanted(name);
}

}  // namespace

Result<Exposition> parse_exposition(std::string_view text, const WantedSeries& wanted) {
  Exposition page;
  if (!wanted) page.samples.reserve(static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')) + 1);
  WINDLASS_RETURN_IF_ERROR(for_each_line(text, [&](std::string_view line, std::size_t number, bool) -> Result<void> {
    if (is_comment(line)) return read_type(line, number, page);
    if (left_out(line, number, wanted)) return {};
    return LineScanner(line, number).read(page.samples.emplace_back());
  }));
  return page;
}

Result<PartialExposition> parse_exposition_partially(std::string_view text, const WantedSeries& wanted) {
  PartialExposition read;
  std::set<std::string> broken;
  std::optional<Error> first;
  WINDLASS_RETURN_IF_ERROR(for_each_line(text, [&](std::string_view line, std::size_t number, bool whole) -> Result<void> {
    if (is_comment(line)) {
      static_cast<void>(read_type(line, number, read.page));
      return {};
    }
    if (left_out(line, number, wanted)) return {};
    LineScanner scanner(line, number);
    auto sample = scanner.sample();
    if (sample.ok() && whole) {
      read.page.samples.push_back(std::move(sample).value());
      return {};
    }
    const std::string_view name = legible_name(line, number);
    const Error error = sample.ok() ? scanner.bad("after " + sample->name, "", "a line feed") : sample.error();
    if (name.empty()) return error;
    if (!first) first = error;
    broken.emplace(name);
    return {};
  }));
  std::erase_if(read.page.samples, [&](const Sample& sample) { return broken.contains(sample.name); });
  if (read.page.samples.empty() && first) return *first;
  read.broken.assign(broken.begin(), broken.end());
  return read;
}

std::vector<const Sample*> Exposition::find(std::string_view name, const std::map<std::string, std::string>& match) const {
  std::vector<const Sample*> found;
  for (const Sample& sample : samples) {
    if (sample.name == name && matches(sample, match)) found.push_back(&sample);
  }
  return found;
}

std::optional<double> Exposition::sum(std::string_view name, const std::map<std::string, std::string>& match) const {
  std::optional<double> total;
  for (const Sample& sample : samples) {
    if (sample.name == name && matches(sample, match)) total = total.value_or(0) + sample.value;
  }
  return total;
}

std::vector<std::string> Exposition::label_values(std::string_view name, const std::string& label) const {
  std::set<std::string> values;
  for (const Sample* sample : find(name)) {
    const auto found = sample->labels.find(label);
    if (found != sample->labels.end()) values.insert(found->second);
  }
  return {values.begin(), values.end()};
}

Result<HistogramSnapshot> Exposition::histogram(const std::string& name,
                                                const std::map<std::string, std::string>& match) const {
  std::map<const Labels*, std::map<double, double>, SameButForBound> series;  // bound -> count
  const std::string buckets_name = name + "_bucket";
  for (const Sample& sample : samples) {
    if (sample.name != buckets_name || !matches(sample, match)) continue;
    const auto le = sample.labels.find("le");
    const auto bound = le == sample.labels.end() ? std::nullopt : parse_value(le->second);
    if (!bound || std::isnan(*bound)) {
      return invalid(fmt::format("{}: label le: must be a number or +Inf (got {})", name,
                                 le == sample.labels.end() ? "none" : shown(le->second)));
    }
    if (!series[&sample.labels].emplace(*bound, sample.value).second)
      return invalid(fmt::format("{}: bucket le={}: must be unique (got it twice)", name, *bound));
  }
  if (series.empty()) return Error{ErrorCode::kNotFound, fmt::format("{}: no series with these labels", name)};
  HistogramSnapshot total;
  for (const auto& [labels, buckets] : series) {
    HistogramSnapshot one;
    for (const auto& [bound, count] : buckets) {
      if (!std::isfinite(count) || count < 0)
        return invalid(fmt::format("{}: bucket le={}: must be a count (got {})", name, bound, count));
      if (!one.counts.empty() && count < one.counts.back()) {
        return invalid(fmt::format("{}: bucket le={}: must be at least {}, because buckets are cumulative (got {})", name,
                                   bound, one.counts.back(), count));
      }
      one.bounds.push_back(bound);
      one.counts.push_back(count);
    }
    if (!std::isinf(one.bounds.back())) return invalid(fmt::format("{}: must have a bucket le=\"+Inf\" (got none)", name));
    auto merged = histogram_sum(total, one);
    if (!merged.ok()) return merged.error().within(name);
    total = std::move(merged).value();
  }
  total.sum = sum(name + "_sum", match).value_or(0);
  return total;
}

Result<HistogramSnapshot> histogram_sum(const HistogramSnapshot& a, const HistogramSnapshot& b) {
  if (a.bounds.empty()) return b;
  if (b.bounds.empty()) return a;
  if (a.bounds != b.bounds) return invalid("histogram buckets: must be equal in all summed series (got different ones)");
  HistogramSnapshot total = a;
  for (std::size_t i = 0; i < b.counts.size(); ++i) total.counts[i] += b.counts[i];
  total.sum += b.sum;
  return total;
}

}  // namespace windlass::metrics
