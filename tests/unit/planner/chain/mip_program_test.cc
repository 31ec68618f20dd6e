// Tests of the Cbc wrapper: known programs, every status, no output, repeatability, and tiny random programs against
// enumeration.
#include <cmath>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/mip/mixed_integer_program.h"
#include "tests/effort.h"

namespace windlass::mip {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// Items with the given values and weights, each taken or not.
MixedIntegerProgram knapsack(const std::vector<double>& values, const std::vector<double>& weights, double room) {
  MixedIntegerProgram program;
  std::vector<Term> weight;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const int item = program.add_variable({.lower = 0, .upper = 1, .objective = -values[i], .integer = true});
    weight.push_back({item, weights[i]});
  }
  program.add_at_most(std::move(weight), room);
  return program;
}

// Given a knapsack with values 60, 100, 120, weights 10, 20, 30 and room for 50; expects the second and third, worth 220.
TEST(MixedIntegerProgram, SolvesAKnapsack) {
  const auto solution = solve(knapsack({60, 100, 120}, {10, 20, 30}, 50));
  ASSERT_TRUE(solution.ok()) << solution.error().message;
  EXPECT_EQ(solution->status, Status::kOptimal);
  EXPECT_THAT(solution->values, ElementsAre(0, 1, 1));
  EXPECT_EQ(solution->objective, -220);
  EXPECT_EQ(solution->best_bound, -220);
}

// Given maximise 3x + 2y, x + y <= 4, x + 3y <= 6, x <= 3, continuous; expects x = 3, y = 1.
TEST(MixedIntegerProgram, SolvesALinearProgram) {
  MixedIntegerProgram program;
  const int x = program.add_variable({.lower = 0, .upper = 3, .objective = -3});
  const int y = program.add_variable({.objective = -2});
  program.add_at_most({{x, 1}, {y, 1}}, 4);
  program.add_at_most({{x, 1}, {y, 3}}, 6);
  const auto solution = solve(program);
  ASSERT_TRUE(solution.ok()) << solution.error().message;
  EXPECT_EQ(solution->status, Status::kOptimal);
  EXPECT_THAT(solution->values, ElementsAre(DoubleNear(3, 1e-9), DoubleNear(1, 1e-9)));
  EXPECT_NEAR(solution->objective, -11, 1e-9);
}

// Given x + y = 5, 1 <= x - y <= 2 and x >= 3.2; expects infeasible if x is an integer (x = 4 gives y = 1 and a difference of
// 3), otherwise x = 3.5 and y = 1.5.
TEST(MixedIntegerProgram, ObeysEquationsAndRanges) {
  for (const bool integer : {true, false}) {
    MixedIntegerProgram program;
    const int x = program.add_variable({.lower = 3.2, .objective = -1, .integer = integer});
    const int y = program.add_variable({.lower = 0});
    program.add_equal({{x, 1}, {y, 1}}, 5);
    program.add_range({{x, 1}, {y, -1}}, 1, 2);
    const auto solution = solve(program);
    ASSERT_TRUE(solution.ok()) << solution.error().message;
    if (integer) {
      EXPECT_EQ(solution->status, Status::kInfeasible);
      EXPECT_TRUE(solution->values.empty());
    } else {
      EXPECT_EQ(solution->status, Status::kOptimal);
      EXPECT_THAT(solution->values, ElementsAre(DoubleNear(3.5, 1e-7), DoubleNear(1.5, 1e-7)));
    }
  }
}

// Given a variable that appears twice; expects it to count twice: x + x <= 5 with integer x gives x = 2; x - x is no constraint
// on x.
TEST(MixedIntegerProgram, AddsUpTermsOfOneVariable) {
  MixedIntegerProgram program;
  const int x = program.add_variable({.lower = 0, .upper = 9, .objective = -1, .integer = true});
  program.add_range({{x, 1}, {x, -1}}, -1, 1);
  EXPECT_EQ(solve(program).value().objective, -9);
  program.add_at_most({{x, 1}, {x, 1}}, 5);
  EXPECT_EQ(solve(program).value().objective, -2);
}

