// See promql_client.h.
#include "metrics/promql_client.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <optional>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/percent.h"

namespace windlass::metrics {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxMessageChars = 200;  // characters of the server's text that an error quotes

std::string shortened(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kMaxMessageChars)) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return out;
}

std::optional<double> number(const std::string& text) {
  if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
  if (text == "+Inf" || text == "Inf") return std::numeric_limits<double>::infinity();
  if (text == "-Inf") return -std::numeric_limits<double>::infinity();
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

Error no_answer(const std::string& what) { return Error{ErrorCode::kUnavailable, "Prometheus: " + what}; }

// [unix time, "value"]
Result<PromqlSample> read_point(const json& point) {
  if (!point.is_array() || point.size() != 2 || !point[0].is_number() || !point[1].is_string())
    return no_answer("value: must be [time, \"number\"] (got something else)");
  const auto value = number(point[1].get<std::string>());
  if (!value) return no_answer(fmt::format("value: must be a number (got '{}')", shortened(point[1].get<std::string>())));
  return PromqlSample{{}, *value, point[0].get<double>()};
}

}  // namespace

std::string promql_url(std::string_view server, std::string_view query, double timeout_s) {
  while (!server.empty() && server.back() == '/') server.remove_suffix(1);
  return fmt::format("{}/api/v1/query?query={}&timeout={:.0f}ms", server, percent_encoded(query), std::ceil(timeout_s * 1000));
}

Result<std::vector<PromqlSample>> read_promql_answer(int status, std::string_view body) {
  if (status == 401 || status == 403) {
    return Error{ErrorCode::kPermissionDenied,
                 fmt::format("Prometheus: HTTP status {}: the token is missing, wrong or may not query", status)};
  }
  const json answer = json::parse(body, nullptr, false);
  const bool readable = answer.is_object() && answer.contains("status") && answer["status"].is_string();
  if (!readable)
    return no_answer(fmt::format("answer: must be JSON with a status (got HTTP status {}: {})", status, shortened(body)));
  if (answer["status"] != "success") {
    const auto text = [&](const char* field) {
      return answer.contains(field) && answer[field].is_string() ? shortened(answer[field].get<std::string>()) : std::string();
    };
    const std::string message = fmt::format("Prometheus: {}: {}", text("errorType"), text("error"));
    return Error{text("errorType") == "bad_data" ? ErrorCode::kInvalidArgument : ErrorCode::kUnavailable, message};
  }
  if (status != 200) return no_answer(fmt::format("HTTP status {}", status));
  // A partial answer, which lacks some gateways: Thanos adds a warning, VictoriaMetrics a flag.
  if (answer.contains("isPartial") && answer["isPartial"] == true) return no_answer("answer: must be complete (got isPartial)");
  if (const auto warnings = answer.find("warnings"); warnings != answer.end() && !warnings->empty())
    return no_answer("answer: must come without warnings (got " + shortened(warnings->dump()) + ")");
  const auto data = answer.find("data");
  if (data == answer.end() || !data->is_object() || !data->contains("resultType") || !data->contains("result"))
    return no_answer("data.result: must be given (got nothing)");
  const json& result = (*data)["result"];
  if ((*data)["resultType"] == "scalar") {
    WINDLASS_ASSIGN_OR_RETURN(PromqlSample sample, read_point(result));
    return std::vector<PromqlSample>{std::move(sample)};
  }
  if ((*data)["resultType"] != "vector" || !result.is_array()) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("Prometheus: result: must be a vector or a scalar (got type {})",
                                                          shortened((*data)["resultType"].dump()))};
  }
  std::vector<PromqlSample> samples;
  for (const json& one : result) {
    if (!one.is_object() || !one.contains("metric") || !one["metric"].is_object() || !one.contains("value"))
      return no_answer("sample: must have a metric and a value (got something else, perhaps a native histogram)");
    WINDLASS_ASSIGN_OR_RETURN(PromqlSample sample, read_point(one["value"]));
    for (const auto& [name, value] : one["metric"].items()) {
      if (!value.is_string()) return no_answer("label: must be a string (got something else)");
      sample.labels[name] = value.get<std::string>();
    }
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::string promql_escape(std::string_view value) {
  std::string out;
  for (const char c : value) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n') {
      out += "\\n";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace windlass::metrics
