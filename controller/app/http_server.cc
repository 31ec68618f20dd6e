// See http_server.h.
#include "controller/app/http_server.h"

#include <algorithm>
#include <list>
#include <mutex>
#include <optional>
#include <utility>  // boost 1.74 forgets it

#include <cpprest/http_listener.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/api/duration.h"
#include "controller/app/clock.h"
#include "planner/policy/json.h"

namespace windlass::controller {
namespace {

using web::http::http_request;
using web::http::http_response;
using web::http::status_codes;

constexpr double kLongestWaitS = 60;
constexpr const char* kJson = "application/json";

void answer(const http_request& request, int status, const std::string& body,
            const std::string& type = "text/plain; charset=utf-8") {
  http_response response(static_cast<web::http::status_code>(status));
  response.set_body(body, type);
  // The peer may be gone; nobody is left to tell.
  request.reply(response).then([](const pplx::task<void>& sent) {
    try {
      sent.get();
    } catch (const std::exception&) {
    }
  });
}

void refuse(const http_request& request, int status, const std::string& message) {
  answer(request, status, nlohmann::json{{"error", message}}.dump() + "\n", kJson);
}

}  // namespace

struct HttpServer::Impl {
  Impl(RoutingPublisher& publisher_in, metrics::Registry& registry_in, std::function<void()> on_question_in)
      : publisher(publisher_in), registry(registry_in), on_question(std::move(on_question_in)) {}

  struct Waiting {
    http_request request;
    std::string gateway;
    dispatch::TableVersion after;
    double until_s = 0;  // monotonic
  };

  void handle(const http_request& request) {
    const std::string path = web::uri::decode(request.relative_uri().path());
    if (request.method() != web::http::methods::GET && request.method() != web::http::methods::HEAD) {
      return refuse(request, status_codes::MethodNotAllowed,
                    fmt::format("found {} {}; allowed is GET", request.method(), path));
    }
    if (path == "/healthz") return answer(request, 200, "ok\n");
    if (path == "/readyz") {
      const std::lock_guard lock(mutex);
      return answer(request, ready ? 200 : 503, ready ? "ok\n" : "reading the cluster for the first time\n");
    }
    if (path == "/metrics") return answer(request, 200, registry.exposition(), metrics::kExpositionContentType);
    if (path == "/v1/snapshot")
      return show_json(request, [](const auto& decision) { return planner::to_json(decision.first, true); });
    if (path == "/v1/plan")
      return show_json(request, [](const auto& decision) { return planner::to_json(decision.second, true); });
    if (path == "/v1/routing-table") return routing_table(request);
    refuse(
        request, status_codes::NotFound,
        fmt::format("found {}; allowed are /healthz, /readyz, /metrics, /v1/routing-table, /v1/snapshot and /v1/plan", path));
  }

  template <class Print>
  void show_json(const http_request& request, Print print) {
    std::shared_ptr<const Decision> decision;
    {
      const std::lock_guard lock(mutex);
      decision = last;
    }
    if (decision == nullptr)
      return refuse(request, status_codes::ServiceUnavailable, "no decision has been made by this process");
    answer(request, 200, print(*decision) + "\n", kJson);
  }

