// PromqlDemand: the demand of every service as a Prometheus server tells it, in place of the gateways' own pages: for gateways
// that the controller cannot reach, or where one source of numbers is wanted for people and machine.
//
// What is asked stands in docs/metrics.md. A reading is as old as the sample that Prometheus took, by Prometheus' own clock,
// not as old as the query, and never older than one that was given before. Where an answer fails, the last readings stay and
// grow old. Prometheus must have scraped as many gateways as are known, each within the last half minute, and must have found
// the model at as many: half of the gateways would look like half of the demand.
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
  std::shared_ptr<kube::HttpTransport> transport = {};       // its own way there; nullptr: that of the scrapes
  std::shared_ptr<kube::CredentialSource> credentials = {};  // nullptr: none
  double period_s = 5;                                       // between two rounds of queries
  double timeout_s = 2;                                      // of one query
  double rate_window_s = 60;                                 // of rate(): several scrapes must fall inside
  double lengths_window_s = 300;
  double min_measured = 5;  // requests before their mean length says anything
};

class PromqlDemand {
 public:
  // Both outlive this.
  PromqlDemand(kube::HttpTransport& transport, metrics::ControllerMetrics& metrics, PromqlOptions options);

  // Asks, when it is time to. `gateways`: how many are known to be there.
  void refresh(const std::vector<ServiceQuery>& models, std::size_t gateways, double now_s);

  [[nodiscard]] planner::Demand demand(const ServiceQuery& query) const;

  // Why the last round failed, for a person; "" if it did not.
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  using Samples = std::vector<metrics::PromqlSample>;
  using Labels = std::map<std::string, std::string>;

  [[nodiscard]] std::vector<std::string> queries(const std::vector<ServiceQuery>& models) const;
  [[nodiscard]] std::string series(const std::string& name, double window_s = 0) const;
  [[nodiscard]] std::string buckets(const std::string& name, double window_s) const;
  [[nodiscard]] std::string increase(const std::string& name, double window_s) const;
  // `part` for each of `whole`, in one query: two would be evaluated at two moments, over two windows.
  [[nodiscard]] std::string mean(const std::string& part, const std::string& whole, double window_s) const;
  // Of the newest answer to it that there is.
  [[nodiscard]] std::optional<planner::Reading> reading(const std::string& query, const std::string& model) const;
  [[nodiscard]] std::optional<planner::Reading> latency(const std::string& name, const ServiceQuery& query) const;
  void fail(const std::string& what);
  [[nodiscard]] std::map<std::string, Samples> ask(const std::vector<std::string>& asked, kube::HttpRequest request);
  [[nodiscard]] bool take_presence(const Samples& presence, std::size_t gateways, double now_s);
  void take_arrivals(const std::vector<ServiceQuery>& models, const Samples& samples);

  struct Answer {
    std::map<std::string, double> by_model;
    std::map<std::string, metrics::LatencyCounts> latencies;  // by model; of queries for buckets
    double at_s = 0;                                          // monotonic; when Prometheus took the samples behind it
  };
  [[nodiscard]] static Answer answer_of(const Samples& samples, double at_s);
  struct Arrivals {
    double total = 0;  // of series that are no more
    std::map<Labels, metrics::CounterTracker> series;
    std::optional<double> last_arrival_s;
  };

  kube::HttpTransport& transport_;
  metrics::ControllerMetrics& metrics_;
  PromqlOptions options_;
  double next_s_ = 0;
  // Of the last round that counted: when Prometheus had taken its oldest sample, and how many gateways there were.
  double sampled_s_ = -std::numeric_limits<double>::infinity();
  std::size_t gateways_ = 0;
  std::map<std::string, Answer> answers_;     // by query; those of the last round that succeeded for each
  std::map<std::string, Arrivals> arrivals_;  // by model
  std::string problem_;
};

}  // namespace windlass::controller
