// Tests LocalRegression against an exhaustive search with a general solver, and its guarantees: exact at points, planes
// preserved, no extreme values.
#include "planner/perf/local_regression.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include <Eigen/Dense>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

struct Cloud {
  int dimensions = 1;
  std::vector<double> points;
  std::vector<double> values;
  [[nodiscard]] std::vector<double> point(std::size_t i) const {
    const auto width = static_cast<std::size_t>(dimensions);
    return {points.begin() + static_cast<std::ptrdiff_t>(i * width),
            points.begin() + static_cast<std::ptrdiff_t>((i + 1) * width)};
  }
};

// `lattice`: near whole numbers, so that many points are almost equally far from a query.
Cloud random_cloud(Rng& rng, int max_points, bool lattice = false) {
  Cloud cloud;
  cloud.dimensions = static_cast<int>(rng.integer(1, 4));
  const std::int64_t count = rng.integer(1, max_points);
  for (std::int64_t i = 0; i < count; ++i) {
    for (int d = 0; d < cloud.dimensions; ++d) {
      const double x = rng.uniform(-5, 5);
      cloud.points.push_back(lattice ? std::round(x) + 1e-3 * x : x);
    }
    cloud.values.push_back(rng.uniform(-2, 2));
  }
  return cloud;
}

std::vector<double> random_query(Rng& rng, int dimensions, double reach) {
  std::vector<double> x;
  for (int d = 0; d < dimensions; ++d) x.push_back(rng.uniform(-reach, reach));
  return x;
}

// The definition, without a tree and with another solver.
double exhaustive(const Cloud& cloud, std::vector<double> x, const LocalRegression::Options& options) {
  const auto width = static_cast<std::size_t>(cloud.dimensions);
  for (std::size_t d = 0; d < width; ++d) {
    double low = cloud.points[d];
    double high = low;
    for (std::size_t i = 0; i < cloud.values.size(); ++i) {
      low = std::min(low, cloud.point(i)[d]);
      high = std::max(high, cloud.point(i)[d]);
    }
    x[d] = std::clamp(x[d], low, high);
  }
  std::vector<std::pair<double, std::size_t>> near;
  for (std::size_t i = 0; i < cloud.values.size(); ++i) {
    double squared = 0;
    for (std::size_t d = 0; d < width; ++d) squared += std::pow(cloud.point(i)[d] - x[d], 2);
    if (squared == 0) return cloud.values[i];
    near.emplace_back(squared, i);
  }
  std::sort(near.begin(), near.end());
  near.resize(std::min(near.size(), static_cast<std::size_t>(options.neighbours)));
  const double reach = std::sqrt(near.back().first) * 1.0001;
  const auto terms = static_cast<Eigen::Index>(width) + 1;
  Eigen::MatrixXd matrix = Eigen::MatrixXd::Zero(terms, terms);
  Eigen::VectorXd right = Eigen::VectorXd::Zero(terms);
  double weights = 0;
  double low = cloud.values[near.front().second];
  double high = low;
  for (const auto& [squared, i] : near) {
    const double weight = std::pow(1 - std::pow(std::sqrt(squared) / reach, 3), 3) + 1e-9;
    Eigen::VectorXd term(terms);
    term[0] = 1;
    for (std::size_t d = 0; d < width; ++d) term[static_cast<Eigen::Index>(d) + 1] = cloud.point(i)[d] - x[d];
    matrix += weight * term * term.transpose();
    right += weight * term * cloud.values[i];
    weights += weight;
    low = std::min(low, cloud.values[i]);
    high = std::max(high, cloud.values[i]);
  }
  for (Eigen::Index d = 1; d < terms; ++d) matrix(d, d) += options.ridge * weights;
  return std::clamp(matrix.fullPivLu().solve(right)[0], low - (high - low) / 2, high + (high - low) / 2);
}

// Given random clouds, some large, half of them near a lattice, and queries inside and outside their boxes: the same answer as
// the definition.
TEST(LocalRegression, AgreesWithExhaustiveSearch) {
  Rng rng(1, "exhaustive");
  for (int instance = 0; instance < effort(300, 3000); ++instance) {
    const Cloud cloud = random_cloud(rng, instance % 10 < 2 ? 2000 : 60, instance % 2 == 0);
    const LocalRegression::Options options{.neighbours = static_cast<int>(rng.integer(1, 14)),
                                           .ridge = rng.uniform(1e-4, 1e-1)};
    const LocalRegression regression(cloud.dimensions, cloud.points, cloud.values, options);
    const std::vector<double> x = random_query(rng, cloud.dimensions, 6);
    EXPECT_NEAR(regression.at(x), exhaustive(cloud, x, options), 1e-7) << "instance " << instance;
  }
}

// Given random clouds: at each of their points the value measured there, and the point is covered.
TEST(LocalRegression, IsExactAtPoints) {
  Rng rng(2, "exact");
  for (int instance = 0; instance < effort(50, 300); ++instance) {
    const Cloud cloud = random_cloud(rng, 200);
    const LocalRegression regression(cloud.dimensions, cloud.points, cloud.values);
    for (std::size_t i = 0; i < cloud.values.size(); ++i) {
      EXPECT_EQ(regression.at(cloud.point(i)), cloud.values[i]);
      EXPECT_TRUE(regression.covers(cloud.point(i)));
    }
  }
}

// Given points of a plane and almost no ridge: the plane, at queries inside.
TEST(LocalRegression, KeepsPlanes) {
  Rng rng(3, "planes");
  for (int instance = 0; instance < effort(50, 300); ++instance) {
    Cloud cloud;
    cloud.dimensions = static_cast<int>(rng.integer(1, 4));
    std::vector<double> slopes = random_query(rng, cloud.dimensions, 3);
    const auto plane = [&](const std::vector<double>& x) {
      double value = 1;
      for (std::size_t d = 0; d < x.size(); ++d) value += slopes[d] * x[d];
      return value;
    };
    for (int i = 0; i < 400; ++i) {
      const std::vector<double> x = random_query(rng, cloud.dimensions, 5);
      cloud.points.insert(cloud.points.end(), x.begin(), x.end());
      cloud.values.push_back(plane(x));
    }
    const LocalRegression regression(cloud.dimensions, cloud.points, cloud.values, {.neighbours = 14, .ridge = 1e-10});
    const std::vector<double> x = random_query(rng, cloud.dimensions, 3);
    EXPECT_NEAR(regression.at(x), plane(x), 1e-3);
  }
}

// Given three values at one point: their median. Given one point: its value everywhere. Beyond the box: the value at its edge.
TEST(LocalRegression, DegenerateClouds) {
  const LocalRegression median(1, {1, 1, 1, 2}, {10, 30, 11, 5});
  EXPECT_EQ(median.size(), 2u);
  EXPECT_EQ(median.at(std::vector<double>{1}), 11);
  const LocalRegression one(2, {3, 4}, {7});
  EXPECT_EQ(one.at(std::vector<double>{-100, 100}), 7);
  EXPECT_FALSE(one.covers(std::vector<double>{3, 5}));
  EXPECT_EQ(median.at(std::vector<double>{50}), 5);
}

}  // namespace
}  // namespace windlass::planner