// Given 2x = 1 with integer x, which only the relaxation solves; x <= -1 with x >= 0; and an integer in [0.2, 0.8]; expects
// infeasible.
TEST(MixedIntegerProgram, SaysInfeasible) {
  MixedIntegerProgram parity;
  const int x = parity.add_variable({.lower = -10, .upper = 10, .objective = 1, .integer = true});
  parity.add_equal({{x, 2}}, 1);
  EXPECT_EQ(solve(parity).value().status, Status::kInfeasible);

  MixedIntegerProgram negative;
  const int y = negative.add_variable({.lower = 0, .objective = 1});
  negative.add_at_most({{y, 1}}, -1);
  EXPECT_EQ(solve(negative).value().status, Status::kInfeasible);

  MixedIntegerProgram between;
  between.add_variable({.lower = 0.2, .upper = 0.8, .integer = true});
  EXPECT_EQ(solve(between).value().status, Status::kInfeasible);
}

// Given an objective -x without a bound; expects unbounded, integer or not. Given a second constraint that no integer
// satisfies; expects infeasible.
TEST(MixedIntegerProgram, SaysUnbounded) {
  for (const bool integer : {true, false}) {
    MixedIntegerProgram program;
    const int x = program.add_variable({.lower = 0, .objective = -1, .integer = integer});
    program.add_at_least({{x, 1}}, 3);
    EXPECT_EQ(solve(program).value().status, Status::kUnbounded);
    const int y = program.add_variable({.lower = 0, .upper = 4, .integer = true});
    program.add_equal({{y, 2}}, 3);
    EXPECT_EQ(solve(program).value().status, Status::kInfeasible);
  }
}

// Given no variable, and none in the objective; expects the empty program to be optimal at 0.
TEST(MixedIntegerProgram, SolvesEmptyPrograms) {
  EXPECT_EQ(solve(MixedIntegerProgram{}).value().status, Status::kOptimal);
  MixedIntegerProgram program;
  program.add_variable({.lower = 2, .upper = 5, .integer = true});
  const auto solution = solve(program);
  EXPECT_EQ(solution.value().status, Status::kOptimal);
  EXPECT_EQ(solution.value().objective, 0);
}

