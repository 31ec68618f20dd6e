// See http_server.h.
#include "controller/app/http_server.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "metrics/host/clock.h"
#include "metrics/net/http_service.h"
#include "metrics/security/secrets.h"
#include "planner/base/duration.h"
#include "planner/base/foreign_text.h"
#include "planner/policy/json.h"

namespace windlass::controller {
namespace {

constexpr double kLongestWaitS = 60;
constexpr double kCloseS = 2;  // time for pending answers
constexpr int kThreads = 2;
constexpr const char* kJson = "application/json";
// A gateway polls on one connection. Its header reports its load of each model, in at most 8,000 bytes (load_report.h).
constexpr std::size_t kMaxGatewayName = 253;  // a pod's name
constexpr net::HttpLimits kLimits{
    .head_bytes = 16U << 10U, .body_bytes = 64U << 10U, .connections = 2048, .connections_per_peer = 512};

void answer(const net::ServerCall& call, int status, const std::string& body,
            const std::string& type = "text/plain; charset=utf-8") {
  call.answer({status, body, type, {}});
}

std::string error_json(const std::string& message) {
  return nlohmann::json{{"error", message}}.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

void refuse(const net::ServerCall& call, int status, const std::string& message) {
  answer(call, status, error_json(message), kJson);
}

// A header's JSON; discarded if it is absent or invalid.
nlohmann::json json_header(const net::ServerCall& call, const char* name) {
  return nlohmann::json::parse(call.header(name), nullptr, false);
}

int count_of(const nlohmann::json& value) {
  return value.is_number_integer() ? static_cast<int>(std::clamp<std::int64_t>(value.get<std::int64_t>(), 0, 1'000'000)) : 0;
}

// A gateway's requests in flight and queued, by model. Invalid data is ignored, because the gateway must get its table anyway.
std::map<std::string, GatewayLoad> loads_of(const net::ServerCall& call) {
  std::map<std::string, GatewayLoad> loads;
  const auto json = json_header(call, "X-Windlass-Load");
  if (!json.is_object()) return loads;
  for (const auto& [model, pair] : json.items()) {
    if (pair.is_array() && pair.size() >= 2) loads[model] = {count_of(pair[0]), count_of(pair[1])};
  }
  return loads;
}

// Empty for older gateways, which do not report it.
std::optional<OverShare> over_share_of(const net::ServerCall& call) {
  OverShare over;
  const auto json = json_header(call, "X-Windlass-Over-Share");
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
  bool allowed(const net::ServerCall& call, const std::string& path) const {
    if (security.token == nullptr || (path == "/metrics" && security.open_metrics)) return true;
    const std::string header = call.header("Authorization");
    return security::same_secret(security::bearer(header), *security.token->current());
  }

  struct Waiting {
    net::ServerCall call;
    std::string gateway;
    dispatch::TableVersion after;
    double until_s = 0;  // monotonic
    std::uint64_t id = 0;
  };

  void handle(const net::ServerCall& call) {
    const std::string& path = call.path();
    if (call.method() != "GET" && call.method() != "HEAD") {
      return refuse(call, 405, fmt::format("{}: must be requested with GET (got {})", path, call.method()));
    }
    if (path == "/healthz") return answer(call, 200, "ok\n");
    if (path == "/readyz") {
      const std::lock_guard lock(mutex);
      return answer(call, ready ? 200 : 503, ready ? "ok\n" : "still reading the cluster\n");
    }
    if (!allowed(call, path)) {
      return call.answer({401,
                          error_json(path + ": must be requested with the installation's token (got none or another)"),
                          kJson,
                          {{"WWW-Authenticate", "Bearer"}}});
    }
    if (path == "/metrics") return answer(call, 200, registry.exposition(), metrics::kExpositionContentType);
    if (path == "/v1/snapshot")
      return show_json(call, [](const auto& decision) { return planner::to_json(decision.snapshot, true); });
    if (path == "/v1/plan") return show_json(call, [](const auto& decision) { return planner::to_json(decision.plan, true); });
    if (path == "/v1/routing-table") return routing_table(call);
    refuse(
        call, 404,
        fmt::format("path: must be /healthz, /readyz, /metrics, /v1/routing-table, /v1/snapshot or /v1/plan (got {})", path));
  }

  template <class Print>
  void show_json(const net::ServerCall& call, Print print) {
    std::shared_ptr<const Decision> decision;
    {
      const std::lock_guard lock(mutex);
      decision = last;
    }
    if (decision == nullptr) return refuse(call, 503, "this process has made no decision yet");
    answer(call, 200, print(*decision) + "\n", kJson);
  }

  void routing_table(const net::ServerCall& call) {
    const auto parameter = [&](const char* name) { return call.query(name); };
    Waiting waiting{call, parameter("gateway"), {}, 0};
    const std::string admin = parameter("admin");
    for (const auto& [name, value] : {std::pair{"gateway", waiting.gateway}, std::pair{"admin", admin}}) {
      if (value.empty()) return refuse(call, 400, fmt::format("query {}: must be set (got nothing)", name));
    }
    if (waiting.gateway.size() > kMaxGatewayName) {
      return refuse(call, 400,
                    fmt::format("query gateway: must have at most {} bytes (got {})", kMaxGatewayName, waiting.gateway.size()));
    }
    if (const auto where = net::parse_host_port(admin); !where.ok()) {
      return refuse(call, 400, "query admin: " + where.error().message);
    }
    if (const std::string after = parameter("after"); !after.empty()) {
      const auto version = dispatch::table_version_from_string(after);
      if (!version.ok()) return refuse(call, 400, "query after: " + version.error().message);
      waiting.after = *version;
    }
    double wait_s = 0;
    if (const std::string wait = parameter("wait"); !wait.empty()) {
      const auto seconds = parse_duration_s(wait);
      if (!seconds.ok()) return refuse(call, 400, "query wait: " + seconds.error().message);
      wait_s = std::clamp(*seconds, 0.0, kLongestWaitS);
    }
    const double now_s = now().monotonic_s;
    const bool tls = parameter("tls") == "1";
    // A standby records gateways too: if it becomes the leader, its first table already shares slots among all of them.
    const auto table = publisher.ask({waiting.gateway, admin, tls, waiting.after, loads_of(call), over_share_of(call)}, now_s);
    if (!publisher.serving()) return refuse(call, 503, "this controller does not lead");
    if (!publisher.knows(waiting.gateway)) {
      return refuse(
          call, 503,
          fmt::format("gateway {}: must wait until one of {} other gateways stops asking; at most {} may ask at a time",
                      shown_text(waiting.gateway), RoutingPublisher::kMaxGateways, RoutingPublisher::kMaxGateways));
    }
    if (table.has_value()) {
      answer(call, 200, dispatch::to_json(*table), kJson);
    } else {
      waiting.until_s = now_s + wait_s;
      const std::uint64_t id = waiting.id = ++next_waiting;
      {
        const std::lock_guard lock(mutex);
        waiters.push_back(std::move(waiting));
      }
      // Drop the request of a disconnected gateway; otherwise dead requests would pile up beyond the connection limit.
      call.on_left([this, id] {
        std::list<Waiting> gone;  // freed after the lock is released
        const std::lock_guard lock(mutex);
        const auto found = std::find_if(waiters.begin(), waiters.end(), [id](const Waiting& one) { return one.id == id; });
        if (found != waiters.end()) gone.splice(gone.end(), waiters, found);
      });
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
          refuse(it->call, 503, "this controller does not lead");
          done.splice(done.end(), waiters, it);
        } else if (const auto table = publisher.newer(it->gateway, it->after, now_s)) {
          answer(it->call, 200, dispatch::to_json(*table), kJson);
          done.splice(done.end(), waiters, it);
        } else if (now_s >= it->until_s) {
          answer(it->call, 304, "");
          done.splice(done.end(), waiters, it);
        }
        it = next;
      }
    }
  }

