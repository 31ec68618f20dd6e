// Tests least squares against its normal equations, and non-negative least squares against trying every set of free
// coefficients.
#include "planner/perf/least_squares.h"

#include <cmath>
#include <limits>

#include <Eigen/Dense>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

using Eigen::Index;
using Eigen::MatrixXd;
using Eigen::VectorXd;

struct Instance {
  MatrixXd a;
  VectorXd b;
};

// Small integers make ties and dependent columns likely; every third instance has real entries of very different sizes.
Instance random_instance(Rng& rng) {
  const Index columns = rng.integer(1, 6);
  const Index rows = rng.integer(1, 9);
  const bool real = rng.integer(0, 2) == 0;
  Instance instance{MatrixXd(rows, columns), VectorXd(rows)};
  for (Index j = 0; j < columns; ++j) {
    const double unit = real ? std::pow(10.0, static_cast<double>(rng.integer(-4, 4))) : 1;
    for (Index i = 0; i < rows; ++i) instance.a(i, j) = real ? unit * rng.normal() : static_cast<double>(rng.integer(-2, 2));
  }
  for (Index i = 0; i < rows; ++i) instance.b[i] = real ? rng.normal() : static_cast<double>(rng.integer(-3, 3));
  if (columns > 1 && rng.integer(0, 5) == 0) instance.a.col(columns - 1) = 2 * instance.a.col(0);
  return instance;
}

// The smallest |A x - b| over all sets of free columns whose unconstrained solution (of minimum length) is not negative.
double best_residual(const Instance& instance) {
  const Index columns = instance.a.cols();
  double best = instance.b.norm();
  for (unsigned set = 1; set < (1U << static_cast<unsigned>(columns)); ++set) {
    std::vector<Index> chosen;
    for (Index j = 0; j < columns; ++j) {
      if ((set >> static_cast<unsigned>(j) & 1U) != 0) chosen.push_back(j);
    }
    MatrixXd part(instance.a.rows(), static_cast<Index>(chosen.size()));
    for (std::size_t i = 0; i < chosen.size(); ++i) part.col(static_cast<Index>(i)) = instance.a.col(chosen[i]);
    Eigen::JacobiSVD<MatrixXd> svd(part, Eigen::ComputeThinU | Eigen::ComputeThinV);
    const VectorXd x = svd.solve(instance.b);
    // Slightly below zero counts as rounding, in units that do not depend on the column.
    const double lowest = (x.array() * part.colwise().norm().transpose().array()).minCoeff();
    if (lowest >= -1e-10 * instance.b.norm()) best = std::min(best, (part * x - instance.b).norm());
  }
  return best;
}

// Given small problems, with ties, dependent columns and columns of zeros: no set of free columns has a smaller error, and no
// coefficient at 0 would lower it (Kuhn and Tucker).
TEST(NonnegativeLeastSquares, MatchesTryingEverySet) {
  Rng rng(11, "nnls");
  for (int round = 0; round < effort(600, 6000); ++round) {
    const Instance instance = random_instance(rng);
    const VectorXd x = nonnegative_least_squares(instance.a, instance.b);
    ASSERT_EQ(x.size(), instance.a.cols());
    ASSERT_TRUE(x.allFinite());
    ASSERT_GE(x.minCoeff(), 0);
    const double residual = (instance.a * x - instance.b).norm();
    ASSERT_NEAR(residual, best_residual(instance), 1e-7 * std::max(1.0, instance.b.norm())) << "round " << round;
    const VectorXd descent = instance.a.transpose() * (instance.b - instance.a * x);
    for (Index j = 0; j < x.size(); ++j) {
      const double scale = std::max(1e-300, instance.a.col(j).norm() * std::max(1e-9, instance.b.norm()));
      ASSERT_LE(descent[j], 1e-7 * scale) << "round " << round;
      if (x[j] > 0) {
        ASSERT_NEAR(descent[j], 0, 1e-7 * scale) << "round " << round;
      }
    }
  }
}

// Given problems whose unconstrained optimum is positive: both kinds of least squares give it.
TEST(NonnegativeLeastSquares, IsTheOrdinaryOneWhereThatIsPositive) {
  Rng rng(12, "nnls");
  int compared = 0;
  for (int round = 0; round < effort(200, 2000); ++round) {
    MatrixXd a(12, 4);
    for (Index i = 0; i < a.size(); ++i) a(i / 4, i % 4) = rng.uniform(0, 1);
    VectorXd truth(4);
    for (Index j = 0; j < 4; ++j) truth[j] = rng.uniform(0.5, 3);
    VectorXd b = a * truth;
    for (Index i = 0; i < b.size(); ++i) b[i] += 0.05 * rng.normal();
    const auto free = least_squares(a, b);
    ASSERT_TRUE(free.ok());
    if (free->minCoeff() <= 0) continue;
    ++compared;
    ASSERT_LT((nonnegative_least_squares(a, b) - *free).cwiseAbs().maxCoeff(), 1e-9);
  }
  EXPECT_GT(compared, effort(100, 1500));
}

// Given regular problems: the residual is orthogonal to every column.
TEST(LeastSquares, ResidualIsOrthogonal) {
  Rng rng(13, "ols");
  for (int round = 0; round < effort(100, 1000); ++round) {
    MatrixXd a(10, 3);
    for (Index i = 0; i < a.size(); ++i) a(i / 3, i % 3) = rng.normal();
    a.col(1) *= 1e6;
    VectorXd b(10);
    for (Index i = 0; i < b.size(); ++i) b[i] = rng.normal();
    const auto x = least_squares(a, b);
    ASSERT_TRUE(x.ok());
    const VectorXd products = a.transpose() * (b - a * *x);
    for (Index j = 0; j < 3; ++j) ASSERT_NEAR(products[j] / a.col(j).norm(), 0, 1e-9);
  }
}