// Given a similar knapsack with a limit of one node and a start; expects nothing worse than the start. Given an infeasible
// start; expects it to be ignored. Given too few values; expects an error.
TEST(MixedIntegerProgram, StartsFromKnownValues) {
  Rng rng(3, "knapsack");
  MixedIntegerProgram program;
  std::vector<Term> weights;
  for (int i = 0; i < 40; ++i) {
    const double weight = static_cast<double>(rng.integer(1000, 2000));
    weights.push_back({program.add_variable({.lower = 0, .upper = 1, .objective = -weight, .integer = true}), weight});
  }
  program.add_at_most(weights, 19'003);
  const auto best = solve(program, 20'000);
  ASSERT_TRUE(best.ok() && !best->values.empty());
  const auto again = solve(program, 1, best->values);
  ASSERT_TRUE(again.ok() && !again->values.empty());
  EXPECT_LE(again->objective, best->objective);
  const std::vector<double> too_heavy(40, 1);
  const auto ignored = solve(program, 100, too_heavy);
  ASSERT_TRUE(ignored.ok());
  EXPECT_GE(ignored->objective, -19'003);
  EXPECT_FALSE(solve(program, 1, std::vector<double>(3, 0.0)).ok());
}

// Given a hard knapsack similar to subset sum, with a limit of one node; expects no proof, a bound not above the optimum, and
// feasible values if any. Without the limit; expects the optimum, not below the bound.
TEST(MixedIntegerProgram, StopsAtTheNodeLimit) {
  Rng rng(3, "knapsack");
  MixedIntegerProgram program;
  std::vector<Term> one, two;
  for (int i = 0; i < 40; ++i) {
    const double weight = static_cast<double>(rng.integer(1000, 2000));
    const int x = program.add_variable({.lower = 0, .upper = 1, .objective = -weight - 7, .integer = true});
    one.push_back({x, weight});
    two.push_back({x, static_cast<double>(rng.integer(1000, 2000))});
  }
  program.add_at_most(one, 19'003);
  program.add_at_most(two, 19'007);
  const auto limited = solve(program, 1);
  ASSERT_TRUE(limited.ok()) << limited.error().message;
  ASSERT_EQ(limited->status, Status::kNodeLimit);
  double weight = 0;
  for (std::size_t i = 0; i < limited->values.size(); ++i) weight += limited->values[i] * one[i].coefficient;
  EXPECT_LE(weight, 19'003);
  EXPECT_LE(limited->best_bound, limited->objective);
  const auto more = solve(program, 2000);
  ASSERT_TRUE(more.ok());
  EXPECT_LE(more->objective, limited->objective);
  EXPECT_GE(more->objective, limited->best_bound - 1e-6);
}

// Given invalid programs; expects errors that name what is wrong.
TEST(MixedIntegerProgram, RejectsBadNumbers) {
  const double nan = std::nan("");
  MixedIntegerProgram program;
  const int x = program.add_variable({.lower = 0, .upper = 1});
  auto with = [&](auto change) {
    MixedIntegerProgram copy = program;
    change(copy);
    const auto solution = solve(copy);
    EXPECT_FALSE(solution.ok());
    return solution.ok() ? std::string() : solution.error().message;
  };
  EXPECT_THAT(with([](auto& p) { p.add_variable({.lower = 2, .upper = 1}); }),
              HasSubstr("variable 1: bounds: must be numbers in rising order (got [2, 1])"));
  EXPECT_THAT(with([&](auto& p) { p.add_variable({.lower = nan}); }), HasSubstr("variable 1: bounds"));
  EXPECT_THAT(with([&](auto& p) { p.add_variable({.objective = nan}); }),
              HasSubstr("variable 1: objective: must be a finite number (got nan)"));
  EXPECT_THAT(with([](auto& p) {
                p.add_at_most({{1, 1}}, 0);
              }),
              HasSubstr("constraint 0: variable: must be from 0 to 0 (got 1)"));
  EXPECT_THAT(with([&](auto& p) {
                p.add_at_most({{x, kInfinity}}, 0);
              }),
              HasSubstr("constraint 0: coefficient: must be a finite number (got inf)"));
  EXPECT_THAT(with([&](auto& p) {
                p.add_range({{x, 1}}, 2, 1);
              }),
              HasSubstr("constraint 0: bounds: must be numbers in rising order (got [2, 1])"));
  EXPECT_FALSE(solve(program, 0).ok());
}

// Given any status; expects no output on standard output or standard error.
TEST(MixedIntegerProgram, PrintsNothing) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  const auto optimal = solve(knapsack({6, 5, 4, 3, 7, 8}, {3, 2, 2, 1, 4, 5}, 9));
  MixedIntegerProgram parity;
  parity.add_equal({{parity.add_variable({.lower = 0, .upper = 9, .integer = true}), 2}}, 1);
  const auto infeasible = solve(parity);
  MixedIntegerProgram free;
  free.add_variable({.objective = -1});
  const auto unbounded = solve(free);
  std::fflush(nullptr);
  const std::string out = testing::internal::GetCapturedStdout();
  const std::string err = testing::internal::GetCapturedStderr();
  EXPECT_EQ(out, "");
  EXPECT_EQ(err, "");
  EXPECT_EQ(optimal.value().status, Status::kOptimal);
  EXPECT_EQ(infeasible.value().status, Status::kInfeasible);
  EXPECT_EQ(unbounded.value().status, Status::kUnbounded);
}

struct RandomProgram {
  MixedIntegerProgram program;
  std::vector<std::pair<int, int>> bounds;  // of the integers
};

// Up to four integers in small ranges under up to four constraints with small whole coefficients.
RandomProgram random_program(Rng& rng) {
  RandomProgram random;
  const int variables = static_cast<int>(rng.integer(1, 4));
  for (int i = 0; i < variables; ++i) {
    const int lower = static_cast<int>(rng.integer(-3, 2));
    const int upper = lower + static_cast<int>(rng.integer(0, 5));
    random.bounds.push_back({lower, upper});
    random.program.add_variable({.lower = static_cast<double>(lower),
                                 .upper = static_cast<double>(upper),
                                 .objective = static_cast<double>(rng.integer(-9, 9)) / 4,
                                 .integer = true});
  }
  const auto constraints = rng.integer(0, 4);
  for (int c = 0; c < constraints; ++c) {
    std::vector<Term> terms;
    for (int i = 0; i < variables; ++i) {
      if (rng.uniform() < 0.8) terms.push_back({i, static_cast<double>(rng.integer(-5, 5))});
    }
    const auto right = static_cast<double>(rng.integer(-8, 12));
    switch (rng.integer(0, 3)) {
      case 0: random.program.add_at_most(std::move(terms), right); break;
      case 1: random.program.add_at_least(std::move(terms), right); break;
      case 2: random.program.add_equal(std::move(terms), right / 2); break;
      default: random.program.add_range(std::move(terms), right - static_cast<double>(rng.integer(0, 6)), right);
    }
  }
  return random;
}

bool meets(const MixedIntegerProgram& program, const std::vector<double>& values) {
  for (const Constraint& constraint : program.constraints()) {
    double sum = 0;
    for (const Term& term : constraint.terms) sum += term.coefficient * values[static_cast<std::size_t>(term.variable)];
    if (sum < constraint.lower || sum > constraint.upper) return false;
  }
  return true;
}

std::optional<double> best_by_enumeration(const RandomProgram& random) {
  std::optional<double> best;
  std::vector<double> values(random.bounds.size());
  const auto next = [&](const auto& self, std::size_t i) -> void {
    if (i == values.size()) {
      if (!meets(random.program, values)) return;
      double objective = 0;
      for (std::size_t v = 0; v < values.size(); ++v) objective += random.program.variables()[v].objective * values[v];
      if (!best || objective < *best) best = objective;
      return;
    }
    for (int value = random.bounds[i].first; value <= random.bounds[i].second; ++value) {
      values[i] = value;
      self(self, i + 1);
    }
  };
  next(next, 0);
  return best;
}

// Given tiny random programs; expects the status and optimum of an enumeration, and values that satisfy every constraint
// exactly.
TEST(MixedIntegerProgram, AgreesWithEnumeration) {
  int feasible = 0;
  for (std::uint64_t seed = 0; seed < effort(500U, 5000U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "program");
    const RandomProgram random = random_program(rng);
    const auto best = best_by_enumeration(random);
    const auto solution = solve(random.program);
    ASSERT_TRUE(solution.ok()) << solution.error().message;
    ASSERT_EQ(solution->status, best ? Status::kOptimal : Status::kInfeasible);
    if (!best) continue;
    ++feasible;
    ASSERT_DOUBLE_EQ(solution->objective, *best);
    ASSERT_TRUE(meets(random.program, solution->values));
  }
  EXPECT_GT(feasible, effort(100, 1500));
}

// Given a program solved twice, with another one in between; expects the same values, bit for bit.
TEST(MixedIntegerProgram, RepeatsItself) {
  Rng rng(11, "repeat");
  for (int i = 0; i < 50; ++i) {
    std::vector<double> values, weights;
    for (int item = 0; item < 15; ++item) {
      values.push_back(rng.uniform(1, 2));
      weights.push_back(rng.uniform(1, 2));
    }
    const MixedIntegerProgram program = knapsack(values, weights, 11);
    const auto once = solve(program);
    ASSERT_TRUE(solve(knapsack(weights, values, 9)).ok());
    const auto again = solve(program);
    ASSERT_EQ(once.value().values, again.value().values);
    ASSERT_EQ(once.value().nodes, again.value().nodes);
  }
}

}  // namespace
}  // namespace windlass::mip
