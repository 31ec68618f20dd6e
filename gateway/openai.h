// The part of OpenAI's API that the gateway needs: a request's model and stream flags, error bodies, and the list of models.
// Pure. The worker validates everything else in a request.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "planner/base/result.h"
#include "planner/dispatch/routing_table.h"

namespace windlass::gateway {

// A ModelService name has at most 192 bytes. The limit exists because names appear in error messages and in the router, whose
// memory is not budgeted.
inline constexpr std::size_t kMaxModelBytes = 256;

struct RequestHead {
  std::string model;
  bool stream = false;
  bool include_usage = false;  // the client asked for the usage chunk
  std::string upstream_body;   // body for the worker; adds the usage option when a streaming client did not set it
};

// The message names the field, the rule and the value found; `param` of the error body is the first quoted word, if any.
struct BadRequest {
  std::string message;
  std::string param;  // empty: the whole body
};

struct Inspected {
  RequestHead head;
  BadRequest problem;  // message empty: none
};

// Takes the body of a completion or chat completion request and moves it into upstream_body.
[[nodiscard]] Inspected inspect_request(std::string body);

// {"error":{"message","type","param","code"}}; an empty param or code becomes null. The type depends on the status.
[[nodiscard]] std::string error_body(int status, std::string_view message, std::string_view code, std::string_view param = {});

// An SSE event that ends a broken stream: "data: {"error":...}\n\n".
[[nodiscard]] std::string error_event(int status, std::string_view message, std::string_view code);

// GET /v1/models: every model in the table that `may_use` allows. A table has no creation times, so `created` is 0.
[[nodiscard]] std::string model_list(const dispatch::RoutingTable& table,
                                     const std::function<bool(const std::string& model)>& may_use);
// GET /v1/models/{name}; empty when the table does not list the model.
[[nodiscard]] std::string model_object(const dispatch::RoutingTable& table, std::string_view name);

}  // namespace windlass::gateway
