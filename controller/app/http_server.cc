// See http_server.h.
#include "controller/app/http_server.h"

#include <algorithm>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <utility>  // boost 1.74 forgets it

#include <boost/asio/ssl/context.hpp>
#include <cpprest/http_listener.h>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "controller/api/duration.h"
#include "controller/app/clock.h"
#include "metrics/security/secrets.h"
#include "planner/policy/json.h"

namespace windlass::controller {
namespace {

using web::http::http_request;
using web::http::http_response;
using web::http::status_codes;

constexpr double kLongestWaitS = 60;
constexpr const char* kJson = "application/json";

void send(const http_request& request, const http_response& response) {
  // The peer may be gone; nobody is left to tell.
  request.reply(response).then([](const pplx::task<void>& sent) {
    try {
      sent.get();
    } catch (const std::exception&) {
    }
  });
}

void answer(const http_request& request, int status, const std::string& body,
            const std::string& type = "text/plain; charset=utf-8") {
  http_response response(static_cast<web::http::status_code>(status));
  response.set_body(body, type);
  send(request, response);
}

void refuse(const http_request& request, int status, const std::string& message) {
  answer(request, status, nlohmann::json{{"error", message}}.dump() + "\n", kJson);
}

// A header's JSON; discarded where there is none, or it cannot be read.
nlohmann::json json_header(const http_request& request, const char* name) {
  const auto header = request.headers().find(name);
  if (header == request.headers().end()) return nlohmann::json::value_t::discarded;
  return nlohmann::json::parse(header->second, nullptr, false);
}

int count_of(const nlohmann::json& value) {
  return value.is_number_integer() ? static_cast<int>(std::clamp<std::int64_t>(value.get<std::int64_t>(), 0, 1'000'000)) : 0;
}

// What a gateway has in flight and waiting, by model. What cannot be read says nothing: the table must go out all the same.
std::map<std::string, GatewayLoad> loads_of(const http_request& request) {
  std::map<std::string, GatewayLoad> loads;
  const auto json = json_header(request, "X-Windlass-Load");
  if (!json.is_object()) return loads;
  for (const auto& [model, pair] : json.items()) {
    if (pair.is_array() && pair.size() >= 2) loads[model] = {count_of(pair[0]), count_of(pair[1])};
  }
  return loads;
}

// Nothing of gateways that do not say it, as older ones.
std::optional<OverShare> over_share_of(const http_request& request) {
  OverShare over;
  const auto json = json_header(request, "X-Windlass-Over-Share");
  if (json.is_string()) return std::nullopt;
  if (!json.is_object()) return over;
  for (const auto& [model, chains] : json.items()) {
    if (!chains.is_object()) continue;
    for (const auto& [chain, in_flight] : chains.items()) over[model][chain] = count_of(in_flight);
  }
  return over;
}

}  // namespace

struct HttpServer::Impl {
  Impl(RoutingPublisher& publisher_in, metrics::Registry& registry_in, HttpSecurity security_in,
       std::function<void()> on_question_in)
      : publisher(publisher_in),
        registry(registry_in),
        security(std::move(security_in)),
        on_question(std::move(on_question_in)) {}

  // Whether the request may see more than health.
  bool allowed(const http_request& request, const std::string& path) const {
    if (security.token == nullptr || (path == "/metrics" && security.open_metrics)) return true;
    const auto header = request.headers().find("Authorization");
    const std::string_view found = header == request.headers().end() ? std::string_view() : security::bearer(header->second);
    return security::same_secret(found, *security.token->current());
  }

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
    if (!allowed(request, path)) {
      http_response response(status_codes::Unauthorized);
      response.headers().add("WWW-Authenticate", "Bearer");
      response.set_body(
          nlohmann::json{{"error", path + ": found no or another token; allowed is the installation's"}}.dump() + "\n", kJson);
      return send(request, response);
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
    const double now_s = now().monotonic_s;
    const bool tls = parameter("tls") == "1";
    // A standby notes who asks, too: should it lead next, it knows from its first table on among whom slots are shared.
    const auto table =
        publisher.ask({waiting.gateway, admin, tls, waiting.after, loads_of(request), over_share_of(request)}, now_s);
    if (!publisher.serving()) return refuse(request, status_codes::ServiceUnavailable, "this controller does not lead");
    if (table.has_value()) {
      answer(request, 200, dispatch::to_json(*table), kJson);
    } else {
      waiting.until_s = now_s + wait_s;
      const std::lock_guard lock(mutex);
      waiters.push_back(std::move(waiting));
    }
    if (publisher.stirred()) on_question();
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
  HttpSecurity security;
  std::function<void()> on_question;
  std::unique_ptr<web::http::experimental::listener::http_listener> listener;
  std::mutex mutex;
  std::list<Waiting> waiters;
  std::shared_ptr<const Decision> last;
  bool ready = false;
};

HttpServer::HttpServer(RoutingPublisher& publisher, metrics::Registry& registry, HttpSecurity security,
                       std::function<void()> on_question)
    : impl_(std::make_unique<Impl>(publisher, registry, std::move(security), std::move(on_question))) {}

HttpServer::~HttpServer() { close(); }

Result<void> HttpServer::open(const std::string& address) {
  try {
    web::http::experimental::listener::http_listener_config config;
    if (const auto certificate = impl_->security.certificate) {
      // Asked for by cpprestsdk for every connection, so that a renewed certificate is used from then on.
      config.set_ssl_context_callback([certificate](boost::asio::ssl::context& context) {
        context.set_options(boost::asio::ssl::context::default_workarounds);
        const auto used = security::use_certificate(context.native_handle(), *certificate->current());
        if (!used.ok()) spdlog::error("TLS: {}", used.error().message);
      });
    }
    const char* scheme = impl_->security.certificate == nullptr ? "http://" : "https://";
    impl_->listener = std::make_unique<web::http::experimental::listener::http_listener>(web::uri(scheme + address), config);
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