// Given columns of which one is the sum of two others: an error that says how many coefficients are independent.
TEST(LeastSquares, DependentColumnsAreAnError) {
  MatrixXd a(4, 3);
  a << 1, 0, 1, 0, 1, 1, 2, 1, 3, 1, 1, 2;
  const auto x = least_squares(a, VectorXd::Ones(4));
  ASSERT_FALSE(x.ok());
  EXPECT_EQ(x.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_NE(x.error().message.find("2 of 3"), std::string::npos) << x.error().message;
}

// Given targets from known coefficients: the fit finds them with zero error, in all four forms.
TEST(FitLinear, FindsWhatMadeTheSamples) {
  Rng rng(14, "fit");
  MatrixXd features(30, 3);
  for (Index i = 0; i < 30; ++i) features.row(i) << 1, rng.uniform(1, 1000), rng.uniform(1, 8);
  const VectorXd truth = (VectorXd(3) << 0.02, 1e-5, 0.003).finished();
  const VectorXd targets = features * truth;
  for (const bool non_negative : {false, true}) {
    for (const bool relative : {false, true}) {
      const auto fit = fit_linear(features, targets, {.non_negative = non_negative, .relative = relative});
      ASSERT_TRUE(fit.ok());
      EXPECT_LT((fit->coefficients - truth).cwiseAbs().maxCoeff(), 1e-12);
      EXPECT_LT(fit->error.max_ape, 1e-9);
      EXPECT_NEAR(fit->error.r_squared, 1, 1e-12);
      ASSERT_TRUE(fit->cross_validated.has_value());
      EXPECT_EQ(fit->cross_validated->samples, 30u);
      EXPECT_LT(fit->cross_validated->max_ape, 1e-9);
    }
  }
}

// Given noise of 5 %: the error on held-out folds is at least that on the samples themselves, and both are near the noise.
TEST(FitLinear, ReportsItsErrorHonestly) {
  Rng rng(15, "fit");
  double on_samples = 0;
  double held_out = 0;
  for (int round = 0; round < 200; ++round) {
    MatrixXd features(20, 4);
    VectorXd targets(20);
    for (Index i = 0; i < 20; ++i) {
      features.row(i) << 1, rng.uniform(1, 10), rng.uniform(1, 10), rng.uniform(1, 10);
      targets[i] = features.row(i).sum() * (1 + 0.05 * rng.normal());
    }
    const auto fit = fit_linear(features, targets, {.seed = static_cast<std::uint64_t>(round)});
    ASSERT_TRUE(fit.ok());
    on_samples += fit->error.mape / 200;
    held_out += fit->cross_validated->mape / 200;
  }
  EXPECT_GT(held_out, on_samples);
  EXPECT_NEAR(on_samples, 0.05 * std::sqrt(2 / M_PI) * std::sqrt(16.0 / 20),
              0.004);  // mean |normal|, with 4 of 20 degrees of freedom used
  EXPECT_LT(held_out, 0.06);
}

// Given targets over three decades with relative noise: the relative fit has the smaller MAPE, the absolute one the smaller
// RMSE.
TEST(FitLinear, WeightsAsAsked) {
  Rng rng(16, "fit");
  MatrixXd features(60, 2);
  VectorXd targets(60);
  for (Index i = 0; i < 60; ++i) {
    features.row(i) << 1, std::pow(10.0, rng.uniform(0, 3));
    targets[i] = (1 + features(i, 1)) * (1 + 0.1 * rng.normal());
  }
  const auto relative = fit_linear(features, targets, {.relative = true});
  const auto absolute = fit_linear(features, targets, {.relative = false});
  ASSERT_TRUE(relative.ok() && absolute.ok());
  EXPECT_LT(relative->error.mape, absolute->error.mape);
  EXPECT_LT(absolute->error.rmse, relative->error.rmse);
}

// Given invalid samples: errors that say what was found and what is allowed.
TEST(FitLinear, NamesBadSamples) {
  const MatrixXd features = MatrixXd::Ones(3, 1);
  EXPECT_NE(fit_linear(features, VectorXd::Ones(2)).error().message.find("must be equal in number (got 3 and 2)"),
            std::string::npos);
  EXPECT_NE(fit_linear(MatrixXd::Ones(1, 2), VectorXd::Ones(1))
                .error()
                .message.find("must be at least one per coefficient, 2 (got 1)"),
            std::string::npos);
  EXPECT_FALSE(fit_linear(MatrixXd(0, 0), VectorXd(0)).ok());
  VectorXd targets = VectorXd::Ones(3);
  for (const double bad : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    targets[1] = bad;
    const auto fit = fit_linear(features, targets);
    ASSERT_FALSE(fit.ok());
    EXPECT_NE(fit.error().message.find("sample 1: must have finite features"), std::string::npos) << fit.error().message;
  }
}

// Given three samples: a fit without cross-validation.
TEST(FitLinear, TooFewSamplesToHoldAnyOut) {
  const auto fit = fit_linear(MatrixXd::Ones(3, 1), VectorXd::Ones(3));
  ASSERT_TRUE(fit.ok());
  EXPECT_FALSE(fit->cross_validated.has_value());
}

}  // namespace
}  // namespace windlass::planner
