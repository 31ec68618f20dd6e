// HttpServer: the controller's own HTTP: health, metrics, the routing table (long poll) and the last decision.
//
//   GET /healthz  /readyz  /metrics  /v1/snapshot  /v1/plan
//   GET /v1/routing-table?gateway=ID&admin=HOST:PORT&tls=1&after=TERM.COUNTER&wait=2s
//       X-Windlass-Load: {"MODEL": [in flight, queued], ...}
//       X-Windlass-Over-Share: {"MODEL": {"CHAIN": in flight, ...}, ...} or "many"
//
// With a token, all but /healthz and /readyz ask for it (docs/security.md); with a certificate the port speaks TLS only. Both
// are looked up anew for each request and connection.
//
// On a net::HttpService; requests come in on its threads, waiting ones are answered by flush(), which the main loop calls.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "controller/reconcile/routing_publisher.h"
#include "metrics/registry.h"
#include "metrics/security/reloaded.h"
#include "metrics/security/tls.h"
#include "planner/policy/plan.h"

namespace windlass::controller {

struct HttpSecurity {
  std::shared_ptr<security::Reloaded<security::Certificate>> certificate;  // null: no TLS
  std::shared_ptr<security::Reloaded<std::string>> token;                  // null: none is asked for
  bool open_metrics = false;
};

class HttpServer {
 public:
  // `publisher` and `registry` outlive this. `on_question` is called, from any thread, when a gateway has said
  // something that may change the table.
  HttpServer(RoutingPublisher& publisher, metrics::Registry& registry, HttpSecurity security,
             std::function<void()> on_question);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // `address`: HOST:PORT. Error: it cannot be listened on.
  [[nodiscard]] Result<void> open(const std::string& address);
  void close();

  // What /readyz says from now on: the caches are filled (whether or not this process leads).
  void set_ready(bool ready);

  // What /v1/snapshot and /v1/plan show from now on.
  void show(const planner::Snapshot& snapshot, const planner::Plan& plan);

  // Answers the waiting gateways for whom there is something new, whose time is up, or who must look for another leader.
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace windlass::controller
