// Instant queries to a Prometheus server: what to ask for, and what the answer says. Pure; the caller sends the request over
// its own transport. Any thread.
//
// The API is Prometheus' HTTP API v1, /api/v1/query; Thanos, Mimir and VictoriaMetrics answer alike.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::metrics {

struct PromqlSample {
  std::map<std::string, std::string> labels;
  double value = 0;  // may be NaN or infinite: the caller decides what that means
  double at_s = 0;   // Unix time of the evaluation, by the server's clock

  bool operator==(const PromqlSample&) const = default;
};

// GET this. `server`: scheme://host:port, may have a path. The server gives up after timeout_s.
[[nodiscard]] std::string promql_url(std::string_view server, std::string_view query, double timeout_s);

// A vector's samples, or a scalar's one without labels; empty where the query matches nothing.
// Errors: kPermissionDenied (401, 403), kInvalidArgument (a query that the server refuses, or one whose answer is no vector or
// scalar), kUnavailable (everything else that is no answer, or a part of it: one that came with warnings). The message holds
// the server's own words, never a header.
[[nodiscard]] Result<std::vector<PromqlSample>> read_promql_answer(int status, std::string_view body);

// What stands between the quotes of a label matcher.
[[nodiscard]] std::string promql_escape(std::string_view value);

}  // namespace windlass::metrics
