// Handles paths, methods and API keys of the public side.
#include "gateway/http_public.h"

#include <fmt/format.h>

#include "gateway/http_text.h"
#include "metrics/security/secrets.h"
#include "planner/base/foreign_text.h"

namespace windlass::gateway {
namespace {

constexpr std::string_view kHealth = "/health";
constexpr auto kPublicTimeout = std::chrono::seconds(60);

struct Answer {
  int status = 200;
  std::string body;
  std::string extra;  // header lines
  bool close = false;
};

Answer error_answer(int status, const std::string& message, std::string_view code, std::string_view param = {}) {
  return Answer{status, error_body(status, message, code, param), {}, false};
}

Answer wrong_method(std::string_view method, std::string_view path, std::string_view allowed) {
  Answer answer = error_answer(
      405, fmt::format("{}: method must be {} (got {}).", shown_text(path), allowed, shown_text(method)), "method_not_allowed");
  answer.extra = fmt::format("Allow: {}\r\n", allowed);
  return answer;
}

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

std::string_view path_of(const http::request_header<>& head) {
  const std::string_view target = view(head.target());
  return target.substr(0, target.find('?'));
}

bool is_preflight(const Proxy& proxy, const http::request_header<>& head) {
  return proxy.cors.enabled() && head.method() == http::verb::options && head.count(http::field::origin) > 0 &&
         head.count(http::field::access_control_request_method) > 0;
}

// Browsers send preflights without a key, and load balancers have none. These requests have no body, so that nobody gets memory
// without a key.
bool is_open(const Proxy& proxy, const http::request_header<>& head) {
  if (head.count(http::field::content_length) > 0 || head.count(http::field::transfer_encoding) > 0) return false;
  return is_preflight(proxy, head) || path_of(head) == kHealth;
}

std::string cors_of(const Proxy& proxy, const http::request_header<>& head) {
  return proxy.cors.headers(view(head[http::field::origin]));
}

// Same as the admin side's /ready.
Answer health(const Proxy& proxy, const HttpRequest& request) {
  if (request.method() != http::verb::get) return wrong_method(view(request.method_string()), kHealth, "GET");
  if (proxy.leaving) return error_answer(503, "The gateway is shutting down.", "shutting_down");
  if (!proxy.dispatcher.router().has_table()) return error_answer(503, "The gateway has no routing table yet.", "not_ready");
  return Answer{200, "{\"status\":\"ok\"}", {}, false};
}

bool is_completion(std::string_view path) { return path == "/v1/chat/completions" || path == "/v1/completions"; }

// Answers what needs no worker; completions need one.
Answer answer_at_once(const Proxy& proxy, const HttpRequest& request, std::string_view path, const ApiKey* key) {
  const auto may_use = [key](const std::string& model) { return key == nullptr || key->may_use(model); };
  constexpr std::string_view kModels = "/v1/models";
  const std::string_view method = view(request.method_string());
  const bool get = request.method() == http::verb::get;
  if (path == kModels) {
    if (!get) return wrong_method(method, path, "GET");
    return Answer{200, model_list(proxy.dispatcher.router().table(), may_use), {}, false};
  }
  if (path.substr(0, kModels.size() + 1) == "/v1/models/") {
    if (!get) return wrong_method(method, path, "GET");
    const std::string name(path.substr(kModels.size() + 1));
    std::string body = may_use(name) ? model_object(proxy.dispatcher.router().table(), name) : std::string();
    if (!body.empty()) return Answer{200, std::move(body), {}, false};
    return error_answer(404, fmt::format("The model '{}' does not exist.", shown_text(name)), "model_not_found", "model");
  }
  if (is_completion(path)) return wrong_method(method, path, "POST");
  return error_answer(404,
                      fmt::format("The request must be POST /v1/chat/completions, POST /v1/completions, GET /v1/models, "
                                  "GET /v1/models/{{model}} or GET /health (got path {}).",
                                  shown_text(path)),
                      "unknown_path");
}

// The entry of the key that the request carries; for an unknown key null, and the answer.
struct Identified {
  std::optional<ApiKey> key;
  std::optional<net::Refusal> refused;
};

Identified identify(const KeyFile& keys, const http::fields& head) {
  const std::string_view presented = security::bearer(view(head[http::field::authorization]));
  const auto refuse = [](const char* message, const char* code) {
    return Identified{std::nullopt, net::Refusal{401, message, code, "WWW-Authenticate: Bearer\r\n"}};
  };
  if (presented.empty())
    return refuse("The request must have an API key: 'Authorization: Bearer KEY' (got none).", "missing_api_key");
  // Looks up the digest, so that the search time reveals nothing about the key.
  const auto found = keys.by_digest.find(security::sha256_hex(presented));
  if (found == keys.by_digest.end()) return refuse("The API key is not known.", "invalid_api_key");
  return Identified{found->second, std::nullopt};
}

// Refuses what the key may not have now. If it admits the request, the request counts until KeyLimits::finished.
std::optional<Answer> refuse_by_limits(KeyLimits& limits, const ApiKey& key, const std::string& model) {
  if (!key.may_use(model)) {
    return error_answer(403, fmt::format("The API key '{}' may not use the model '{}'.", key.id, model), "model_not_allowed",
                        "model");
  }
  const auto verdict = limits.admit(key, Dispatcher::now_s());
  if (verdict.admitted) return std::nullopt;
  Answer answer = error_answer(
      429,
      fmt::format("The API key '{}' is over its limit {}; try again in {} s.", key.id, verdict.limit, verdict.retry_after_s),
      "rate_limit_exceeded");
  answer.extra = fmt::format("Retry-After: {}\r\n", verdict.retry_after_s);
  return answer;
}

asio::awaitable<bool> write_answer(Stream& stream, Answer answer, bool keep_alive) {
  keep_alive = keep_alive && !answer.close;
  const std::string text = net::simple_response(answer.status, "application/json", answer.body, keep_alive, answer.extra);
  stream.expires_after(kPublicTimeout);
  error_code error;
  co_await asio::async_write(stream, asio::buffer(text), to(error));
  stream.expires_never();
  co_return keep_alive && !error;
}

asio::awaitable<bool> handle(Proxy& proxy, Stream& stream, HttpRequest& request) {
  const std::string target(view(request.target()));
  const std::string_view path = std::string_view(target).substr(0, target.find('?'));
  const bool keep_alive = stays_open(request);
  const std::string id = request_id(request);
  Answer answer;
  const std::string cors = cors_of(proxy, request);
  if (is_open(proxy, request)) {
    answer = is_preflight(proxy, request) ? Answer{200, {}, {}, false} : health(proxy, request);
    answer.extra += is_preflight(proxy, request)
                        ? proxy.cors.preflight_headers(view(request[http::field::origin]),
                                                       view(request[http::field::access_control_request_headers]))
                        : cors;
    answer.extra += fmt::format("X-Request-Id: {}\r\n", id);
    co_return co_await write_answer(stream, std::move(answer), keep_alive && !proxy.leaving);
  }
  const auto keys = proxy.keys == nullptr ? nullptr : proxy.keys();
  Identified caller;
  if (keys != nullptr) {
    caller = identify(*keys, request);
  }
  if (caller.refused.has_value()) {  // the keys changed after the head was read
    answer = error_answer(caller.refused->status, caller.refused->message, caller.refused->code);
    answer.extra = caller.refused->headers;
  } else if (!is_completion(path) || request.method() != http::verb::post) {
    answer = answer_at_once(proxy, request, path, caller.key.has_value() ? &*caller.key : nullptr);
  } else if (proxy.draining) {
    answer = error_answer(503, "The gateway is shutting down.", "shutting_down");
    answer.extra = "Retry-After: 1\r\n";
    answer.close = true;
  } else {
    Inspected inspected = inspect_request(std::move(request.body()));
    std::optional<Answer> refused;
    if (!inspected.problem.message.empty()) {
      refused = error_answer(400, inspected.problem.message, "bad_request", inspected.problem.param);
    } else if (caller.key.has_value()) {
      refused = refuse_by_limits(proxy.limits, *caller.key, inspected.head.model);
    }
    if (!refused.has_value()) {
      Exchange::Request proxied{
          target, headers_to_worker(request), id, std::move(inspected.head), request.version() < 11, keep_alive, cors};
      Exchange exchange(proxy, stream, std::move(proxied));
      const bool go_on = co_await exchange.run();
      if (caller.key.has_value()) {
        const Ticket& ticket = exchange.ticket();
        proxy.limits.finished(caller.key->id, ticket.final_tokens, Dispatcher::now_s());
        proxy.dispatcher.count_key(caller.key->id, ticket.final_code, ticket.final_tokens);
      }
      co_return go_on;
    }
    answer = std::move(*refused);
  }
  if (keys != nullptr) proxy.dispatcher.count_key(caller.key.has_value() ? caller.key->id : "", answer.status, 0);
  answer.extra += fmt::format("{}X-Request-Id: {}\r\n", cors, id);
  const bool go_on = co_await write_answer(stream, std::move(answer), keep_alive && !proxy.leaving);
  co_return go_on;
}

}  // namespace

HttpServer::Handler public_handler(Proxy& proxy) {
  return [&proxy](Stream& stream, HttpRequest& request) { return handle(proxy, stream, request); };
}

std::optional<net::Refusal> admit_to_public(Proxy& proxy, const http::request_header<>& head) {
  const auto keys = proxy.keys == nullptr ? nullptr : proxy.keys();
  if (keys == nullptr || is_open(proxy, head)) return std::nullopt;
  Identified caller = identify(*keys, head);
  if (!caller.refused.has_value()) return std::nullopt;
  proxy.dispatcher.count_key("", caller.refused->status, 0);
  net::Refusal refused = std::move(*caller.refused);
  refused.headers += fmt::format("{}X-Request-Id: {}\r\n", cors_of(proxy, head), request_id(head));
  return refused;
}

}  // namespace windlass::gateway
