// MixedIntegerProgram: a linear objective over bounded variables, some of them integer, under linear constraints; solve()
// minimises.
//
// Solved by COIN-OR Cbc through its C++ classes, which, unlike its C interface, print nothing and install no signal handlers.
// The search is limited by nodes, never by time, so that one program has one answer on every machine. Plain data; no state is
// kept between two solves. Cbc's tolerances hold: a constraint may be missed by 1e-7 of its coefficients' scale, so callers
// that need an inequality to hold exactly check it themselves on the (rounded) values.
#pragma once

#include <limits>
#include <span>
#include <vector>

#include "planner/base/result.h"

namespace windlass::mip {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Variable {
  double lower = 0;  // -kInfinity: none
  double upper = kInfinity;
  double objective = 0;  // its coefficient in what is minimised
  bool integer = false;

  bool operator==(const Variable&) const = default;
};

struct Term {
  int variable = 0;
  double coefficient = 0;

  bool operator==(const Term&) const = default;
};

// lower <= sum of terms <= upper; equal bounds make an equation. A variable may stand in several terms: they add up.
struct Constraint {
  std::vector<Term> terms;
  double lower = -kInfinity;
  double upper = kInfinity;

  bool operator==(const Constraint&) const = default;
};

class MixedIntegerProgram {
 public:
  // Returns the variable's number, counted from 0.
  int add_variable(const Variable& variable);

  void add_at_most(std::vector<Term> terms, double upper);
  void add_at_least(std::vector<Term> terms, double lower);
  void add_equal(std::vector<Term> terms, double value);
  void add_range(std::vector<Term> terms, double lower, double upper);

  [[nodiscard]] const std::vector<Variable>& variables() const { return variables_; }
  [[nodiscard]] const std::vector<Constraint>& constraints() const { return constraints_; }

 private:
  std::vector<Variable> variables_;
  std::vector<Constraint> constraints_;
};

enum class Status {
  kOptimal,
  kInfeasible,
  kUnbounded,
  kNodeLimit,  // values, if any, are the best found so far
};

const char* to_string(Status status);  // "optimal", "infeasible", "unbounded", "node limit"

struct Solution {
  Status status = Status::kInfeasible;
  std::vector<double> values;      // of every variable, integer ones exactly so; empty when none is known
  double objective = 0;            // of values; 0 when there are none
  double best_bound = -kInfinity;  // no solution is below it; equal to the objective (within 1e-9 of its size) when optimal
  long nodes = 0;                  // of branch and bound
  // Without integer variables: of each constraint, in order, by how much the objective rises with its bound. Else empty.
  std::vector<double> row_prices;
};

// Errors: kInvalidArgument for a number that is not one, a lower bound above its upper, an unknown variable or max_nodes < 1;
// kInternal when Cbc gives up on the numbers.
// `known`: a value for every variable with which all constraints hold, or nothing: the search starts from it and never returns
// a worse one. One that does not hold, by Cbc's tolerances, is ignored.
[[nodiscard]] Result<Solution> solve(const MixedIntegerProgram& program, long max_nodes = 1'000'000,
                                     std::span<const double> known = {});

}  // namespace windlass::mip
