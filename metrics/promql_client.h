// Instant queries to a Prometheus server: builds the URL and parses the answer. Pure; the caller sends the request over its own
// transport. Any thread.
//
// The API is Prometheus' HTTP API v1, /api/v1/query; Thanos, Mimir and VictoriaMetrics implement it too.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::metrics {

struct PromqlSample {
  std::map<std::string, std::string> labels;
  double value = 0;  // may be NaN or infinite: the caller decides what to do
  double at_s = 0;   // Unix time of the evaluation, by the server's clock

  bool operator==(const PromqlSample&) const = default;
};

// The URL to GET. `server`: scheme://host:port, optionally with a path. The server gives up after timeout_s.
[[nodiscard]] std::string promql_url(std::string_view server, std::string_view query, double timeout_s);

// The samples of a vector, or a scalar's single sample without labels; empty when the query matches nothing. Errors:
// kPermissionDenied (401, 403), kInvalidArgument (the server refuses the query, or its answer is neither a vector nor a
// scalar), kUnavailable (any other failure, including a partial answer with warnings). The message quotes the server's text,
// never a header.
[[nodiscard]] Result<std::vector<PromqlSample>> read_promql_answer(int status, std::string_view body);

// Escapes a value for the quotes of a label matcher.
[[nodiscard]] std::string promql_escape(std::string_view value);

}  // namespace windlass::metrics
