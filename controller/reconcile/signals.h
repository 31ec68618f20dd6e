// Signals reads the metrics of gateways and workers (/metrics, and the gateways' /latencies). It keeps them long enough to
// compute the rates, means and latencies that the planner needs. Every reading has its time. What could not be read is absent,
// not 0.
//
// Demand comes from the gateways' own pages or, with SignalOptions::promql, from a Prometheus that scrapes them. Drains always
// use the pages of the gateways and workers themselves.
//
// All times are monotonic seconds. Single-threaded; scrapes use the given HttpTransport.
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
  double timeout_s = 1;           // per scrape
  double arrivals_window_s = 10;  // window of the arrival rate
  double lengths_window_s = 300;  // window of mean lengths
  double min_measured = 5;        // minimum number of requests for a mean length
  // Maximum number of workers per scrape, in addition to draining ones; those read least recently come first. Ten thousand
  // pages take two seconds of a core. With one scrape per second, ten thousand workers' readings are at most ten seconds old.
  std::size_t max_workers_per_scrape = 1000;
  std::optional<PromqlOptions> promql;
};

struct ScrapeTargets {
  std::vector<GatewayPeer> gateways;
  std::vector<Worker> workers;
  std::vector<ServiceQuery> models;            // to follow; if a name appears twice, the longest window applies
  std::map<std::string, std::string> engines;  // spec.engine.type by the ModelService's UID
};

class Signals {
 public:
  // Both outlive this.
  Signals(kube::HttpTransport& transport, metrics::ControllerMetrics& metrics, SignalOptions options);

  // Reads every gateway, and every worker with an address (a part of them if there are very many), concurrently.
  void scrape(const ScrapeTargets& targets, double now_s);

  // The sum over the currently known gateways. Times are monotonic; each reading is as old as its oldest part.
  [[nodiscard]] planner::Demand demand(const ServiceQuery& query, double now_s) const;

  // By the worker's uid. nullptr: never read.
  [[nodiscard]] const WorkerLoad* worker_load(const std::string& uid) const { return workers_.load(uid); }
  [[nodiscard]] const WorkerPage* worker_page(const std::string& uid) const { return workers_.page(uid); }

  // Requests in flight from the gateways to the chain, as old as the oldest scrape; nullopt if one of `gateways` has not been
  // read yet.
  [[nodiscard]] std::optional<planner::Reading> in_flight(const std::vector<GatewayPeer>& gateways,
                                                          const std::string& chain) const;

 private:
  struct ModelSeries {
    explicit ModelSeries(double window_s);

    double window_s;
    metrics::CounterTracker started, attained, judged, prompt_tokens, generation_tokens, measured, rebalanced;
    // Same, for the last minute: an hour's window has a reading only every two minutes.
    metrics::CounterTracker attained_lately, judged_lately;
    metrics::CounterTracker mixed_pool;
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
  // `too_large`: gets a message for each page that is too large.
  void scrape_gateways(const ScrapeTargets& targets, double now_s, std::set<std::string>& too_large);
  void scrape_workers(const ScrapeTargets& targets, double now_s, std::set<std::string>& too_large);
  void take_worker(const Worker& worker, const Result<std::string>& body, double now_s);
  void name_those_too_large(std::set<std::string> found);
  [[nodiscard]] planner::Demand scraped_demand(const ServiceQuery& query, double now_s) const;

  kube::HttpTransport& transport_;
  metrics::ControllerMetrics& metrics_;
  SignalOptions options_;
  std::map<std::string, Gateway> gateways_;      // by id; gateways known at the last scrape
  std::map<std::string, double> retired_total_;  // arrivals at gateways that no longer exist, by model
  [[nodiscard]] std::vector<const Worker*> due(const std::vector<Worker>& workers, double now_s);

  WorkerSignals workers_;
  std::map<std::string, double> asked_s_;  // time of each worker's last read, by uid
  std::optional<PromqlDemand> promql_;
  std::set<std::string> too_large_;  // problems of the last scrape's pages
};

}  // namespace windlass::controller
