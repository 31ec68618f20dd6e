// The gateway's wiring, signal handling and drain.
#include "gateway/app.h"

#include <array>
#include <csignal>
#include <random>

#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>
#include <spdlog/sinks/stdout_color_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include "gateway/dispatcher.h"
#include "gateway/http_admin.h"
#include "gateway/http_prober.h"
#include "gateway/http_public.h"
#include "gateway/load_report.h"
#include "gateway/net.h"
#include "gateway/openai.h"
#include "gateway/secrets.h"
#include "gateway/table_client.h"
#include "metrics/bundles.h"

namespace windlass::gateway {
namespace {

constexpr auto kLastAnswers = std::chrono::seconds(1);  // after the drain ends, for error answers that are still being written
constexpr auto kFirstTablePatience = std::chrono::seconds(10);
constexpr auto kSecretsPeriod = std::chrono::seconds(2);
constexpr std::size_t kMaxAdminBodyBytes = 64U << 10U;
constexpr std::size_t kMaxAdminConnections = 256;

std::string default_id() {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0) return fmt::format("gateway-{}", ::getpid());
  return fmt::format("{}-{}", host.data(), ::getpid());
}

// Each gateway has its own seed; with the same one, all would send their n-th request to the same chain.
RouterOptions router_options(const Options& options) {
  return {options.max_queued,     options.queue_timeout_s, options.request_timeout_s, options.policy,
          std::random_device{}(), options.start_timeout_s, options.queue_order};
}

class App {
 public:
  App(const Options& options, Secrets secrets)
      : options_(options),
        secrets_(std::move(secrets)),
        metrics_(registry_),
        dispatcher_(io_, router_options(options), metrics_),
        pool_(io_),
        prober_(io_, dispatcher_, pool_),
        proxy_{dispatcher_, pool_, [this](const std::string& address) { prober_.heard(address); },
               [this](const std::string& address) { return prober_.use(address); }},
        public_(io_, public_handler(proxy_), public_options()),
        admin_(io_, admin_handler(proxy_, dispatcher_, registry_, secrets_, options_.open_metrics), admin_options()),
        signals_(io_, SIGTERM, SIGINT),
        secrets_timer_(io_),
        first_table_(io_) {
    proxy_.cors = Cors(options_.cors_origins);
    if (secrets_.keys != nullptr) proxy_.keys = [keys = secrets_.keys] { return keys->current(); };
  }

  int run() {
    const bool inherited = options_.listen_fd >= 0;
    const auto listening = inherited ? public_.adopt(options_.listen_fd) : public_.listen(options_.listen);
    if (!listening.ok()) {
      spdlog::error("{}{}", inherited ? "--listen-fd: " : "", listening.error().message);
      return 1;
    }
    if (const auto admin = admin_.listen(options_.admin_listen); !admin.ok()) {
      spdlog::error("{}", admin.error().message);
      return 1;
    }
    if (inherited) asio::co_spawn(io_, accept_with_table(), asio::detached);
    const std::string id = options_.id.empty() ? default_id() : options_.id;
    const std::string advertise = to_string(options_.advertise.value_or(admin_.bound()));
    TableClient tables(
        io_, table_client_options(id, advertise),
        [this](dispatch::RoutingTable table) {
          const auto version = dispatch::to_string(table.version);
          const auto models = table.models.size();
          const bool newer = dispatcher_.table_changed(std::move(table));
          if (newer) spdlog::info("routing table {}: {} model(s)", version, models);
          first_table_.cancel();
          return newer;
        },
        [this] { return dispatcher_.router().table().version; });
    if (options_.policy) {
      spdlog::info("--policy {}: used for all models, whatever the routing table says", dispatch::to_string(*options_.policy));
    }
    tables.start();
    prober_.start();
    asio::co_spawn(io_, follow_secrets(), asio::detached);
    asio::co_spawn(io_, wait_for_end(tables), asio::detached);
    spdlog::info("gateway {} listens on {}, admin on {}", id, to_string(public_.bound()), to_string(admin_.bound()));
    io_.run();
    return 0;
  }

 private:
  static std::string refusal_body(const net::Refusal& refused) {
    return error_body(refused.status, refused.message, refused.code);
  }

  HttpServer::Options public_options() {
    HttpServer::Options out;
    out.limits.connections = net::connections_within_file_limit(options_.max_connections);
    out.limits.connections_per_peer = options_.max_connections_per_peer;
    if (out.limits.connections < options_.max_connections) {
      spdlog::warn("--max-connections: lowered to {} (got {}): the process may not open more files", out.limits.connections,
                   options_.max_connections);
    }
    proxy_.memory = out.memory = std::make_shared<net::MemoryBudget>(options_.max_body_bytes);
    out.tls = context_of(secrets_.public_tls);
    out.admit = [this](const http::request_header<>& head) { return admit_to_public(proxy_, head); };
    out.refusal_body = refusal_body;
    return out;
  }

