// windlass-gateway's flags, and the URLs in them. Pure, apart from printing --help.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "metrics/net/host_port.h"
#include "metrics/net/http_limits.h"
#include "planner/base/result.h"
#include "planner/dispatch/policies.h"
#include "planner/dispatch/waiting_line.h"

namespace windlass::gateway {

using net::HostPort;
using net::parse_host_port;
using net::to_string;

struct Url {
  bool tls = false;
  HostPort address;

  bool operator==(const Url&) const = default;
};

// "http://HOST:PORT" or "https://HOST:PORT" with an optional "/" at the end; the default port is 80 or 443.
[[nodiscard]] Result<Url> parse_url(std::string_view text);
[[nodiscard]] std::string to_string(const Url& url);

using net::kMaxBodyBytes;

struct Options {
  HostPort listen{"127.0.0.1", "8080"};
  int listen_fd = -1;  // in place of `listen`: a socket that listens already, inherited; -1: none
  HostPort admin_listen{"127.0.0.1", "8081"};
  std::optional<HostPort> advertise;  // the admin address as the controller reaches it; none: the bound admin address
  std::vector<Url> controllers;       // at least one
  std::string id;                     // empty: host name and process id
  int max_queued = 10000;
  double queue_timeout_s = 60;
  double start_timeout_s = 300;  // for a model that has no worker yet
  double request_timeout_s = 600;
  double drain_delay_s = 0;  // after SIGTERM it keeps serving for this long: clients may not know yet that it stops
  double drain_timeout_s = 30;
  std::size_t max_body_bytes = std::size_t{512} << 20U;  // for all requests held, and for answers sent as a whole
  std::size_t max_connections = net::kMaxConnections;
  std::size_t max_connections_per_peer = net::kMaxConnectionsPerPeer;
  std::optional<dispatch::PolicyKind> policy;  // for all models; none: each model's is in the routing table
  dispatch::QueueOrder queue_order = dispatch::QueueOrder::kObjective;

  // Files described in docs/security.md; empty: none.
  std::string tls_cert, tls_key;
  std::string admin_tls_cert, admin_tls_key;
  std::string token_file;
  bool open_metrics = false;  // /metrics needs no token
  std::string controller_ca;
  std::string api_keys;

  std::vector<std::string> cors_origins;  // origins whose web pages may read answers; "*": all; empty: no CORS
};

// What main() does after parsing the flags: run, or print `text` (to stdout when the code is 0) and exit with the code.
struct CommandLine {
  std::optional<Options> options;
  int exit_code = 0;
  std::string text;
};

[[nodiscard]] CommandLine parse_command_line(int argc, const char* const* argv);

}  // namespace windlass::gateway
