// Least squares, ordinary and non-negative, and a fit of latencies by them that reports its own error.
//
// Ordinary: column-pivoted Householder QR. Non-negative: the active set method of Lawson and Hanson, "Solving Least Squares
// Problems" (1974), Section 23.3. Latency models take the second: a coefficient below zero says that more work takes less time,
// which is noise that a search would exploit. Pure; no state.
#pragma once

#include <cstdint>
#include <optional>

#include <Eigen/Core>

#include "planner/base/result.h"
#include "planner/perf/error_summary.h"

namespace windlass::planner {

// x that minimises |A x - b|. Error kFailedPrecondition: A's columns are linearly dependent (to rounding), so that no x is the
// one.
[[nodiscard]] Result<Eigen::VectorXd> least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& b);

// x >= 0 that minimises |A x - b|; where several do, one with linearly independent support.
[[nodiscard]] Eigen::VectorXd nonnegative_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& b);

struct FitOptions {
  bool non_negative = true;
  // Minimise relative errors instead of absolute ones: times of a batch of 1 and of 64 then count alike.
  bool relative = true;
  int folds = 5;
  std::uint64_t seed = 0;  // of the folds
};

struct LinearFit {
  Eigen::VectorXd coefficients;
  ErrorSummary error;                           // on the samples that it was fitted on
  std::optional<ErrorSummary> cross_validated;  // each sample predicted by a fit on the other folds; none below four samples
};

// target ~ features x. A row is a sample. Errors kInvalidArgument: sizes that differ, fewer samples than features, a target
// that is not positive or not finite; and those of least_squares.
[[nodiscard]] Result<LinearFit> fit_linear(const Eigen::MatrixXd& features, const Eigen::VectorXd& targets,
                                           const FitOptions& options = {});

}  // namespace windlass::planner
