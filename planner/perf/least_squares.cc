// Least squares: see least_squares.h. Columns are first scaled to length one, so that tolerances mean the same for seconds per
// token and seconds.
#include "planner/perf/least_squares.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <vector>

#include <Eigen/QR>
#include <fmt/format.h>

#include "planner/perf/cross_validation.h"

namespace windlass::planner {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

constexpr double kTolerance = 1e-11;  // relative to columns of length one and to |b|

struct Scaled {
  MatrixXd a;
  VectorXd lengths;  // of the columns; 1 for a column of zeros
};

Scaled scale_columns(const MatrixXd& a) {
  Scaled scaled{a, VectorXd::Ones(a.cols())};
  for (Index j = 0; j < a.cols(); ++j) {
    const double length = a.col(j).norm();
    if (!(length > 0)) continue;
    scaled.lengths[j] = length;
    scaled.a.col(j) /= length;
  }
  return scaled;
}

MatrixXd columns_of(const MatrixXd& a, const std::vector<Index>& chosen) {
  MatrixXd result(a.rows(), static_cast<Index>(chosen.size()));
  for (std::size_t i = 0; i < chosen.size(); ++i) result.col(static_cast<Index>(i)) = a.col(chosen[i]);
  return result;
}

MatrixXd rows_of(const MatrixXd& a, const std::vector<std::size_t>& chosen) {
  MatrixXd result(static_cast<Index>(chosen.size()), a.cols());
  for (std::size_t i = 0; i < chosen.size(); ++i) result.row(static_cast<Index>(i)) = a.row(static_cast<Index>(chosen[i]));
  return result;
}

Eigen::ColPivHouseholderQR<MatrixXd> decompose(const MatrixXd& a) {
  Eigen::ColPivHouseholderQR<MatrixXd> qr;
  qr.setThreshold(kTolerance);
  qr.compute(a);
  return qr;
}

Result<VectorXd> solve(const MatrixXd& features, const VectorXd& targets, const FitOptions& options) {
  MatrixXd a = features;
  VectorXd b = targets;
  if (options.relative) {
    for (Index i = 0; i < a.rows(); ++i) a.row(i) /= targets[i];
    b.setOnes();
  }
  if (options.non_negative) return nonnegative_least_squares(a, b);
  return least_squares(a, b);
}

ErrorSummary summary_of(const VectorXd& actual, const VectorXd& predicted) {
  return error_summary(std::span(actual.data(), static_cast<std::size_t>(actual.size())),
                       std::span(predicted.data(), static_cast<std::size_t>(predicted.size())));
}

std::optional<ErrorSummary> cross_validate(const MatrixXd& features, const VectorXd& targets, const FitOptions& options) {
  const auto samples = static_cast<std::size_t>(targets.size());
  if (samples < 4 || options.folds < 2) return std::nullopt;
  const std::vector<Split> folds = k_folds(samples, options.folds, options.seed);
  const auto predicted = predict_held_out(samples, folds, [&](const Split& split) -> Result<std::vector<double>> {
    const MatrixXd train = rows_of(features, split.train);
    WINDLASS_ASSIGN_OR_RETURN(const VectorXd x, solve(train, rows_of(targets, split.train), options));
    const VectorXd held_out = rows_of(features, split.test) * x;
    return std::vector<double>(held_out.begin(), held_out.end());
  });
  // A fold may have linearly dependent columns, and so no fit, although the whole set has one.
  if (!predicted.ok()) return std::nullopt;
  return error_summary(std::span(targets.data(), samples), *predicted);
}

}  // namespace

Result<VectorXd> least_squares(const MatrixXd& a, const VectorXd& b) {
  const Scaled scaled = scale_columns(a);
  const auto qr = decompose(scaled.a);
  if (qr.rank() < a.cols()) {
    return Error{
        ErrorCode::kFailedPrecondition,
        fmt::format("least squares: {} samples determine only {} of {} coefficients; use samples that differ in more ways",
                    a.rows(), qr.rank(), a.cols())};
  }
  VectorXd x = qr.solve(b);
  x.array() /= scaled.lengths.array();
  return x;
}

