// Recorders: waiting, service and response times of a run, in memory that does not grow with the number of requests.
//
// Means and deviations are exact (Welford); quantiles come from a histogram with logarithmic buckets and lie within 0.2 % of
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
  [[nodiscard]] TimeSummary summary() const;  // all 0 when nothing was observed

 private:
  std::int64_t count_ = 0;
  double mean_ = 0, squares_ = 0, min_ = 0, max_ = 0;
  // Of the octaves that were seen: a short run has eight of these, and all octaves take 140 kB.
  void grow_to(std::size_t bucket);
  std::int64_t smallest_ = 0;  // in the bucket before all others
  std::size_t first_ = 1;      // the bucket that buckets_ begins with
  std::vector<std::int64_t> buckets_;
};

// What a simulation gives.
struct SimulationResult {
  std::int64_t requests = 0;  // measured: those of the warm-up are not
  TimeSummary waiting;        // arrival to start
  TimeSummary service;        // start to end
  TimeSummary response;       // arrival to end
  double simulated_s = 0;     // time of the last event
  WaitingByTenth waiting_by_tenth;
};

// Records the requests of a run whose times are known when their service starts.
class RunRecorder {
 public:
  // `measured`: how many requests will be, as WaitingTrend takes it.
  explicit RunRecorder(std::int64_t measured) : trend_(measured) {}
  // `at` counts the measured requests from 0 in the order of arrival. REQUIRES: arrived <= started <= ended.
  void observe(std::int64_t at, std::int64_t arrived_ns, std::int64_t started_ns, std::int64_t ended_ns);
  [[nodiscard]] SimulationResult result(std::int64_t last_event_ns) const;

 private:
  TimeRecorder waiting_, service_, response_;
  WaitingTrend trend_;
};

// A mean over replications with different seeds, and the half-width of its 95 % confidence interval (Student's t); no
// half-width for one.
struct MeanEstimate {
  double mean = 0;
  std::optional<double> half_width;
};

[[nodiscard]] MeanEstimate mean_over_replications(std::span<const double> means);

}  // namespace windlass::sim
