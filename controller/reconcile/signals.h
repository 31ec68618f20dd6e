// Signals: what gateways and workers say of themselves, read from their /metrics and remembered over the windows that the
// planner needs. Every reading carries the time it was taken; what could not be read is absent, never 0.
//
// All times are monotonic seconds. Single-threaded; scraping goes through the HttpTransport given.
#pragma once

#include <limits>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/kube/http_transport.h"
#include "controller/reconcile/routing_publisher.h"
#include "controller/runtime/worker_runtime.h"
#include "metrics/bundles.h"
#include "metrics/counter_tracker.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

struct SignalOptions {
  double timeout_s = 1;           // of one scrape
  double arrivals_window_s = 10;  // over which the arrival rate is counted
  double lengths_window_s = 300;  // over which mean lengths are taken
  double min_measured = 5;        // requests before their mean length says anything
};

// Which gateways' numbers a service wants, and over which window.
struct ServiceQuery {
  std::string model;  // the served name
  double window_s = 300;
  double percentile = 95;
};

class Signals {
 public:
  // Both outlive this.
  Signals(kube::HttpTransport& transport, metrics::ControllerMetrics& metrics, SignalOptions options);

  // Reads every gateway and every worker that has an address, all at once. `models`: the served names to follow.
  void scrape(const std::vector<GatewayPeer>& gateways, const std::vector<Worker>& workers, const std::set<std::string>& models,
              double now_s);

  // Summed over the gateways that are known now. Readings' times are monotonic.
  [[nodiscard]] planner::Demand demand(const ServiceQuery& query, double now_s) const;

  struct WorkerLoad {
    planner::Reading running;
    planner::Reading waiting;
  };
  // By the worker's uid. nullopt: it could never be read, or speaks another engine's language.
  [[nodiscard]] std::optional<WorkerLoad> worker_load(const std::string& uid) const;

  // Requests that the gateways have in flight on the chain, and the oldest of the scrapes that say so; nullopt if a gateway of
  // `gateways` has not been read yet.
  [[nodiscard]] std::optional<planner::Reading> in_flight(const std::vector<GatewayPeer>& gateways,
                                                          const std::string& chain) const;

 private:
  struct ModelSeries {
    metrics::CounterTracker started, attained, judged, prompt_tokens, generation_tokens, measured;
    metrics::HistogramTracker ttft, tpot;
    double queued = 0;
    std::optional<double> last_arrival_s;
  };
  struct Gateway {
    std::optional<double> read_s;
    std::map<std::string, ModelSeries> models;
    std::map<std::string, double> in_flight;  // by chain
  };

  void read_gateway(Gateway& gateway, const metrics::Exposition& page, const std::set<std::string>& models, double now_s);

  kube::HttpTransport& transport_;
  metrics::ControllerMetrics& metrics_;
  SignalOptions options_;
  std::map<std::string, Gateway> gateways_;    // by id; only those known at the last scrape
  std::map<std::string, WorkerLoad> workers_;  // by uid
};

}  // namespace windlass::controller
