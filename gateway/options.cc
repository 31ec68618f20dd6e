// Flags through CLI11, whose exceptions end here.
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

// As the controller takes it.
bool is_id(std::string_view text) {
  return text.size() <= 253 && std::all_of(text.begin(), text.end(), [](char c) {
           return c > ' ' && c <= '~' && std::string_view("&?#%/").find(c) == std::string_view::npos;
         });
}

}  // namespace

Result<Url> parse_url(std::string_view text) {
  constexpr std::string_view kHttp = "http://", kHttps = "https://";
  const bool tls = text.substr(0, kHttps.size()) == kHttps;
  const auto bad = [&] { return invalid(fmt::format("found '{}', allowed is http://HOST:PORT or https://HOST:PORT", text)); };
  if (!tls && text.substr(0, kHttp.size()) != kHttp) return bad();
  std::string_view rest = text.substr(tls ? kHttps.size() : kHttp.size());
  if (!rest.empty() && rest.back() == '/') rest.remove_suffix(1);
  auto parsed = parse_host_port(rest, tls ? 443 : 80);
  if (!parsed.ok() || parsed->port == "0") return bad();
  return Url{tls, std::move(parsed).value()};
}

std::string to_string(const Url& url) { return (url.tls ? "https://" : "http://") + to_string(url.address); }

