// HttpServer serves the controller's HTTP endpoints: health, metrics, the routing table (long poll) and the last decision.
//
//   GET /healthz  /readyz  /metrics  /v1/snapshot  /v1/plan
//   GET /v1/routing-table?gateway=ID&admin=HOST:PORT&tls=1&after=TERM.COUNTER&wait=2s
//       X-Windlass-Load: {"MODEL": [in flight, queued], ...}
//       X-Windlass-Over-Share: {"MODEL": {"CHAIN": in flight, ...}, ...} or "many"
//
// If a token is set, everything except /healthz and /readyz requires it (docs/security.md). If a certificate is set, the port
// accepts only TLS. Both are reloaded when their files change.
//
// Built on net::HttpService. Requests arrive on its threads; flush(), called by the main loop, answers waiting ones.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "controller/reconcile/decision.h"
#include "controller/reconcile/routing_publisher.h"
#include "metrics/registry.h"
#include "metrics/security/reloaded.h"
#include "metrics/security/tls.h"

namespace windlass::controller {

struct HttpSecurity {
  std::shared_ptr<security::Reloaded<security::Certificate>> certificate;  // null: no TLS
  std::shared_ptr<security::Reloaded<std::string>> token;                  // null: no token required
  bool open_metrics = false;
};

class HttpServer {
 public:
  // `publisher` and `registry` outlive this. `on_question` is called from any thread when a gateway's request may change the
  // table.
  HttpServer(RoutingPublisher& publisher, metrics::Registry& registry, HttpSecurity security,
             std::function<void()> on_question);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // `address`: HOST:PORT. Error: cannot listen there.
  [[nodiscard]] Result<void> open(const std::string& address);
  void close();

  // Sets the answer of /readyz: whether the caches are filled. Independent of leading.
  void set_ready(bool ready);

  // Sets the content of /v1/snapshot and /v1/plan.
  void show(std::shared_ptr<const Decision> decision);

  // Answers waiting gateways that have a newer table, whose wait is over, or that must find another leader.
  void flush();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace windlass::controller
