// Paths and methods of the public side.
#include "gateway/http_public.h"

#include <fmt/format.h>

#include "gateway/http_text.h"

namespace windlass::gateway {
namespace {

constexpr auto kAnswerTimeout = std::chrono::seconds(60);

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
  Answer answer =
      error_answer(405, fmt::format("{}: found method {}, allowed is {}.", path, method, allowed), "method_not_allowed");
  answer.extra = fmt::format("Allow: {}\r\n", allowed);
  return answer;
}

std::string_view view(beast::string_view text) { return {text.data(), text.size()}; }

bool is_completion(std::string_view path) { return path == "/v1/chat/completions" || path == "/v1/completions"; }

// What can be answered without a worker; a completion is not among it.
Answer answer_at_once(const Proxy& proxy, const HttpRequest& request, std::string_view path) {
  constexpr std::string_view kModels = "/v1/models";
  const std::string_view method = view(request.method_string());
  const bool get = request.method() == http::verb::get;
  if (path == kModels) {
    if (!get) return wrong_method(method, path, "GET");
    return Answer{200, model_list(proxy.dispatcher.router().table()), {}, false};
  }
  if (path.substr(0, kModels.size() + 1) == "/v1/models/") {
    if (!get) return wrong_method(method, path, "GET");
    const std::string name(path.substr(kModels.size() + 1));
    std::string body = model_object(proxy.dispatcher.router().table(), name);
    if (!body.empty()) return Answer{200, std::move(body), {}, false};
    return error_answer(404, fmt::format("The model '{}' does not exist.", name), "model_not_found", "model");
  }
  if (is_completion(path)) return wrong_method(method, path, "POST");
  return error_answer(
      404,
      fmt::format("Found path {}, allowed are POST /v1/chat/completions, POST /v1/completions, GET /v1/models and "
                  "GET /v1/models/{{model}}.",
                  path.substr(0, 200)),
      "unknown_path");
}

asio::awaitable<bool> write_answer(beast::tcp_stream& stream, Answer answer, bool keep_alive) {
  keep_alive = keep_alive && !answer.close;
  const std::string text = simple_response(answer.status, "application/json", answer.body, keep_alive, answer.extra);
  stream.expires_after(kAnswerTimeout);
  error_code error;
  co_await asio::async_write(stream, asio::buffer(text), to(error));
  stream.expires_never();
  co_return keep_alive && !error;
}

asio::awaitable<bool> handle(Proxy& proxy, beast::tcp_stream& stream, HttpRequest& request) {
  const std::string target(view(request.target()));
  const std::string_view path = std::string_view(target).substr(0, target.find('?'));
  const bool keep_alive = request.keep_alive();
  const std::string id = request_id(request);
  Answer answer;
  if (!is_completion(path) || request.method() != http::verb::post) {
    answer = answer_at_once(proxy, request, path);
  } else if (proxy.draining) {
    answer = error_answer(503, "The gateway is shutting down.", "shutting_down");
    answer.extra = "Retry-After: 1\r\n";
    answer.close = true;
  } else {
    Inspected inspected = inspect_request(std::move(request.body()));
    if (inspected.problem.message.empty()) {
      Exchange::Request proxied{target,    end_to_end_headers(request), id, std::move(inspected.head), request.version() < 11,
                                keep_alive};
      Exchange exchange(proxy, stream, std::move(proxied));
      const bool go_on = co_await exchange.run();
      co_return go_on;
    }
    answer = error_answer(400, inspected.problem.message, "bad_request", inspected.problem.param);
  }
  answer.extra += fmt::format("X-Request-Id: {}\r\n", id);
  const bool go_on = co_await write_answer(stream, std::move(answer), keep_alive);
  co_return go_on;
}

}  // namespace

HttpServer::Handler public_handler(Proxy& proxy) {
  return [&proxy](beast::tcp_stream& stream, HttpRequest& request) { return handle(proxy, stream, request); };
}

}  // namespace windlass::gateway
