// Predicts how many workers a demand needs before any request is placed, by Aladdin's Eq. 7 (Nie, Fonseca, Liu 2024, Section
// 5.2). It also says from which rate Eq. 7 is valid.
//
//   N_w = ceil(k5 r_a + c5),  r_a > R                                                                     Eq. 7
//
// k5 and c5 are fitted to numbers of workers that Alg. 1 needed. R is the rate below which a heartbeat has too few requests for
// their lengths to represent all. The measure is the standard error of the mean length, sigma / sqrt(n) for n requests. A rate
// is high enough if this error is within a given share of the mean, for inputs and for outputs. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <utility>

#include "planner/base/result.h"

namespace windlass::search {

struct LengthSpread {
  double input_mean = 0, input_deviation = 0;
  double output_mean = 0, output_deviation = 0;
};

// Of (input, output) pairs. REQUIRES: at least two.
[[nodiscard]] LengthSpread spread_of(std::span<const std::pair<int, int>> lengths);

// Standard error of the mean of n requests, relative to the mean; the larger one of inputs and outputs.
[[nodiscard]] double relative_error_of_mean(const LengthSpread& spread, double requests);
// The fewest requests whose relative error of the mean is at most `error`. REQUIRES: error > 0.
[[nodiscard]] std::int64_t least_requests(const LengthSpread& spread, double error);

struct WorkersAtRate {
  double requests_per_s = 0;
  double workers = 0;
};

struct WorkerLine {
  double workers_per_rate = 0;   // k5
  double constant = 0;           // c5
  double valid_above_per_s = 0;  // R

  // None if the rate is not above R.
  [[nodiscard]] std::optional<std::int64_t> workers(double requests_per_s) const;
};

// Ordinary least squares. Error kInvalidArgument: fewer than two different rates, or a rate, heartbeat or error that is not
// positive.
[[nodiscard]] Result<WorkerLine> fit_worker_line(std::span<const WorkersAtRate> points, const LengthSpread& spread,
                                                 double heartbeat_s, double error = 0.1);

}  // namespace windlass::search
