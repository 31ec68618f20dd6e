// PromqlDemand reads every service's demand from a Prometheus server instead of the gateways' own pages. Use it if the
// controller cannot reach the gateways, or if people and controller should see the same numbers.
//
// The queries are in docs/metrics.md. The time of a reading is the time of Prometheus' sample by Prometheus' own clock, not the
// time of the query, and it never goes back. If a query fails, the last readings stay and age. Results are used only if
// Prometheus has scraped as many gateways as are known, each within the last half minute, and has found the model on that many
// gateways. Otherwise missing gateways would look like less demand.
//
// Times are monotonic seconds of the caller's clock. Single-threaded.
#pragma once

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/kube/credentials.h"
#include "controller/kube/http_transport.h"
#include "controller/reconcile/service_query.h"
#include "metrics/bundles.h"
#include "metrics/counter_tracker.h"
#include "metrics/promql_client.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

struct PromqlOptions {
  std::string server;                                        // scheme://host:port
  std::string selector;                                      // label matchers of this installation's gateways: namespace="llm"
  std::shared_ptr<kube::HttpTransport> transport = {};       // transport to Prometheus; nullptr: the one for scrapes
  std::shared_ptr<kube::CredentialSource> credentials = {};  // nullptr: none
  double period_s = 5;                                       // between two rounds of queries
  double timeout_s = 2;                                      // per query
  double rate_window_s = 60;                                 // of rate(); must cover several scrapes
  double lengths_window_s = 300;
  double min_measured = 5;  // minimum number of requests for a mean length
};

class PromqlDemand {
 public:
  // Both outlive this.
  PromqlDemand(kube::HttpTransport& transport, metrics::ControllerMetrics& metrics, PromqlOptions options);

  // Queries Prometheus if it is time to. `gateways`: the number of known gateways.
  void refresh(const std::vector<ServiceQuery>& models, std::size_t gateways, double now_s);

  [[nodiscard]] planner::Demand demand(const ServiceQuery& query) const;

  // Why the last round failed, as text for people; "" if it succeeded.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  using Samples = std::vector<metrics::PromqlSample>;
  using Labels = std::map<std::string, std::string>;

  [[nodiscard]] std::vector<std::string> queries(const std::vector<ServiceQuery>& models) const;
  [[nodiscard]] std::string series(const std::string& name, double window_s = 0) const;
  [[nodiscard]] std::string buckets(const std::string& name, double window_s) const;
  [[nodiscard]] std::string increase(const std::string& name, double window_s) const;
  // `part` divided by `whole` in one query; two queries would be evaluated at two times, over two windows.
  [[nodiscard]] std::string mean(const std::string& part, const std::string& whole, double window_s) const;
  // From the newest available answer to the query.
  [[nodiscard]] std::optional<planner::Reading> reading(const std::string& query, const std::string& model) const;
  [[nodiscard]] std::optional<planner::Reading> latency(const std::string& name, const ServiceQuery& query) const;
  void fail(const std::string& what);
  [[nodiscard]] std::map<std::string, Samples> ask(const std::vector<std::string>& asked, kube::HttpRequest request);
  [[nodiscard]] bool take_presence(const Samples& presence, std::size_t gateways, double now_s);
  void take_arrivals(const std::vector<ServiceQuery>& models, const Samples& samples);

  struct Answer {
    std::map<std::string, double> by_model;
    std::map<std::string, metrics::LatencyCounts> latencies;  // by model; for bucket queries
    double at_s = 0;                                          // monotonic; when Prometheus took the underlying samples
  };
  [[nodiscard]] static Answer answer_of(const Samples& samples, double at_s);
  struct Arrivals {
    double total = 0;  // of series that no longer exist
    std::map<Labels, metrics::CounterTracker> series;
    std::optional<double> last_arrival_s;
  };

  kube::HttpTransport& transport_;
  metrics::ControllerMetrics& metrics_;
  PromqlOptions options_;
  double next_s_ = 0;
  // The last valid round: the time of Prometheus' oldest sample, and the number of gateways.
  double sampled_s_ = -std::numeric_limits<double>::infinity();
  std::size_t gateways_ = 0;
  std::map<std::string, Answer> answers_;     // by query; the last success of each
  std::map<std::string, Arrivals> arrivals_;  // by model
  std::string problem_;
};

}  // namespace windlass::controller
