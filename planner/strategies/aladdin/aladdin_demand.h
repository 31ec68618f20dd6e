// How many workers Aladdin says a demand takes before any request is placed: Eq. 7, where it is valid, and when to look anew
// (Nie, Fonseca, Liu 2024, Section 5.2).
//
//   N_w = ceil(k5 r_a + c5),  r_a > R                                                                     Eq. 7
//
// k5 and c5 are fitted to numbers of workers that Alg. 1 was seen to need. R: at a lower rate a heartbeat brings too few
// requests for their lengths to be those of all. The measure is the standard error of the mean, sigma / sqrt(n) for n requests;
// a rate is large enough when it is within a share of the mean, of inputs and of outputs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "planner/base/result.h"
#include "planner/workload/forecast.h"

namespace windlass::search {

struct LengthSpread {
  double input_mean = 0, input_deviation = 0;
  double output_mean = 0, output_deviation = 0;
};

// Of (input, output) pairs. REQUIRES: at least two.
[[nodiscard]] LengthSpread spread_of(std::span<const std::pair<int, int>> lengths);

// The standard error of the mean of n requests, relative to the mean; the larger of inputs and outputs.
[[nodiscard]] double relative_error_of_mean(const LengthSpread& spread, double requests);
// The fewest requests whose relative error of the mean is within `error`. REQUIRES: error > 0.
[[nodiscard]] std::int64_t least_requests(const LengthSpread& spread, double error);

struct WorkersAtRate {
  double requests_per_s = 0;
  double workers = 0;
};

struct WorkerLine {
  double workers_per_rate = 0;   // k5
  double constant = 0;           // c5
  double valid_above_per_s = 0;  // R

  // None: the rate is not above R.
  [[nodiscard]] std::optional<std::int64_t> workers(double requests_per_s) const;
};

// Ordinary least squares. Error kInvalidArgument: fewer than two different rates, one that is not positive, a heartbeat or an
// error that is not.
[[nodiscard]] Result<WorkerLine> fit_worker_line(std::span<const WorkersAtRate> points, const LengthSpread& spread,
                                                 double heartbeat_s, double error = 0.1);

// Change-point detection at each heartbeat, over the arrival rate and the mean lengths: CUSUM (planner/workload's ChangePoint
// forecast), one for each of the three.
class DemandWatch {
 public:
  [[nodiscard]] static Result<DemandWatch> make(const workload::ForecastOptions& options = {});

  struct Heartbeat {
    double time_s = 0;  // its end
    double requests = 0;
    double input_tokens = 0, output_tokens = 0;  // of these requests together
  };
  // Whether something has changed: the cluster is to be configured anew. Error: times that do not rise, numbers that are not.
  [[nodiscard]] Result<bool> observe(const Heartbeat& heartbeat);
  // Since the last change. None before the second heartbeat.
  [[nodiscard]] std::optional<double> requests_per_s() const;

 private:
  explicit DemandWatch(const workload::Forecaster& detector) : rate_(detector), inputs_(detector), outputs_(detector) {}

  workload::Forecaster rate_, inputs_, outputs_;
  std::optional<double> last_s_;
};

}  // namespace windlass::search
