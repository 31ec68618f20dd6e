// The little that the gateway itself must know of OpenAI's API: a request's model and stream flags, error bodies, the list of
// models. Pure. Everything else in a request is the worker's to judge.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "planner/base/result.h"
#include "planner/dispatch/routing_table.h"

namespace windlass::gateway {

// The longest that a ModelService may have are 192: names stand in error messages and in the router, whose memory nothing
// counts.
inline constexpr std::size_t kMaxModelBytes = 256;

struct RequestHead {
  std::string model;
  bool stream = false;
  bool include_usage = false;  // the client asked for the usage chunk itself
  std::string upstream_body;   // what goes to the worker: asks for usage where the client streams and did not
};

// An InvalidArgument's message names the field, what was found and what is allowed; `param` of the error body is its first word
// in quotes, if any.
struct BadRequest {
  std::string message;
  std::string param;  // empty: the body as a whole
};

struct Inspected {
  RequestHead head;
  BadRequest problem;  // message empty: none
};

// Takes the body of a completion or chat completion request; the body moves into upstream_body.
[[nodiscard]] Inspected inspect_request(std::string body);

// {"error":{"message","type","param","code"}}; an empty param or code is null. The type follows from the status.
[[nodiscard]] std::string error_body(int status, std::string_view message, std::string_view code, std::string_view param = {});

// An SSE event that ends a broken stream: "data: {"error":...}\n\n".
[[nodiscard]] std::string error_event(int status, std::string_view message, std::string_view code);

// GET /v1/models: every model of the table that `may_use` lets through. `created` is not known to a table and stands at 0.
[[nodiscard]] std::string model_list(const dispatch::RoutingTable& table,
                                     const std::function<bool(const std::string& model)>& may_use);
// GET /v1/models/{name}; empty when the table does not list it.
[[nodiscard]] std::string model_object(const dispatch::RoutingTable& table, std::string_view name);

}  // namespace windlass::gateway
