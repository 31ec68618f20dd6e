// MixedIntegerProgram: a linear objective and linear constraints over bounded variables, some of them integer; solve()
// minimises it.
//
// It uses the C++ classes of COIN-OR Cbc, which, unlike its C interface, print nothing and install no signal handlers. The
// search is limited by nodes and never by time, so that a program has the same answer on every machine. Plain data; solves
// share no state. Cbc's tolerances apply: a constraint may be violated by 1e-7 of the scale of its coefficients, so callers
// that need an exact inequality check it on the rounded values.
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
  double objective = 0;  // its coefficient in the objective
  bool integer = false;

  bool operator==(const Variable&) const = default;
};

struct Term {
  int variable = 0;
  double coefficient = 0;

  bool operator==(const Term&) const = default;
};

// lower <= sum of terms <= upper; equal bounds make an equation. Terms of the same variable add up.
struct Constraint {
  std::vector<Term> terms;
  double lower = -kInfinity;
  double upper = kInfinity;

  bool operator==(const Constraint&) const = default;
};

class MixedIntegerProgram {
 public:
  // Returns the index of the variable, from 0.
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
  std::vector<double> values;      // of every variable, integer ones exactly; empty if none is known
  double objective = 0;            // of `values`; 0 if there are none
  double best_bound = -kInfinity;  // lower bound on every solution; equals the objective (within 1e-9 of its size) if optimal
  long nodes = 0;                  // nodes of branch and bound
  // Without integer variables: how much the objective rises per unit of each constraint's bound, in order. Otherwise empty.
  std::vector<double> row_prices;
};

// Errors: kInvalidArgument for NaN, a lower bound above its upper bound, an unknown variable or max_nodes < 1; kInternal if Cbc
// fails numerically.
// `known`: a value for every variable that satisfies all constraints, or empty. The search starts from it and never returns
// anything worse. It is ignored if it violates a constraint by more than Cbc's tolerances.
[[nodiscard]] Result<Solution> solve(const MixedIntegerProgram& program, long max_nodes = 1'000'000,
                                     std::span<const double> known = {});

}  // namespace windlass::mip
