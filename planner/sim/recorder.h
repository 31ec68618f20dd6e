// Recorders of waiting, service and response times of a run. Their memory does not grow with the number of requests.
//
// Means and deviations are exact (Welford). Quantiles come from a histogram with logarithmic buckets and are within 0.2 % of
// the exact ones. Belongs to one run; not thread-safe.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "planner/sim/waiting_trend.h"

namespace windlass::sim {

struct TimeSummary {
  double mean_s = 0;
  double standard_deviation_s = 0;
  double p50_s = 0;
  double p90_s = 0;
  double p95_s = 0;
  double p99_s = 0;
  double min_s = 0;
  double max_s = 0;
};

class TimeRecorder {
 public:
  void observe(double seconds);  // REQUIRES: seconds >= 0
  [[nodiscard]] std::int64_t count() const { return count_; }
  [[nodiscard]] TimeSummary summary() const;  // all 0 if nothing was observed

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, squares_ = 0, min_ = 0, max_ = 0;
  // Buckets of the octaves seen so far: a short run has eight of them; all octaves would take 140 kB.
  void grow_to(std::size_t bucket);
  std::int64_t smallest_ = 0;  // count of the bucket below all others
  std::size_t first_ = 1;      // number of the first bucket in buckets_
  std::vector<std::int64_t> buckets_;
};

// The result of a simulation.
struct SimulationResult {
  std::int64_t requests = 0;  // measured requests, without warm-up
  TimeSummary waiting;        // arrival to start
  TimeSummary service;        // start to end
  TimeSummary response;       // arrival to end
  double simulated_s = 0;     // time of the last event
  WaitingByTenth waiting_by_tenth;
};

// Records the requests of a run whose times are known when their service starts.
class RunRecorder {
 public:
  // `measured`: expected number of measured requests, as for WaitingTrend.
  explicit RunRecorder(std::int64_t measured) : trend_(measured) {}
  // `at` numbers the measured requests from 0 in order of arrival. REQUIRES: arrived <= started <= ended.
  void observe(std::int64_t at, std::int64_t arrived_ns, std::int64_t started_ns, std::int64_t ended_ns);
  [[nodiscard]] SimulationResult result(std::int64_t last_event_ns) const;

 private:
  TimeRecorder waiting_, service_, response_;
  WaitingTrend trend_;
};

// Mean over replications with different seeds, and the half-width of its 95 % confidence interval (Student's t); no half-width
// for one replication.
struct MeanEstimate {
  double mean = 0;
  std::optional<double> half_width;
};

[[nodiscard]] MeanEstimate mean_over_replications(std::span<const double> means);

}  // namespace windlass::sim