  // Each new connection uses the current certificate.
  std::function<std::shared_ptr<net::ssl::context>()> contexts() const {
    return [certificate = security.certificate, used = std::shared_ptr<const security::Certificate>(),
            context = std::shared_ptr<net::ssl::context>()]() mutable {
      if (auto now_used = certificate->current(); now_used != used) {
        used = std::move(now_used);
        context = std::make_shared<net::ssl::context>(net::ssl::context::tls_server);
        context->set_options(net::ssl::context::default_workarounds);
        const auto taken = security::use_certificate(context->native_handle(), *used);
        if (!taken.ok()) spdlog::error("TLS: {}", taken.error().message);
      }
      return context;
    };
  }

  RoutingPublisher& publisher;
  metrics::Registry& registry;
  HttpSecurity security;
  std::function<void()> on_question;
  std::unique_ptr<net::HttpService> service;
  std::mutex mutex;
  std::list<Waiting> waiters;
  std::atomic<std::uint64_t> next_waiting = 0;
  std::shared_ptr<const Decision> last;
  bool ready = false;
};

HttpServer::HttpServer(RoutingPublisher& publisher, metrics::Registry& registry, HttpSecurity security,
                       std::function<void()> on_question)
    : impl_(std::make_unique<Impl>(publisher, registry, std::move(security), std::move(on_question))) {}

HttpServer::~HttpServer() { close(); }

Result<void> HttpServer::open(const std::string& address) {
  const auto failed = [&](const std::string& why) {
    return Error{ErrorCode::kUnavailable,
                 fmt::format("--listen: must be a free HOST:PORT of this machine (got '{}': {})", address, why)};
  };
  const auto where = net::parse_host_port(address);
  if (!where.ok()) return failed(where.error().message);
  net::HttpServer::Options options;
  options.limits = kLimits;
  options.limits.connections = net::connections_within_file_limit(kLimits.connections);
  if (impl_->security.certificate != nullptr) options.tls = impl_->contexts();
  options.refusal_body = [](const net::Refusal& refused) { return error_json(refused.message); };
  impl_->service = std::make_unique<net::HttpService>(
      std::move(options), [impl = impl_.get()](const net::ServerCall& call) { impl->handle(call); }, kThreads);
  if (const auto opened = impl_->service->open(*where); !opened.ok()) {
    impl_->service.reset();
    return failed(opened.error().message);
  }
  return {};
}

void HttpServer::close() {
  if (impl_->service == nullptr) return;
  {
    const std::lock_guard lock(impl_->mutex);
    for (Impl::Waiting& one : impl_->waiters) refuse(one.call, 503, "this controller is shutting down");
    impl_->waiters.clear();
  }
  impl_->service->close(kCloseS);
  impl_->service.reset();
}

void HttpServer::set_ready(bool ready) {
  const std::lock_guard lock(impl_->mutex);
  impl_->ready = ready;
}

void HttpServer::show(std::shared_ptr<const Decision> decision) {
  const std::lock_guard lock(impl_->mutex);
  impl_->last = std::move(decision);
}

void HttpServer::flush() { impl_->flush(); }

}  // namespace windlass::controller
