// Sends the requests and reads the answers; see attach_probe.h.
#include "controller/cli/attach/attach_probe.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "controller/cli/live/worker_probe.h"
#include "metrics/net/host_port.h"

namespace windlass::cli {
namespace {

using nlohmann::json;

constexpr double kAskS = 10;
constexpr int kMaxCount = 100'000'000;
constexpr std::size_t kMaxPageBytes = std::size_t{1} << 20U;

// The page's JSON; null if it is not valid.
json page_of(kube::HttpTransport& transport, const std::string& url) {
  const auto response = transport.send({.url = url, .timeout_s = kAskS, .max_bytes = kMaxPageBytes});
  if (!response.ok() || response->status != 200) return {};
  const json page = json::parse(response->body, nullptr, false);
  return page.is_object() ? page : json();
}

std::optional<int> count_in(const json& object, const char* key) {
  if (!object.is_object()) return std::nullopt;
  const auto found = object.find(key);
  if (found == object.end() || !found->is_number_integer()) return std::nullopt;
  const auto value = found->get<std::int64_t>();
  return value > 0 && value <= kMaxCount ? std::optional<int>(static_cast<int>(value)) : std::nullopt;
}

std::string text_in(const json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The only entry of /v1/models.
Result<json> only_model_of(kube::HttpTransport& transport, const std::string& url) {
  WINDLASS_ASSIGN_OR_RETURN(const kube::HttpResponse response,
                            transport.send({.url = url, .timeout_s = kAskS, .max_bytes = kMaxPageBytes}));
  if (response.status == 401 || response.status == 403)
    return Error{ErrorCode::kPermissionDenied,
                 fmt::format("GET {}: must answer 200 (got {}); servers that require an API key are not supported", url,
                             response.status)};
  if (response.status != 200) {
    return Error{ErrorCode::kUnavailable, fmt::format("GET {}: must answer 200 (got {})", url, response.status)};
  }
  const json page = json::parse(response.body, nullptr, false);
  std::vector<std::string> names;
  if (page.is_object() && page.contains("data") && page["data"].is_array()) {
    for (const json& model : page["data"]) names.push_back(text_in(model, "id"));
  }
  const auto is_plain = [](const std::string& name) {  // the name is printed: it must not control the terminal
    return std::none_of(name.begin(), name.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
  };
  if (!std::all_of(names.begin(), names.end(), is_plain))
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must name its model without control characters", url)};
  if (names.size() == 1 && !names.front().empty()) return page["data"][0];
  return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must name one model (got {})", url,
                                                        names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")))};
}

}  // namespace

Result<std::string> address_of_server(const std::string& url) {
  constexpr std::string_view kHttp = "http://";
  std::string_view rest = url;
  if (rest.starts_with(kHttp)) {
    rest.remove_prefix(kHttp.size());
    if (rest.ends_with('/')) rest.remove_suffix(1);
    if (rest.ends_with("/v1")) rest.remove_suffix(3);
    if (const auto parsed = net::parse_host_port(rest); parsed.ok()) return net::to_string(*parsed);
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("URL: must be http://HOST:PORT (got '{}'); TLS is not supported here", url)};
}

Result<ProbedServer> probe_server(kube::HttpTransport& transport, const std::string& url) {
  ProbedServer server;
  WINDLASS_ASSIGN_OR_RETURN(server.address, address_of_server(url));
  server.url = "http://" + server.address;
  WINDLASS_ASSIGN_OR_RETURN(const json model, only_model_of(transport, server.url + "/v1/models"));
  server.model = text_in(model, "id");
  server.context_tokens = count_in(model, "max_model_len");
  server.model_path = text_in(model, "root");
  if (const auto page = metrics_of(transport, server.url); page.ok()) server.engine = metrics::detect_engine(*page);
  if (server.engine && server.engine != metrics::EngineKind::kLlamaCpp) return server;

  // llama.cpp has /metrics only with --metrics, but always has /props.
  const json props = page_of(transport, server.url + "/props");
  const auto slots = count_in(props, "total_slots");
  if (!slots) return server;
  server.engine = metrics::EngineKind::kLlamaCpp;
  server.slots = slots;
  server.model_path = text_in(props, "model_path");
  if (props.contains("default_generation_settings"))
    server.context_tokens = count_in(props["default_generation_settings"], "n_ctx");
  return server;
}

std::string to_text(const ProbedServer& server) {
  std::string text = fmt::format("{}: {}, model {}", server.url,
                                 server.engine ? metrics::engine_name(*server.engine) : "unknown engine", server.model);
  if (server.context_tokens) text += fmt::format(", context {} tokens", *server.context_tokens);
  if (server.slots) text += fmt::format(", {} concurrent requests", *server.slots);
  return text;
}

}  // namespace windlass::cli
