// Parses results of load generators into rows for a fit; see benchmark_results.h.
#include "planner/perf/benchmark_results.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace windlass::planner {
namespace {

using nlohmann::json;

constexpr double kLargest = 1e12;          // upper limit of any figure in these files
constexpr double kLeastDecodeShare = 0.1;  // of a TPOT: with a larger share of prefill it does not measure decode

// Reads numbers above 0 by path, and remembers the first one that is invalid.
class Figures {
 public:
  Figures(const json& root, std::string path) : root_(root), path_(std::move(path)) {}

  double at(const std::string& pointer) {
    const json::json_pointer place(pointer);
    const json found = root_.contains(place) ? root_[place] : json();
    const double value = found.is_number() ? found.get<double>() : 0;
    if (value > 0 && value <= kLargest) return value;
    if (!mistake_) {
      mistake_ = Error{ErrorCode::kInvalidArgument, fmt::format("{}{}: must be a number above 0 (got {})", path_, pointer,
                                                                found.is_null() ? "nothing" : found.dump().substr(0, 40))};
    }
    return 1;
  }

  Result<BenchmarkResult> finish(BenchmarkResult result) const {
    if (mistake_) return *mistake_;
    return result;
  }

 private:
  const json& root_;
  std::string path_;
  std::optional<Error> mistake_;
};

std::string text_at(const json& root, const std::string& pointer) {
  const json::json_pointer place(pointer);
  return root.contains(place) && root[place].is_string() ? root[place].get<std::string>() : std::string();
}

bool is_vllm(const json& root) { return root.contains("median_ttft_ms") && root.contains("total_input_tokens"); }
bool is_aiperf(const json& root) { return root.contains("time_to_first_token") && root.contains("input_sequence_length"); }
bool is_guidellm(const json& root) {
  return root.contains("benchmarks") && root["benchmarks"].is_array() && !root["benchmarks"].empty() &&
         root["benchmarks"][0].contains(json::json_pointer("/metrics/time_to_first_token_ms"));
}

Result<BenchmarkResult> of_vllm(const json& root) {
  Figures figures(root, "");
  BenchmarkResult result{"vLLM", text_at(root, "/model_id")};
  const double completed = figures.at("/completed");
  result.requests_per_s = figures.at("/request_throughput");
  result.prompt_tokens = figures.at("/total_input_tokens") / completed;
  result.output_tokens = figures.at("/total_output_tokens") / completed;
  result.ttft_s = figures.at("/median_ttft_ms") * 1e-3;
  result.tpot_s = figures.at("/median_tpot_ms") * 1e-3;
  result.mean_tpot_s = figures.at("/mean_tpot_ms") * 1e-3;
  return figures.finish(std::move(result));
}

// The figure of a metric in seconds, whatever its unit.
double seconds_at(Figures& figures, const json& root, const std::string& metric, const std::string& figure) {
  static const std::map<std::string, double> units{{"s", 1}, {"sec", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  const auto unit = units.find(text_at(root, metric + "/unit"));
  return figures.at(metric + "/" + figure) * (unit == units.end() ? 1e-3 : unit->second);
}

Result<BenchmarkResult> of_aiperf(const json& root) {
  Figures figures(root, "");
  BenchmarkResult result{"AIPerf", text_at(root, "/input_config/endpoint/model_names/0")};
  result.requests_per_s = figures.at("/request_throughput/avg");
  result.prompt_tokens = figures.at("/input_sequence_length/avg");
  result.output_tokens = figures.at("/output_sequence_length/avg");
  result.ttft_s = seconds_at(figures, root, "/time_to_first_token", "p50");
  result.tpot_s = seconds_at(figures, root, "/inter_token_latency", "p50");
  result.mean_tpot_s = seconds_at(figures, root, "/inter_token_latency", "avg");
  return figures.finish(std::move(result));
}

Result<BenchmarkResult> of_guidellm(const json& benchmark, std::size_t index) {
  Figures figures(benchmark, fmt::format("/benchmarks/{}", index));
  const auto of = [&](const char* metric, const char* figure) {
    return figures.at(fmt::format("/metrics/{}/successful/{}", metric, figure));
  };
  BenchmarkResult result{"GuideLLM", text_at(benchmark, "/config/backend/model")};
  result.requests_per_s = of("requests_per_second", "mean");
  result.prompt_tokens = of("prompt_token_count", "mean");
  result.output_tokens = of("output_token_count", "mean");
  result.ttft_s = of("time_to_first_token_ms", "median") * 1e-3;
  result.tpot_s = of("inter_token_latency_ms", "median") * 1e-3;
  result.mean_tpot_s = of("inter_token_latency_ms", "mean") * 1e-3;
  return figures.finish(std::move(result));
}

using Parsed = std::optional<std::vector<BenchmarkResult>>;

Result<Parsed> of_json(const json& root) {
  std::vector<BenchmarkResult> results;
  if (is_guidellm(root)) {
    for (std::size_t i = 0; i < root["benchmarks"].size(); ++i) {
      WINDLASS_ASSIGN_OR_RETURN(BenchmarkResult one, of_guidellm(root["benchmarks"][i], i));
      results.push_back(std::move(one));
    }
    return Parsed(std::move(results));
  }
  if (!is_vllm(root) && !is_aiperf(root)) return Parsed();
  WINDLASS_ASSIGN_OR_RETURN(BenchmarkResult one, is_vllm(root) ? of_vllm(root) : of_aiperf(root));
  results.push_back(std::move(one));
  return Parsed(std::move(results));
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line(text.substr(begin, end - begin));
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty()) lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

// Splits a line into fields; fields with commas are quoted.
std::vector<std::string> fields_of(const std::string& line) {
  std::vector<std::string> fields(1);
  bool quoted = false;
  for (const char c : line) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c == ',' && !quoted) {
      fields.emplace_back();
    } else {
      fields.back() += c;
    }
  }
  return fields;
}

// Returns {"Time to First Token (ms)": {"avg": 49.87, "p50": 45}, "Request Throughput (requests/sec)": {"avg": 1.2}}, with
// AIPerf's names.
json aiperf_json(const std::vector<std::string>& lines) {
  json root = json::object();
  std::vector<std::string> header;
  for (const std::string& line : lines) {
    const std::vector<std::string> fields = fields_of(line);
    if (fields[0] == "Metric" || fields[0] == "Endpoint") {
      header = fields;
      continue;
    }
    if (header.empty() || header[0] != "Metric") continue;  // telemetry of the GPUs
    const std::size_t unit = fields[0].find(" (");
    std::string name = fields[0].substr(0, unit);
    std::transform(name.begin(), name.end(), name.begin(), [](char c) {
      return c == ' ' ? '_' : 'A' <= c && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    });
    if (unit != std::string::npos) root[name]["unit"] = fields[0].substr(unit + 2, fields[0].size() - unit - 3);
    for (std::size_t i = 1; i < std::min(fields.size(), header.size()); ++i) {
      std::string digits = fields[i];
      digits.erase(std::remove(digits.begin(), digits.end(), ','), digits.end());
      double value = 0;
      const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (error != std::errc() || end != digits.data() + digits.size()) continue;
      root[name][header[i] == "Value" ? "avg" : header[i]] = value;
    }
  }
  return root;
}

}  // namespace

