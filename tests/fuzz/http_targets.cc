// Fuzz targets for input of the gateway and of all our HTTP servers.
#include <cmath>

#include <nlohmann/json.hpp>

#include "gateway/openai.h"
#include "gateway/sse_filter.h"
#include "metrics/exposition_parser.h"
#include "metrics/latency_bins.h"
#include "metrics/net/asio.h"
#include "metrics/net/request_head.h"
#include "planner/dispatch/routing_table.h"
#include "tests/fuzz/require.h"
#include "tests/fuzz/targets.h"

namespace windlass::fuzz {
void http_head(std::string_view bytes) {
  namespace http = net::http;
  const auto problem = net::check_request_head(bytes);
  static_cast<void>(net::origin_form(bytes));
  if (problem) {
    for (const char c : problem->message) require(static_cast<unsigned char>(c) >= ' ');
    return;
  }
  require(net::may_become_head(bytes.substr(0, bytes.find("\r\n\r\n") + 4)));
  net::error_code error;
  http::request_parser<http::string_body> parser;
  parser.header_limit(static_cast<std::uint32_t>(bytes.size() + 1));
  parser.put(net::asio::buffer(bytes.data(), bytes.size()), error);
  if (!parser.is_header_done()) return;
  // An accepted head is framed in exactly one way, and Beast agrees.
  const auto& head = parser.get();
  require(head.count(http::field::host) == 1 || (head.version() == 10 && head.count(http::field::host) == 0));
  require(head.count(http::field::content_length) + head.count(http::field::transfer_encoding) <= 1);
  require(parser.chunked() == (head.count(http::field::transfer_encoding) == 1));
}

void completion_request(std::string_view bytes) {
  using nlohmann::json;
  const auto inspected = gateway::inspect_request(std::string(bytes));
  if (!inspected.problem.message.empty()) return;
  json before = json::parse(bytes), after = json::parse(inspected.head.upstream_body);
  require(after.at("model") == inspected.head.model);
  if (!inspected.head.stream || inspected.head.include_usage) return require(inspected.head.upstream_body == bytes);
  require(after.at("stream_options").at("include_usage") == true);
  // Nothing else has changed.
  after["stream_options"].erase("include_usage");
  if (before.contains("stream_options") && before["stream_options"].is_object()) {
    before["stream_options"].erase("include_usage");
  } else {
    before.erase("stream_options");
    if (after["stream_options"].empty()) after.erase("stream_options");
  }
  require(before == after);
}

void event_stream(std::string_view bytes) {
  if (bytes.empty()) return;
  const std::size_t cut = static_cast<unsigned char>(bytes.front()) % bytes.size();
  bytes.remove_prefix(1);
  gateway::SseFilter whole(true), parts(true);
  const auto all = whole.feed(bytes);
  const auto first = parts.feed(bytes.substr(0, cut));
  const auto second = parts.feed(bytes.substr(std::min(cut, bytes.size())));
  require(all.forward == first.forward + second.forward);
  require(all.content_events == first.content_events + second.content_events);
  require(whole.finish().forward == parts.finish().forward && whole.done() == parts.done());
}

void metrics_page(std::string_view bytes) {
  static_cast<void>(metrics::parse_exposition_partially(bytes));
  const auto page = metrics::parse_exposition(bytes);
  if (!page.ok()) return;
  const auto seen = metrics::read_latencies(*page, metrics::kGatewayTpot);
  if (!seen.ok()) return;
  const auto p95 = seen->counts.percentile(95);
  require(p95.has_value() == !seen->counts.empty());
  require(!p95 || (std::isfinite(p95->seconds) && p95->seconds >= 0));
  require(seen->counts.since(seen->counts) == metrics::LatencyCounts{});
}

void routing_table(std::string_view bytes) {
  const auto table = dispatch::routing_table_from_json(bytes);
  if (!table.ok()) return;
  const std::string text = dispatch::to_json(*table);
  const auto again = dispatch::routing_table_from_json(text);
  require(again.ok() && dispatch::to_json(*again) == text);
}

}  // namespace windlass::fuzz
