// Least squares, ordinary and non-negative, and a latency fit based on them that reports its own error.
//
// Ordinary: column-pivoted Householder QR. Non-negative: the active set method of Lawson and Hanson, "Solving Least Squares
// Problems" (1974), Section 23.3. Latency models use the second: a negative coefficient would mean that more work takes less
// time, which is noise that a search would exploit. Pure; no state.
#pragma once

#include <cstdint>
#include <optional>

#include <Eigen/Core>

#include "planner/base/result.h"
#include "planner/perf/error_summary.h"

namespace windlass::planner {

// x that minimises |A x - b|. Error kFailedPrecondition: A's columns are linearly dependent (up to rounding), so x is not
// unique.
[[nodiscard]] Result<Eigen::VectorXd> least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& b);

// x >= 0 that minimises |A x - b|; if several do, one with linearly independent support.
[[nodiscard]] Eigen::VectorXd nonnegative_least_squares(const Eigen::MatrixXd& a, const Eigen::VectorXd& b);

struct FitOptions {
  bool non_negative = true;
  // Minimise relative instead of absolute errors, so that times of a batch of 1 and of 64 count equally.
  bool relative = true;
  int folds = 5;
  std::uint64_t seed = 0;  // seed of the folds
};

struct LinearFit {
  Eigen::VectorXd coefficients;
  ErrorSummary error;  // on the samples used for the fit
  std::optional<ErrorSummary>
      cross_validated;  // each sample predicted by a fit on the other folds; none for fewer than four samples
};

// Fits target ~ features x, with one sample per row. Errors kInvalidArgument: sizes that differ, fewer samples than features, a
// target that is not positive or not finite; and those of least_squares.
[[nodiscard]] Result<LinearFit> fit_linear(const Eigen::MatrixXd& features, const Eigen::VectorXd& targets,
                                           const FitOptions& options = {});

}  // namespace windlass::planner