Result<Parsed> parse_benchmark_results(std::string_view text) {
  const std::vector<std::string> lines = lines_of(text);
  if (lines.empty()) return Parsed();
  if (lines.front().rfind("Metric,", 0) == 0) return of_json(aiperf_json(lines));
  const json whole = json::parse(text, nullptr, false);
  if (whole.is_object()) return of_json(whole);
  // One object per line.
  std::vector<BenchmarkResult> results;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const json one = json::parse(lines[i], nullptr, false);
    if (!one.is_object()) return Parsed();
    auto parsed = of_json(one);
    if (!parsed.ok()) return parsed.error().within(fmt::format("line {}", i + 1));
    if (!*parsed) return Parsed();
    results.insert(results.end(), (*parsed)->begin(), (*parsed)->end());
  }
  return Parsed(std::move(results));
}

std::vector<ProfileRow> rows_of(std::span<const BenchmarkResult> results, const ProfileKey& key) {
  std::vector<ProfileRow> rows;
  for (const BenchmarkResult& result : results) {
    const double decoding = result.requests_per_s * result.mean_tpot_s * std::max(result.output_tokens - 1, 0.0);
    const double batch = std::max(1.0, std::round(decoding));
    ProfileRow row{key.model, key.hardware, key.tensor_parallel};
    row.prompt_tokens = std::max(1.0, std::round(result.prompt_tokens));
    row.batch_size = 1;
    row.output_tokens = 1;
    row.prompt_s = std::max(result.ttft_s / 2, batch > 1 ? result.ttft_s - result.tpot_s / 2 : result.ttft_s);
    rows.push_back(row);
    const double prefill_share = result.requests_per_s * row.prompt_s * (1 - 1 / batch);
    row.batch_size = batch;
    row.output_tokens = std::max(2.0, std::round(result.output_tokens));
    row.token_s = result.tpot_s * std::max(kLeastDecodeShare, 1 - prefill_share);
    row.prompt_s = 0;
    rows.push_back(row);
  }
  return rows;
}

}  // namespace windlass::planner
