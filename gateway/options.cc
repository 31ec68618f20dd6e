// Parses the flags with CLI11 and catches its exceptions.
#include "gateway/options.h"

#include <algorithm>

#include <CLI/CLI.hpp>
#include <fmt/format.h>

#include "gateway/cors.h"
#include "planner/base/duration.h"

#ifndef WINDLASS_VERSION
#define WINDLASS_VERSION "0.1.0"
#endif

namespace windlass::gateway {
namespace {

Error invalid(std::string message) { return Error{ErrorCode::kInvalidArgument, std::move(message)}; }

// The controller accepts the same ids.
bool is_id(std::string_view text) {
  return text.size() <= 253 && std::all_of(text.begin(), text.end(), [](char c) {
           return c > ' ' && c <= '~' && std::string_view("&?#%/").find(c) == std::string_view::npos;
         });
}

// What the user wrote, before validation.
struct RawOptions {
  std::string listen = to_string(Options{}.listen);
  std::string admin_listen = to_string(Options{}.admin_listen);
  std::string advertise;
  std::vector<std::string> controllers;
  std::optional<std::string> policy;
  std::string queue_order = dispatch::to_string(Options{}.queue_order);
  std::string queue_timeout = "60s", start_timeout = "5m", request_timeout = "10m", drain_timeout = "30s", drain_delay = "0";
};

void add_addresses(CLI::App& app, Options& options, RawOptions& raw) {
  auto* listen_flag =
      app.add_option("--listen", raw.listen, "where clients come in, HOST:PORT (port 0: any)")->capture_default_str();
  app.add_option("--listen-fd", options.listen_fd,
                 "in place of --listen: the number of an inherited socket that listens; whoever holds it too can restart this "
                 "program without refusing a connection. Clients are accepted once a controller has answered, or after 10 s "
                 "without one")
      ->check(CLI::Range(3, 1 << 20))
      ->excludes(listen_flag);
  app.add_option("--admin-listen", raw.admin_listen, "/metrics, /health and /ready, HOST:PORT")->capture_default_str();
  app.add_option("--advertise", raw.advertise,
                 "the admin address as the controller reaches it, HOST:PORT; default: --admin-listen");
  app.add_option("--controller", raw.controllers, "http://HOST:PORT or https://HOST:PORT of a controller; repeatable")
      ->required();
  app.add_option("--id", options.id, "name of this gateway; default: host name and process id");
}

void add_queue(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("--max-queued", options.max_queued, "most requests that may wait for one model")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option("--policy", raw.policy,
                 "which worker takes a request, for all models, whatever the routing table says: jffc (the fastest with a free "
                 "slot, otherwise it waits for one), jsq, sed, power-of-two, aladdin, by-size, huawei or splitwise (with its "
                 "mixed pool) [the routing table's]");
  app.add_option("--queue-order", raw.queue_order,
                 "order of waiting requests: objective (first those that can still meet timeToFirstToken, then the others) or "
                 "arrival (first come, first served)")
      ->capture_default_str();
  app.add_option("--queue-timeout", raw.queue_timeout, "how long a request may wait for a worker")->capture_default_str();
  app.add_option("--start-timeout", raw.start_timeout,
                 "how long a request may wait for a model that has no worker yet, if that is longer than --queue-timeout")
      ->capture_default_str();
  app.add_option("--request-timeout", raw.request_timeout, "how long a request may take in total")->capture_default_str();
}

void add_limits(CLI::App& app, Options& options, RawOptions& raw) {
  app.add_option("--max-body-memory", options.max_body_bytes,
                 "memory for request bodies and for answers sent as a whole, such as 512MiB; beyond it a request "
                 "gets 503")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("512MiB");
  app.add_option("--max-connections", options.max_connections,
                 "most client connections; beyond it, the one that has been idle longest is closed")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20U))
      ->capture_default_str();
  app.add_option("--max-connections-per-peer", options.max_connections_per_peer, "most connections from one address")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20U))
      ->capture_default_str();
  app.add_option("--drain-delay", raw.drain_delay,
                 "how long to keep serving after SIGTERM while /ready fails, so that load balancers stop sending requests")
      ->capture_default_str();
  app.add_option("--drain-timeout", raw.drain_timeout, "how long to let requests in flight finish after SIGTERM")
      ->capture_default_str();
}

void add_security(CLI::App& app, Options& options) {
  app.add_option("--tls-cert", options.tls_cert,
                 "PEM certificate of --listen, followed by its chain; reloaded when it changes");
  app.add_option("--tls-key", options.tls_key, "PEM key of --tls-cert");
  app.add_option("--admin-tls-cert", options.admin_tls_cert, "PEM certificate of --admin-listen");
  app.add_option("--admin-tls-key", options.admin_tls_key, "PEM key of --admin-tls-cert");
  app.add_option("--token-file", options.token_file,
                 "file with the installation's token: sent to the controllers, and required at /metrics as a bearer token");
  app.add_flag("--open-metrics", options.open_metrics, "/metrics and /latencies need no token");
  app.add_option("--controller-ca", options.controller_ca,
                 "PEM file of the authorities that sign the controllers' certificates, for https [the system's store]");
  app.add_option("--api-keys", options.api_keys, "JSON file of API keys, their models and their limits [no key needed]");
  app.add_option("--cors-origin", options.cors_origins,
                 "an origin such as https://chat.example whose web pages may read answers, or *; repeatable [none]");
}

