// Signals: what gateways and workers say of themselves, read from their /metrics (and the gateways' /latencies) and remembered
// over the windows that the planner needs. Every reading carries the time it was taken; what could not be read is absent, not
// 0.
//
// Demand comes from the gateways' own pages, or, with SignalOptions::promql, from a Prometheus that scrapes them; what a drain
// waits for is always read from the gateways and workers themselves.
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
#include "controller/reconcile/promql_demand.h"
#include "controller/reconcile/routing_publisher.h"
#include "controller/reconcile/service_query.h"
#include "controller/reconcile/worker_signals.h"
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
  // Workers beyond those that drain which one scrape reads, those not asked for the longest time first: ten thousand pages take
  // two seconds of a core. At one scrape a second, ten thousand workers' readings are at most ten seconds old.
  std::size_t max_workers_per_scrape = 1000;
  std::optional<PromqlOptions> promql;
};

struct ScrapeTargets {
  std::vector<GatewayPeer> gateways;
  std::vector<Worker> workers;
  std::vector<ServiceQuery> models;            // to follow; of several with one name the longest window is kept
  std::map<std::string, std::string> engines;  // spec.engine.type by the ModelService's UID
};

class Signals {
 public:
  // Both outlive this.
  Signals(kube::HttpTransport& transport, metrics::ControllerMetrics& metrics, SignalOptions options);

  // Reads every gateway and every worker that has an address (of very many, some in turn), all at once.
  void scrape(const ScrapeTargets& targets, double now_s);

  // Summed over the gateways that are known now. Readings' times are monotonic; each is as old as its oldest part.
  [[nodiscard]] planner::Demand demand(const ServiceQuery& query, double now_s) const;

  // By the worker's uid. nullptr: it could never be read.
  [[nodiscard]] const WorkerLoad* worker_load(const std::string& uid) const { return workers_.load(uid); }
  [[nodiscard]] const WorkerPage* worker_page(const std::string& uid) const { return workers_.page(uid); }

  // Requests that the gateways have in flight on the chain, and the oldest of the scrapes that say so; nullopt if a gateway of
  // `gateways` has not been read yet.
  [[nodiscard]] std::optional<planner::Reading> in_flight(const std::vector<GatewayPeer>& gateways,
                                                          const std::string& chain) const;

 private:
  struct ModelSeries {
    explicit ModelSeries(double window_s);

    double window_s;
    metrics::CounterTracker started, attained, judged, prompt_tokens, generation_tokens, measured;
    // The same of the last minute alone: an hour's window keeps a reading every two minutes.
    metrics::CounterTracker attained_lately, judged_lately;
    metrics::LatencyTracker ttft, tpot;
    std::optional<planner::Reading> queued;
    std::optional<double> last_arrival_s;
  };
  struct Gateway {
    std::optional<double> read_s;
    std::map<std::string, ModelSeries> models;
    std::map<std::string, double> in_flight;  // by chain
  };

  void read_gateway(Gateway& gateway, metrics::Exposition page, const std::vector<ServiceQuery>& models, double now_s);
  void retire(const Gateway& gateway);
  void name_those_too_large(const std::vector<Result<kube::HttpResponse>>& answers);
  [[nodiscard]] planner::Demand scraped_demand(const ServiceQuery& query, double now_s) const;

  kube::HttpTransport& transport_;
  metrics::ControllerMetrics& metrics_;
  SignalOptions options_;
  std::map<std::string, Gateway> gateways_;      // by id; only those known at the last scrape
  std::map<std::string, double> retired_total_;  // arrivals at gateways that are no more, by model
  [[nodiscard]] std::vector<const Worker*> due(const std::vector<Worker>& workers, double now_s);

  WorkerSignals workers_;
  std::map<std::string, double> asked_s_;  // when each worker was last asked, by uid
  std::optional<PromqlDemand> promql_;
  std::set<std::string> too_large_;  // what was said of the last scrape's pages
};

}  // namespace windlass::controller