  // Admin requests have no bodies.
  HttpServer::Options admin_options() {
    HttpServer::Options out;
    out.limits.body_bytes = kMaxAdminBodyBytes;
    out.limits.connections = net::connections_within_file_limit(kMaxAdminConnections);
    out.limits.connections_per_peer = kMaxAdminConnections / 2;
    out.tls = context_of(secrets_.admin_tls);
    out.refusal_body = refusal_body;
    return out;
  }

  // Each new connection uses the context in use at that time; no files, no context.
  static std::function<std::shared_ptr<ssl::context>()> context_of(
      const std::shared_ptr<security::Reloaded<SharedContext>>& files) {
    if (files == nullptr) return nullptr;
    return [files] { return *files->current(); };
  }

  TableClientOptions table_client_options(const std::string& id, const std::string& advertise) {
    TableClientOptions out;
    out.controllers = options_.controllers;
    out.id = id;
    out.advertise = advertise;
    out.admin_tls = secrets_.admin_tls != nullptr;
    out.tls = context_of(secrets_.controller_tls);
    if (secrets_.token != nullptr) out.token = [token = secrets_.token] { return *token->current(); };
    out.load = [this] { return load_report(dispatcher_.router()); };
    out.over_share = [this] { return over_share_report(dispatcher_.router()); };
    for (const Url& controller : options_.controllers) {
      if (!controller.tls && secrets_.token != nullptr) {
        spdlog::warn("sending the token to {} without TLS: anybody on the network path can read it", to_string(controller));
      }
    }
    return out;
  }

  // For a socket that outlives this program: after a restart, clients wait in its backlog for the first table instead of being
  // refused.
  asio::awaitable<void> accept_with_table() {
    error_code error;
    first_table_.expires_after(kFirstTablePatience);
    if (!dispatcher_.router().has_table()) co_await first_table_.async_wait(to(error));
    if (!proxy_.draining) public_.accept();
  }

  asio::awaitable<void> follow_secrets() {
    error_code stopped;
    while (!stopped) {
      secrets_timer_.expires_after(kSecretsPeriod);
      co_await secrets_timer_.async_wait(to(stopped));
      if (!stopped) secrets_.refresh();
    }
  }

  asio::awaitable<void> wait_for_end(TableClient& tables) {
    error_code error;
    co_await signals_.async_wait(to(error));
    signals_.async_wait([this](const error_code& failed, int) {
      if (!failed) io_.stop();
    });
    proxy_.leaving = true;
    asio::steady_timer timer(io_);
    if (options_.drain_delay_s > 0) {
      spdlog::info("still serving for {} s before the drain", options_.drain_delay_s);
      timer.expires_after(std::chrono::milliseconds(static_cast<std::int64_t>(options_.drain_delay_s * 1000)));
      co_await timer.async_wait(to(error));
    }
    spdlog::info("draining {} request(s), up to {} s", dispatcher_.router().open_requests(), options_.drain_timeout_s);
    proxy_.draining = true;
    public_.stop_accepting();
    const double end_s = Dispatcher::now_s() + options_.drain_timeout_s;
    // The router finishes a request slightly before its answer is written, so close one round later.
    while (dispatcher_.router().open_requests() > 0 && Dispatcher::now_s() < end_s) {
      timer.expires_after(std::chrono::milliseconds(20));
      co_await timer.async_wait(to(error));
    }
    const bool cut_short = dispatcher_.router().open_requests() > 0;
    if (cut_short) spdlog::warn("{} request(s) did not finish in time", dispatcher_.router().open_requests());
    dispatcher_.shut_down();
    timer.expires_after(cut_short ? kLastAnswers : std::chrono::milliseconds(50));
    co_await timer.async_wait(to(error));
    tables.stop();
    prober_.stop();
    secrets_timer_.cancel();
    admin_.stop_accepting();
    spdlog::info("drained");
    io_.stop();
  }

  Options options_;
  Secrets secrets_;
  asio::io_context io_{1};
  metrics::Registry registry_;
  metrics::GatewayMetrics metrics_;
  Dispatcher dispatcher_;
  UpstreamPool pool_;
  Prober prober_;
  Proxy proxy_;
  HttpServer public_;
  HttpServer admin_;
  asio::signal_set signals_;
  asio::steady_timer secrets_timer_;
  asio::steady_timer first_table_;  // cancelled by each table
};

}  // namespace

int run_gateway(const Options& options) {
  spdlog::set_default_logger(spdlog::stderr_color_mt("gateway"));
  std::signal(SIGPIPE, SIG_IGN);
  auto secrets = Secrets::load(options);
  if (!secrets.ok()) {
    spdlog::error("{}", secrets.error().message);
    return 1;
  }
  App app(options, std::move(secrets).value());
  return app.run();
}

}  // namespace windlass::gateway