CommandLine parse_command_line(int argc, const char* const* argv) {
  CLI::App app{"windlass-gateway: the OpenAI-compatible entry of Windlass", "windlass-gateway"};
  Options options;
  std::string listen = to_string(options.listen);
  std::string admin_listen = to_string(options.admin_listen);
  std::string advertise;
  std::vector<std::string> controllers;
  std::string policy = dispatch::to_string(options.policy);
  std::string queue_order = dispatch::to_string(options.queue_order);
  std::string queue_timeout = "60s", start_timeout = "5m", request_timeout = "10m", drain_timeout = "30s", drain_delay = "0";
  app.set_version_flag("--version", std::string("windlass-gateway ") + WINDLASS_VERSION);
  auto* listen_flag =
      app.add_option("--listen", listen, "where clients come in, HOST:PORT (port 0: any)")->capture_default_str();
  app.add_option("--listen-fd", options.listen_fd,
                 "in place of --listen: the number of an inherited socket that listens; whoever holds it too can restart this "
                 "program without refusing a connection. Clients are accepted once a controller has answered, or after 10 s "
                 "without one")
      ->check(CLI::Range(3, 1 << 20))
      ->excludes(listen_flag);
  app.add_option("--admin-listen", admin_listen, "/metrics, /health and /ready, HOST:PORT")->capture_default_str();
  app.add_option("--advertise", advertise,
                 "the admin address as the controller reaches it, HOST:PORT; default: --admin-listen");
  app.add_option("--controller", controllers, "http://HOST:PORT or https://HOST:PORT of a controller; repeatable")->required();
  app.add_option("--id", options.id, "name of this gateway; default: host name and process id");
  app.add_option("--max-queued", options.max_queued, "requests that may wait for one model")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  app.add_option(
         "--policy", policy,
         "which worker takes a request: jffc (the fastest with a free slot, else it waits for one), jsq, sed, power-of-two, "
         "aladdin, by-size or huawei")
      ->capture_default_str();
  app.add_option("--queue-order", queue_order,
                 "who waits longest: objective (those who can still meet timeToFirstToken go first, the others behind them) or "
                 "arrival (first come, first served)")
      ->capture_default_str();
  app.add_option("--queue-timeout", queue_timeout, "how long a request may wait for a worker")->capture_default_str();
  app.add_option("--start-timeout", start_timeout,
                 "how long a request may wait for a model that has no worker yet, if that is longer than --queue-timeout")
      ->capture_default_str();
  app.add_option("--request-timeout", request_timeout, "how long a request may take in all")->capture_default_str();
  app.add_option("--max-body-memory", options.max_body_bytes,
                 "for the bodies of all requests in hand and whole answers on their way, such as 512MiB; beyond it a request "
                 "gets 503")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("512MiB");
  app.add_option("--max-connections", options.max_connections,
                 "of clients; beyond it, who has waited longest without asking for anything is closed")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20U))
      ->capture_default_str();
  app.add_option("--max-connections-per-peer", options.max_connections_per_peer, "the same of one address")
      ->check(CLI::Range(std::size_t{1}, std::size_t{1} << 20U))
      ->capture_default_str();
  app.add_option("--drain-delay", drain_delay,
                 "how long to serve on after SIGTERM, not ready any more, until nobody sends requests here")
      ->capture_default_str();
  app.add_option("--drain-timeout", drain_timeout, "how long to finish what is in flight after SIGTERM")->capture_default_str();
  app.add_option("--tls-cert", options.tls_cert,
                 "PEM certificate of --listen, followed by its chain; read again when it changes");
  app.add_option("--tls-key", options.tls_key, "PEM key of --tls-cert");
  app.add_option("--admin-tls-cert", options.admin_tls_cert, "PEM certificate of --admin-listen");
  app.add_option("--admin-tls-key", options.admin_tls_key, "PEM key of --admin-tls-cert");
  app.add_option("--token-file", options.token_file,
                 "the installation's token: sent to the controllers, and asked for at /metrics as a bearer token");
  app.add_flag("--open-metrics", options.open_metrics, "/metrics and /latencies need no token");
  app.add_option("--controller-ca", options.controller_ca,
                 "PEM authorities of the controllers' certificates, for https [the system's store]");
  app.add_option("--api-keys", options.api_keys,
                 "JSON file of API keys, the models they may use, and limits [the API is open]");
  app.add_option("--cors-origin", options.cors_origins,
                 "an origin such as https://chat.example whose web pages may read answers, or *; repeatable [none may]");
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    return {std::nullopt, 0, app.help()};
  } catch (const CLI::CallForVersion&) {
    return {std::nullopt, 0, app.version() + "\n"};
  } catch (const CLI::ParseError& error) {
    return {std::nullopt, 2, fmt::format("windlass-gateway: {}\n", error.what())};
  }
  std::string problem;
  const auto take = [&problem](const char* flag, auto parsed, auto& into) {
    if (parsed.ok()) {
      into = *parsed;
    } else if (problem.empty()) {
      problem = fmt::format("{}: {}", flag, parsed.error().message);
    }
  };
  take("--listen", parse_host_port(listen), options.listen);
  take("--admin-listen", parse_host_port(admin_listen), options.admin_listen);
  if (!advertise.empty()) take("--advertise", parse_host_port(advertise), options.advertise);
  for (const std::string& url : controllers) {
    Url controller;
    take("--controller", parse_url(url), controller);
    options.controllers.push_back(controller);
  }
  for (std::string& origin : options.cors_origins) take("--cors-origin", Cors::parse_origin(origin), origin);
  take("--policy", dispatch::policy_from_string(policy, dispatch::kGatewayPolicies), options.policy);
  take("--queue-order", dispatch::queue_order_from_string(queue_order), options.queue_order);
  take("--queue-timeout", parse_duration_s(queue_timeout), options.queue_timeout_s);
  take("--start-timeout", parse_duration_s(start_timeout), options.start_timeout_s);
  take("--request-timeout", parse_duration_s(request_timeout), options.request_timeout_s);
  take("--drain-delay", parse_duration_s(drain_delay), options.drain_delay_s);
  take("--drain-timeout", parse_duration_s(drain_timeout), options.drain_timeout_s);
  if (problem.empty() && options.request_timeout_s <= 0) problem = "--request-timeout: found 0, allowed is more than 0";
  if (problem.empty() && options.max_body_bytes < kMaxBodyBytes) {
    problem = fmt::format("--max-body-memory: found {} bytes, allowed are {} (one body) or more", options.max_body_bytes,
                          kMaxBodyBytes);
  }
  if (problem.empty() && !is_id(options.id)) {
    problem = fmt::format("--id: found '{}', allowed are at most 253 visible ASCII characters without &?#%/", options.id);
  }
  const auto together = [&problem](const char* one, const std::string& first, const char* other, const std::string& second) {
    if (!problem.empty() || first.empty() == second.empty()) return;
    problem = fmt::format("{}: found without {}, allowed are both or neither", first.empty() ? other : one,
                          first.empty() ? one : other);
  };
  together("--tls-cert", options.tls_cert, "--tls-key", options.tls_key);
  together("--admin-tls-cert", options.admin_tls_cert, "--admin-tls-key", options.admin_tls_key);
  const bool any_https =
      std::any_of(options.controllers.begin(), options.controllers.end(), [](const Url& url) { return url.tls; });
  if (problem.empty() && !options.controller_ca.empty() && !any_https) {
    problem = "--controller-ca: found with controllers at http:// only, allowed is at least one --controller https://HOST:PORT";
  }
  const bool any_address = options.admin_listen.host == "0.0.0.0" || options.admin_listen.host == "::";
  if (problem.empty() && any_address && !options.advertise.has_value()) {
    problem = fmt::format(
        "--advertise: found nothing, allowed is the HOST:PORT at which the controller reaches --admin-listen {}", admin_listen);
  }
  if (!problem.empty()) return {std::nullopt, 2, fmt::format("windlass-gateway: {}\n", problem)};
  return {options, 0, ""};
}

}  // namespace windlass::gateway
