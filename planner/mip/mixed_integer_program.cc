// Solves mixed integer programs with Cbc; see mixed_integer_program.h.
#include "planner/mip/mixed_integer_program.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include <coin/CbcHeuristic.hpp>
#include <coin/CbcModel.hpp>
#include <coin/CglGomory.hpp>
#include <coin/CglKnapsackCover.hpp>
#include <coin/CglMixedIntegerRounding2.hpp>
#include <coin/CglProbing.hpp>
#include <coin/CoinError.hpp>
#include <coin/CoinPackedMatrix.hpp>
#include <coin/OsiClpSolverInterface.hpp>
#include <fmt/format.h>

namespace windlass::mip {
namespace {

constexpr double kInt = std::numeric_limits<int>::max();

Error invalid(std::string message) { return Error{ErrorCode::kInvalidArgument, std::move(message)}; }

std::optional<Error> check(const MixedIntegerProgram& program) {
  const auto bad_bounds = [](double lower, double upper) {
    return std::isnan(lower) || std::isnan(upper) || lower > upper || lower == kInfinity || upper == -kInfinity;
  };
  const std::size_t variables = program.variables().size();
  for (std::size_t i = 0; i < variables; ++i) {
    const Variable& v = program.variables()[i];
    if (bad_bounds(v.lower, v.upper)) {
      return invalid(fmt::format("variable {}: bounds: must be numbers in rising order (got [{}, {}])", i, v.lower, v.upper));
    }
    if (!std::isfinite(v.objective)) {
      return invalid(fmt::format("variable {}: objective: must be a finite number (got {})", i, v.objective));
    }
  }
  for (std::size_t i = 0; i < program.constraints().size(); ++i) {
    const Constraint& c = program.constraints()[i];
    if (bad_bounds(c.lower, c.upper)) {
      return invalid(fmt::format("constraint {}: bounds: must be numbers in rising order (got [{}, {}])", i, c.lower, c.upper));
    }
    for (const Term& term : c.terms) {
      if (term.variable < 0 || term.variable >= static_cast<long>(variables)) {
        return invalid(fmt::format("constraint {}: variable: must be from 0 to {} (got {})", i,
                                   static_cast<long>(variables) - 1, term.variable));
      }
      if (!std::isfinite(term.coefficient)) {
        return invalid(fmt::format("constraint {}: coefficient: must be a finite number (got {})", i, term.coefficient));
      }
    }
  }
  return std::nullopt;
}

// Loads the program into Cbc's linear solver, without output. with_objective false omits the objective.
void load(const MixedIntegerProgram& program, bool with_objective, OsiClpSolverInterface& lp) {
  lp.messageHandler()->setLogLevel(0);
  lp.getModelPtr()->setLogLevel(0);
  // CoinUtils 2.11 leaks memory in one presolve action (implied_free_action), and programs of this size gain nothing from
  // presolve.
  lp.setHintParam(OsiDoPresolveInInitial, false, OsiHintDo);
  lp.setHintParam(OsiDoPresolveInResolve, false, OsiHintDo);
  const int columns = static_cast<int>(program.variables().size());
  const int rows = static_cast<int>(program.constraints().size());
  const auto bound = [](double value) { return std::isinf(value) ? std::copysign(COIN_DBL_MAX, value) : value; };

  std::vector<double> lower, upper, objective;
  for (const Variable& v : program.variables()) {
    lower.push_back(bound(v.integer ? std::ceil(v.lower) : v.lower));
    upper.push_back(bound(v.integer ? std::floor(v.upper) : v.upper));
    objective.push_back(with_objective ? v.objective : 0);
  }
  std::vector<double> row_lower, row_upper, coefficients, sums(program.variables().size());
  std::vector<int> variables;
  std::vector<CoinBigIndex> starts{0};
  for (const Constraint& c : program.constraints()) {
    row_lower.push_back(bound(c.lower));
    row_upper.push_back(bound(c.upper));
    for (const Term& term : c.terms) sums[static_cast<std::size_t>(term.variable)] += term.coefficient;
    for (const Term& term : c.terms) {
      double& sum = sums[static_cast<std::size_t>(term.variable)];
      if (sum == 0) continue;  // cancelled out, or already written
      variables.push_back(term.variable);
      coefficients.push_back(sum);
      sum = 0;
    }
    starts.push_back(static_cast<CoinBigIndex>(variables.size()));
  }
  CoinPackedMatrix matrix(false, columns, rows, static_cast<CoinBigIndex>(variables.size()), coefficients.data(),
                          variables.data(), starts.data(), nullptr);
  lp.loadProblem(matrix, lower.data(), upper.data(), objective.data(), row_lower.data(), row_upper.data());
  for (int i = 0; i < columns; ++i) {
    if (program.variables()[static_cast<std::size_t>(i)].integer) lp.setInteger(i);
  }
}

void add_cuts_and_heuristics(CbcModel& model) {
  CglProbing probing;
  probing.setUsingObjective(1);
  probing.setMaxPass(1);
  probing.setMaxProbe(10);
  probing.setMaxLook(10);
  probing.setRowCuts(3);
  CglGomory gomory;
  CglKnapsackCover cover;
  CglMixedIntegerRounding2 rounding;
  model.addCutGenerator(&probing, -1, "probing");
  model.addCutGenerator(&gomory, -1, "gomory");
  model.addCutGenerator(&cover, -1, "cover");
  model.addCutGenerator(&rounding, -1, "rounding");
  CbcRounding heuristic(model);
  model.addHeuristic(&heuristic);
}

void take(const MixedIntegerProgram& program, const double* values, Solution& solution) {
  for (std::size_t i = 0; i < program.variables().size(); ++i) {
    const Variable& v = program.variables()[i];
    solution.values.push_back(v.integer ? std::round(values[i]) : std::clamp(values[i], v.lower, v.upper));
    solution.objective += v.objective * solution.values.back();
  }
}

// `lp`: the program with its relaxation solved.
Result<Solution> branch_and_bound(const MixedIntegerProgram& program, const OsiClpSolverInterface& lp, long max_nodes,
                                  std::span<const double> known) {
  CbcModel model(lp);
  model.setLogLevel(0);
  model.messageHandler()->setLogLevel(0);
  model.solver()->messageHandler()->setLogLevel(0);
  model.solver()->setHintParam(OsiDoReducePrint, true, OsiHintDo);
  model.setMaximumNodes(static_cast<int>(std::min<double>(static_cast<double>(max_nodes), kInt)));
  // Cbc's default step between two solutions is 1e-5; it would accept a solution slightly worse than the best.
  model.setDblParam(CbcModel::CbcCutoffIncrement, 1e-9);
  model.setAllowableGap(1e-10);
  model.setAllowableFractionGap(0);
  add_cuts_and_heuristics(model);
  if (!known.empty()) {
    double objective = 0;
    for (std::size_t i = 0; i < known.size(); ++i) objective += program.variables()[i].objective * known[i];
    model.setBestSolution(known.data(), static_cast<int>(known.size()), objective, true);
  }
  model.branchAndBound();
  Solution solution;
  solution.nodes = model.getNodeCount();
  if (model.isAbandoned()) {
    return Error{ErrorCode::kInternal, "Cbc: failed numerically; coefficients must be of a similar size"};
  }
  const bool finished = model.status() == 0;
  if (const double* best = model.bestSolution()) take(program, best, solution);
  solution.status = !finished ? Status::kNodeLimit : solution.values.empty() ? Status::kInfeasible : Status::kOptimal;
  solution.best_bound = solution.status == Status::kOptimal ? solution.objective : model.getBestPossibleObjValue();
  return solution;
}

Result<Solution> solve_with_cbc(const MixedIntegerProgram& program, bool with_objective, long max_nodes,
                                std::span<const double> known) {
  OsiClpSolverInterface lp;
  load(program, with_objective, lp);
  lp.initialSolve();
  Solution solution;
  if (lp.isProvenPrimalInfeasible()) return solution;
  if (lp.isProvenDualInfeasible()) {
    // With rational numbers, a program with an unbounded relaxation is unbounded, unless it has no integer point at all.
    solution.status = Status::kUnbounded;
    if (!with_objective) return solution;
    WINDLASS_ASSIGN_OR_RETURN(Solution point, solve_with_cbc(program, false, max_nodes, known));
    if (point.status == Status::kInfeasible || point.status == Status::kNodeLimit) {
      solution.status = point.status;
      solution.nodes = point.nodes;
    }
    return solution;
  }
  if (!lp.isProvenOptimal()) {
    return Error{ErrorCode::kInternal, "Cbc: cannot solve the linear relaxation; it must be within double precision"};
  }

  const bool any_integer =
      std::any_of(program.variables().begin(), program.variables().end(), [](const Variable& v) { return v.integer; });
  if (any_integer) return branch_and_bound(program, lp, max_nodes, known);
  solution.status = Status::kOptimal;
  take(program, lp.getColSolution(), solution);
  solution.best_bound = solution.objective;
  solution.row_prices.assign(lp.getRowPrice(), lp.getRowPrice() + program.constraints().size());
  return solution;
}

}  // namespace

int MixedIntegerProgram::add_variable(const Variable& variable) {
  variables_.push_back(variable);
  return static_cast<int>(variables_.size()) - 1;
}

void MixedIntegerProgram::add_at_most(std::vector<Term> terms, double upper) { add_range(std::move(terms), -kInfinity, upper); }
void MixedIntegerProgram::add_at_least(std::vector<Term> terms, double lower) { add_range(std::move(terms), lower, kInfinity); }
void MixedIntegerProgram::add_equal(std::vector<Term> terms, double value) { add_range(std::move(terms), value, value); }
void MixedIntegerProgram::add_range(std::vector<Term> terms, double lower, double upper) {
  constraints_.push_back(Constraint{std::move(terms), lower, upper});
}

const char* to_string(Status status) {
  switch (status) {
    case Status::kOptimal: return "optimal";
    case Status::kInfeasible: return "infeasible";
    case Status::kUnbounded: return "unbounded";
    case Status::kNodeLimit: return "node limit";
  }
  return "unknown";
}

Result<Solution> solve(const MixedIntegerProgram& program, long max_nodes, std::span<const double> known) {
  if (auto error = check(program)) return *error;
  if (!known.empty() && known.size() != program.variables().size()) {
    return invalid(
        fmt::format("known values: must be one per variable, {} (got {})", program.variables().size(), known.size()));
  }
  if (max_nodes < 1) return invalid(fmt::format("max_nodes: must be at least 1 (got {})", max_nodes));
  // No integer lies between the bounds. Cbc would report the crossed bounds as an error of ours.
  for (const Variable& v : program.variables()) {
    if (v.integer && std::ceil(v.lower) > std::floor(v.upper)) return Solution{};
  }
  try {
    return solve_with_cbc(program, true, max_nodes, known);
  } catch (const CoinError& error) {
    return Error{ErrorCode::kInternal, fmt::format("Cbc: {}", error.message())};
  }
}

}  // namespace windlass::mip