  void routing_table(const http_request& request) {
    const auto query = web::uri::split_query(request.relative_uri().query());
    const auto parameter = [&](const char* name) {
      const auto found = query.find(name);
      return found == query.end() ? std::string() : web::uri::decode(found->second);
    };
    Waiting waiting{request, parameter("gateway"), {}, 0};
    const std::string admin = parameter("admin");
    for (const auto& [name, value] : {std::pair{"gateway", waiting.gateway}, std::pair{"admin", admin}}) {
      if (value.empty()) return refuse(request, 400, fmt::format("query {}: nothing found; allowed is a value", name));
    }
    if (const std::string after = parameter("after"); !after.empty()) {
      const auto version = dispatch::table_version_from_string(after);
      if (!version.ok()) return refuse(request, 400, "query after: " + version.error().message);
      waiting.after = *version;
    }
    double wait_s = 0;
    if (const std::string wait = parameter("wait"); !wait.empty()) {
      const auto seconds = api::parse_duration_s(wait);
      if (!seconds.ok()) return refuse(request, 400, "query wait: " + seconds.error().message);
      wait_s = std::clamp(*seconds, 0.0, kLongestWaitS);
    }
    if (!publisher.serving()) return refuse(request, status_codes::ServiceUnavailable, "this controller does not lead");
    const double now_s = now().monotonic_s;
    if (const auto table = publisher.ask(waiting.gateway, admin, waiting.after, now_s)) {
      answer(request, 200, dispatch::to_json(*table), kJson);
    } else {
      waiting.until_s = now_s + wait_s;
      const std::lock_guard lock(mutex);
      waiters.push_back(std::move(waiting));
    }
    on_question();
  }

  void flush() {
    std::list<Waiting> done;
    const double now_s = now().monotonic_s;
    {
      const std::lock_guard lock(mutex);
      for (auto it = waiters.begin(); it != waiters.end();) {
        const auto next = std::next(it);
        if (!publisher.serving()) {
          refuse(it->request, status_codes::ServiceUnavailable, "this controller does not lead");
          done.splice(done.end(), waiters, it);
        } else if (const auto table = publisher.newer(it->gateway, it->after, now_s)) {
          answer(it->request, 200, dispatch::to_json(*table), kJson);
          done.splice(done.end(), waiters, it);
        } else if (now_s >= it->until_s) {
          answer(it->request, status_codes::NotModified, "");
          done.splice(done.end(), waiters, it);
        }
        it = next;
      }
    }
  }

  using Decision = std::pair<planner::Snapshot, planner::Plan>;

  RoutingPublisher& publisher;
  metrics::Registry& registry;
  std::function<void()> on_question;
  std::unique_ptr<web::http::experimental::listener::http_listener> listener;
  std::mutex mutex;
  std::list<Waiting> waiters;
  std::shared_ptr<const Decision> last;
  bool ready = false;
};

HttpServer::HttpServer(RoutingPublisher& publisher, metrics::Registry& registry, std::function<void()> on_question)
    : impl_(std::make_unique<Impl>(publisher, registry, std::move(on_question))) {}

HttpServer::~HttpServer() { close(); }

Result<void> HttpServer::open(const std::string& address) {
  try {
    impl_->listener = std::make_unique<web::http::experimental::listener::http_listener>(web::uri("http://" + address));
    impl_->listener->support([impl = impl_.get()](const http_request& request) {
      try {
        impl->handle(request);
      } catch (const std::exception& e) {
        refuse(request, status_codes::InternalError, e.what());
      }
    });
    impl_->listener->open().wait();
  } catch (const std::exception& e) {
    impl_->listener.reset();
    return Error{ErrorCode::kUnavailable,
                 fmt::format("--listen: found '{}', cannot listen there: {}; allowed is a free HOST:PORT of this machine",
                             address, e.what())};
  }
  return {};
}

void HttpServer::close() {
  if (impl_->listener == nullptr) return;
  {
    const std::lock_guard lock(impl_->mutex);
    for (Impl::Waiting& one : impl_->waiters)
      refuse(one.request, status_codes::ServiceUnavailable, "this controller is ending");
    impl_->waiters.clear();
  }
  try {
    impl_->listener->close().wait();
  } catch (const std::exception&) {  // it is going anyway
  }
  impl_->listener.reset();
}

void HttpServer::set_ready(bool ready) {
  const std::lock_guard lock(impl_->mutex);
  impl_->ready = ready;
}

void HttpServer::show(const planner::Snapshot& snapshot, const planner::Plan& plan) {
  auto decision = std::make_shared<const Impl::Decision>(snapshot, plan);
  const std::lock_guard lock(impl_->mutex);
  impl_->last = std::move(decision);
}

void HttpServer::flush() { impl_->flush(); }

}  // namespace windlass::controller