VectorXd nonnegative_least_squares(const MatrixXd& a, const VectorXd& b) {
  const Scaled scaled = scale_columns(a);
  const double tolerance = kTolerance * b.norm();
  VectorXd x = VectorXd::Zero(a.cols());
  std::vector<Index> passive;  // columns with a free coefficient; all others are 0
  std::vector<bool> is_passive(static_cast<std::size_t>(a.cols()));
  std::vector<bool> is_refused(static_cast<std::size_t>(a.cols()));  // tried without success since x last changed

  // Each round reduces the error, so no set of columns repeats; the limit guards against rounding alone.
  for (Index round = 0; round < 100 + 30 * a.cols(); ++round) {
    // The column at 0 along which the error falls fastest.
    const VectorXd descent = scaled.a.transpose() * (b - scaled.a * x);
    Index entering = -1;
    for (Index j = 0; j < a.cols(); ++j) {
      const auto k = static_cast<std::size_t>(j);
      if (is_passive[k] || is_refused[k] || !(descent[j] > tolerance)) continue;
      if (entering < 0 || descent[j] > descent[entering]) entering = j;
    }
    if (entering < 0) break;
    passive.push_back(entering);

    auto qr = decompose(columns_of(scaled.a, passive));
    VectorXd free = qr.rank() == static_cast<Index>(passive.size()) ? VectorXd(qr.solve(b)) : VectorXd();
    // A column that depends on the others, or moves the wrong way because of rounding, would enter and leave for ever.
    if (free.size() == 0 || !(free[free.size() - 1] > 0)) {
      passive.pop_back();
      is_refused[static_cast<std::size_t>(entering)] = true;
      continue;
    }
    is_passive[static_cast<std::size_t>(entering)] = true;
    std::fill(is_refused.begin(), is_refused.end(), false);

    while (free.size() > 0 && !(free.minCoeff() > 0)) {
      // Move towards the free solution until the first coefficient reaches 0, and fix that one there.
      double step = 1;
      Index leaving = -1;
      for (std::size_t i = 0; i < passive.size(); ++i) {
        const double goal = free[static_cast<Index>(i)];
        if (goal > 0) continue;
        const double here = x[passive[i]];
        const double share = here / (here - goal);
        if (leaving < 0 || share < step) {
          step = share;
          leaving = static_cast<Index>(i);
        }
      }
      for (std::size_t i = 0; i < passive.size(); ++i) x[passive[i]] += step * (free[static_cast<Index>(i)] - x[passive[i]]);
      for (std::size_t i = passive.size(); i-- > 0;) {
        if (static_cast<Index>(i) != leaving && x[passive[i]] > 0) continue;
        x[passive[i]] = 0;
        is_passive[static_cast<std::size_t>(passive[i])] = false;
        passive.erase(passive.begin() + static_cast<std::ptrdiff_t>(i));
      }
      free = passive.empty() ? VectorXd() : VectorXd(decompose(columns_of(scaled.a, passive)).solve(b));
    }
    for (std::size_t i = 0; i < passive.size(); ++i) x[passive[i]] = free[static_cast<Index>(i)];
  }
  x.array() /= scaled.lengths.array();
  return x;
}

Result<LinearFit> fit_linear(const MatrixXd& features, const VectorXd& targets, const FitOptions& options) {
  if (features.rows() != targets.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("fit: rows of features and targets: must be equal in number (got {} and {})", features.rows(),
                             targets.size())};
  }
  if (targets.size() < features.cols() || targets.size() == 0) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("fit: samples: must be at least one per coefficient, {} (got {})",
                                                          features.cols(), targets.size())};
  }
  for (Index i = 0; i < targets.size(); ++i) {
    if (!(targets[i] > 0) || !std::isfinite(targets[i]) || !features.row(i).allFinite()) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("fit: sample {}: must have finite features and a finite target above 0 (got target {})", i, targets[i])};
    }
  }
  WINDLASS_ASSIGN_OR_RETURN(VectorXd coefficients, solve(features, targets, options));
  const ErrorSummary error = summary_of(targets, features * coefficients);
  return LinearFit{std::move(coefficients), error, cross_validate(features, targets, options)};
}

}  // namespace windlass::planner
