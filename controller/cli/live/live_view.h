// LiveView: computes what a person sees of each running service, from the controller's last snapshot and plan and from the
// gateways' metrics.
//
// Pure: takes snapshots, plans, metrics pages and times, and returns rows. Latencies and arrivals cover the last few seconds if
// gateways' pages are given; otherwise they are the controller's last measurements.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "metrics/counter_tracker.h"
#include "metrics/exposition_parser.h"
#include "planner/base/result.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::cli {

struct ServiceRow {
  std::string name_space;
  std::string name;
  std::string served_name;
  int desired = 0;
  int ready = 0;
  int starting = 0;  // including pending ones
  int draining = 0;
  int failed = 0;
  std::optional<double> arrivals_per_s;
  std::optional<double> queued;
  std::optional<double> ttft_s;  // at the objective's percentile
  std::optional<double> tpot_s;
  Bound ttft_bound = Bound::kNone;  // older gateways and Prometheus may only give a bound
  Bound tpot_bound = Bound::kNone;
  double ttft_slo_s = 0;
  double tpot_slo_s = 0;
  double percentile = 95;
  std::optional<double> attainment;  // over the objective's window
  // Misses of the last minute as a multiple of what the objective allows. Above 1 they use up the error budget.
  std::optional<double> burn_rate;
  double cost_per_hour = 0;
  std::string trouble_code;  // of the first condition that needs attention; empty if none does
  std::string trouble;       // its message

  [[nodiscard]] std::string title() const { return name_space + "/" + name; }
};

class LiveView {
 public:
  // window_s: the time that arrivals and latencies cover.
  explicit LiveView(double window_s = 15) : window_s_(window_s) {}

  // `gateways` maps an admin address to its metrics page with the bins of its latencies (metrics::add_latency_bins). Gateways
  // that could not be read are absent.
  void observe(double now_s, const planner::Snapshot& snapshot, const planner::Plan& plan,
               const std::map<std::string, metrics::Exposition>& gateways);

  // In the order of the snapshot.
  [[nodiscard]] const std::vector<ServiceRow>& rows() const { return rows_; }

 private:
  struct Trackers {
    metrics::CounterTracker started;
    metrics::LatencyTracker ttft;
    metrics::LatencyTracker tpot;
  };

  void track(double now_s, const std::string& served_name, const std::map<std::string, metrics::Exposition>& gateways);
  void measure(double now_s, ServiceRow& row, const std::map<std::string, metrics::Exposition>& gateways) const;

  double window_s_;
  std::map<std::pair<std::string, std::string>, Trackers> trackers_;  // (gateway, served name)
  std::vector<ServiceRow> rows_;
};

// "123ms/500ms": measured and objective.
[[nodiscard]] std::string ttft_text(const ServiceRow& row);
[[nodiscard]] std::string tpot_text(const ServiceRow& row);
[[nodiscard]] std::string attained_text(const ServiceRow& row);  // "99.5%/95%"

// The table as `windlass top --once` prints it.
[[nodiscard]] std::string table_text(const std::vector<ServiceRow>& rows);

// "default/tiny: 3 desired, 2 ready, 1 starting": the part that seldom changes.
[[nodiscard]] std::string state_text(const ServiceRow& row);

// state_text() and the current figures, in one line.
[[nodiscard]] std::string line_text(const ServiceRow& row);

// For --record: CSV with a header, then a line per service and sample.
[[nodiscard]] std::string csv_header();
[[nodiscard]] std::string csv_line(double elapsed_s, const ServiceRow& row);

}  // namespace windlass::cli