// Parses flag values and keeps the first error.
class Reader {
 public:
  template <typename T, typename Into>
  void take(const char* flag, const Result<T>& parsed, Into& into) {
    if (parsed.ok()) {
      into = *parsed;
    } else {
      fail(fmt::format("{}: {}", flag, parsed.error().message));
    }
  }

  void require(bool holds, const std::string& otherwise) {
    if (!holds) fail(otherwise);
  }

  void require_together(const char* one, const std::string& first, const char* other, const std::string& second) {
    require(first.empty() == second.empty(), fmt::format("{0}: must be given together with {1} (got only {0})",
                                                         first.empty() ? other : one, first.empty() ? one : other));
  }

  // Empty: no error.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  void fail(const std::string& problem) {
    if (problem_.empty()) problem_ = problem;
  }

  std::string problem_;
};

void read_values(Reader& reader, Options& options, const RawOptions& raw) {
  reader.take("--listen", parse_host_port(raw.listen), options.listen);
  reader.take("--admin-listen", parse_host_port(raw.admin_listen), options.admin_listen);
  if (!raw.advertise.empty()) reader.take("--advertise", parse_host_port(raw.advertise), options.advertise);
  for (const std::string& url : raw.controllers)
    reader.take("--controller", parse_url(url), options.controllers.emplace_back());
  for (std::string& origin : options.cors_origins) reader.take("--cors-origin", Cors::parse_origin(origin), origin);
  if (raw.policy)
    reader.take("--policy", dispatch::policy_from_string(*raw.policy, dispatch::kGatewayPolicies), options.policy);
  reader.take("--queue-order", dispatch::queue_order_from_string(raw.queue_order), options.queue_order);
  reader.take("--queue-timeout", parse_duration_s(raw.queue_timeout), options.queue_timeout_s);
  reader.take("--start-timeout", parse_duration_s(raw.start_timeout), options.start_timeout_s);
  reader.take("--request-timeout", parse_duration_s(raw.request_timeout), options.request_timeout_s);
  reader.take("--drain-delay", parse_duration_s(raw.drain_delay), options.drain_delay_s);
  reader.take("--drain-timeout", parse_duration_s(raw.drain_timeout), options.drain_timeout_s);
}

// Checks that involve more than the text of one flag.
void check_values(Reader& reader, const Options& options, const RawOptions& raw) {
  reader.require(options.request_timeout_s > 0, "--request-timeout: must be more than 0 (got 0)");
  reader.require(options.max_body_bytes >= kMaxBodyBytes,
                 fmt::format("--max-body-memory: must be at least {} bytes, the size of one body (got {})", kMaxBodyBytes,
                             options.max_body_bytes));
  reader.require(is_id(options.id),
                 fmt::format("--id: must be at most 253 visible ASCII characters without &?#%/ (got '{}')", options.id));
  reader.require_together("--tls-cert", options.tls_cert, "--tls-key", options.tls_key);
  reader.require_together("--admin-tls-cert", options.admin_tls_cert, "--admin-tls-key", options.admin_tls_key);
  const bool any_https =
      std::any_of(options.controllers.begin(), options.controllers.end(), [](const Url& url) { return url.tls; });
  reader.require(options.controller_ca.empty() || any_https,
                 "--controller-ca: must be used with at least one --controller https://HOST:PORT (got only http://)");
  const bool any_address = options.admin_listen.host == "0.0.0.0" || options.admin_listen.host == "::";
  reader.require(
      !any_address || options.advertise.has_value(),
      fmt::format("--advertise: must be the HOST:PORT at which the controller reaches --admin-listen {} (got nothing)",
                  raw.admin_listen));
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  const bool tls = text.substr(0, kHttps.size()) == kHttps;
  const auto bad = [&] { return invalid(fmt::format("must be http://HOST:PORT or https://HOST:PORT (got '{}')", text)); };
  if (!tls && text.substr(0, kHttp.size()) != kHttp) return bad();
  std::string_view rest = text.substr(tls ? kHttps.size() : kHttp.size());
  if (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
  auto parsed = parse_host_port(rest, tls ? 443 : 80);
  if (!parsed.ok() || parsed->port == "0") return bad();
  return Url{tls, std::move(parsed).value()};
}

std::string to_string(const Url& url) { return (url.tls ? "https://" : "http://") + to_string(url.address); }

CommandLine parse_command_line(int argc, const char* const* argv) {
  CLI::App app{"windlass-gateway: the OpenAI-compatible entry point of Windlass", "windlass-gateway"};
  Options options;
  RawOptions raw;
  app.set_version_flag("--version", std::string("windlass-gateway ") + WINDLASS_VERSION);
  add_addresses(app, options, raw);
  add_queue(app, options, raw);
  add_limits(app, options, raw);
  add_security(app, options);
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return {std::nullopt, 0, app.help()};
  } catch (const CLI::CallForVersion&) {
    return {std::nullopt, 0, app.version() + "\n"};
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, 2, fmt::format("windlass-gateway: {}\n", error.what())};
  }
  Reader reader;
  read_values(reader, options, raw);
  check_values(reader, options, raw);
  if (!reader.problem().empty()) return {std::nullopt, 2, fmt::format("windlass-gateway: {}\n", reader.problem())};
  return {options, 0, ""};
}

}  // namespace windlass::gateway
