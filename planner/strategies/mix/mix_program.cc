// See mix_program.h.
#include "planner/strategies/mix/mix_program.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <limits>
#include <set>
#include <utility>

namespace windlass::search {
namespace {

constexpr double kRounding = 1e-9;  // tolerance of a budget
// Up to this many workers of a kind in total, it pays to add one row per bucket saying that a bucket needs at least one worker.
constexpr double kFewWorkers = 4;

bool serves(const MixBucket& bucket, std::size_t kind) { return std::isfinite(bucket.load_s[kind]); }
bool hopeless(const MixBucket& bucket) {
  return std::none_of(bucket.load_s.begin(), bucket.load_s.end(), [](double load) { return std::isfinite(load); });
}

// Variables and rows of one model's shares.
struct Shares {
  std::vector<std::vector<int>> share;  // variable by bucket and kind; -1: none
  std::vector<int> unserved;            // variable by bucket
};
Shares add_shares(const MixModel& model, mip::MixedIntegerProgram& program) {
  Shares shares;
  for (const MixBucket& bucket : model.buckets) {
    std::vector<int>& row = shares.share.emplace_back();
    std::vector<mip::Term> all;
    for (std::size_t k = 0; k < model.kinds.size(); ++k) {
      const bool can = bucket.requests_per_s > 0 && serves(bucket, k);
      row.push_back(can ? program.add_variable({0, 1, 0, false}) : -1);
      if (can) all.push_back({row.back(), 1});
    }
    shares.unserved.push_back(program.add_variable({0, 1, 0, false}));
    all.push_back({shares.unserved.back(), 1});
    program.add_equal(std::move(all), 1);
  }
  return shares;
}

std::vector<mip::Term> work_of(const MixModel& model, const Shares& shares, std::size_t kind) {
  std::vector<mip::Term> work;
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    if (shares.share[b][kind] < 0) continue;
    work.push_back({shares.share[b][kind], model.buckets[b].requests_per_s * model.buckets[b].load_s[kind]});
  }
  return work;
}

}  // namespace

MixColumns::MixColumns(const MixProblem& of) : problem(&of) {
  std::set<int, std::greater<>> priorities;
  for (const MixModel& model : of.models) priorities.insert(model.priority);
  for (std::size_t m = 0; m < of.models.size(); ++m) {
    const MixModel& model = of.models[m];
    first.push_back(columns.size());
    for (std::size_t k = 0; k < model.kinds.size(); ++k) {
      const MixKind& kind = model.kinds[k];
      columns.push_back({static_cast<int>(m), static_cast<int>(k), kind.accelerator, kind.gpus, kind.price_per_hour});
    }
    double all = 0, none = 0;
    for (const MixBucket& bucket : model.buckets) {
      all += bucket.requests_per_s;
      if (hopeless(bucket)) none += bucket.requests_per_s;
    }
    rate.push_back(all);
    hopeless_per_s.push_back(none);
    all_per_s += all;
    const auto above = std::distance(priorities.begin(), priorities.find(model.priority));
    ranks.push_back(std::min(kPriorityClasses - 1, static_cast<int>(above)));
    classes = std::max(classes, ranks.back() + 1);
  }
  first.push_back(columns.size());
}

double MixColumns::cost(const std::vector<int>& counts) const {
  double sum = 0;
  for (std::size_t c = 0; c < columns.size(); ++c) sum += counts[c] * columns[c].price;
  return sum;
}

bool MixColumns::inside_budgets(const std::vector<int>& counts) const {
  std::vector<double> gpus(problem->accelerators.size(), 0.0);
  double all = 0;
  for (std::size_t c = 0; c < columns.size(); ++c) {
    const double of = static_cast<double>(counts[c]) * columns[c].gpus;
    gpus[static_cast<std::size_t>(columns[c].accelerator)] += of;
    all += of;
  }
  for (std::size_t a = 0; a < gpus.size(); ++a) {
    if (gpus[a] > problem->accelerators[a].gpus) return false;
  }
  return all <= problem->max_gpus && cost(counts) <= problem->max_cost_per_hour * (1 + kRounding);
}

namespace {

// The program of one model's shares: the fewest unserved requests with given workers. The rows of the kinds' work come last, in
// order.
struct ServingProgram {
  mip::MixedIntegerProgram program;
  Shares shares;
};
ServingProgram serving_program(const MixModel& model, const int* counts) {
  mip::MixedIntegerProgram rows;
  ServingProgram made;
  made.shares = add_shares(model, rows);
  std::vector<double> worth(rows.variables().size(), 0.0);
  for (std::size_t b = 0; b < model.buckets.size(); ++b)
    worth[static_cast<std::size_t>(made.shares.unserved[b])] = model.buckets[b].requests_per_s;
  for (std::size_t v = 0; v < worth.size(); ++v) {
    mip::Variable variable = rows.variables()[v];
    variable.objective = worth[v];
    made.program.add_variable(variable);
  }
  for (const mip::Constraint& row : rows.constraints()) made.program.add_range(row.terms, row.lower, row.upper);
  for (std::size_t k = 0; k < model.kinds.size(); ++k) made.program.add_at_most(work_of(model, made.shares, k), counts[k]);
  return made;
}

}  // namespace

Result<MixUnserved> unserved_by(const MixModel& model, const int* counts) {
  const ServingProgram serving = serving_program(model, counts);
  WINDLASS_ASSIGN_OR_RETURN(const mip::Solution solution, mip::solve(serving.program));
  if (solution.values.empty()) return Error{ErrorCode::kInternal, "mix: the solver gave no answer for the shares"};
  const std::size_t kinds = model.kinds.size(), first = solution.row_prices.size() - kinds;
  MixUnserved found;
  // Any prices give a valid cut; it is computed exactly for these, whatever the program's tolerance.
  for (std::size_t k = 0; k < kinds; ++k) found.cut.price.push_back(std::max(0.0, -solution.row_prices[first + k]));
  for (const MixBucket& bucket : model.buckets) {
    double worth = 1;
    for (std::size_t k = 0; k < kinds; ++k) {
      if (serves(bucket, k)) worth = std::min(worth, bucket.load_s[k] * found.cut.price[k]);
    }
    found.cut.constant += bucket.requests_per_s * worth;
  }
  found.per_s = found.cut.constant;
  for (std::size_t k = 0; k < kinds; ++k) found.per_s -= found.cut.price[k] * counts[k];
  found.per_s = std::max(0.0, found.per_s);
  return found;
}

Result<MixShares> shares_of(const MixModel& model, const std::vector<int>& counts) {
  const ServingProgram serving = serving_program(model, counts.data());
  WINDLASS_ASSIGN_OR_RETURN(const mip::Solution solution, mip::solve(serving.program));
  if (solution.values.empty()) return Error{ErrorCode::kInternal, "mix: the solver gave no answer for the shares"};
  const Shares& shares = serving.shares;
  MixShares made;
  made.workers = counts;
  for (std::size_t b = 0; b < model.buckets.size(); ++b) {
    std::vector<double>& row = made.shares.emplace_back(model.kinds.size(), 0.0);
    for (std::size_t k = 0; k < model.kinds.size(); ++k) {
      if (shares.share[b][k] >= 0) row[k] = solution.values[static_cast<std::size_t>(shares.share[b][k])];
    }
    made.unserved_per_s += model.buckets[b].requests_per_s * solution.values[static_cast<std::size_t>(shares.unserved[b])];
  }
  return made;
}

void add_budgets(const MixColumns& columns, mip::MixedIntegerProgram& program) {
  const MixProblem& problem = *columns.problem;
  const auto over = [&](const auto& coefficient) {
    std::vector<mip::Term> terms;
    for (std::size_t c = 0; c < columns.columns.size(); ++c) {
      if (const double of = coefficient(columns.columns[c]); of != 0) terms.push_back({static_cast<int>(c), of});
    }
    return terms;
  };
  constexpr int kAny = std::numeric_limits<int>::max();
  for (std::size_t a = 0; a < problem.accelerators.size(); ++a) {
    if (problem.accelerators[a].gpus == kAny) continue;
    program.add_at_most(over([&](const MixColumns::Column& of) {
                          return of.accelerator == static_cast<int>(a) ? static_cast<double>(of.gpus) : 0.0;
                        }),
                        problem.accelerators[a].gpus);
  }
  if (problem.max_gpus != kAny) {
    program.add_at_most(over([](const MixColumns::Column& of) { return static_cast<double>(of.gpus); }), problem.max_gpus);
  }
  if (std::isfinite(problem.max_cost_per_hour)) {
    program.add_at_most(over([](const MixColumns::Column& of) { return of.price; }), problem.max_cost_per_hour);
  }
}

MixProgram mix_program(const MixColumns& columns, bool integer, MixGoal goal, int of, const std::vector<double>& max_unserved) {
  const MixProblem& problem = *columns.problem;
  MixProgram made;
  mip::MixedIntegerProgram rows;  // rows of the shares, before the objective is added
  // More workers of a kind than carry everything are never needed.
  std::vector<double> carrying;
  for (const MixColumns::Column& column : columns.columns) {
    const MixModel& model = problem.models[static_cast<std::size_t>(column.model)];
    double work = 0;
    for (const MixBucket& bucket : model.buckets) {
      const auto k = static_cast<std::size_t>(column.kind);
      if (serves(bucket, k)) work += bucket.requests_per_s * bucket.load_s[k];
    }
    carrying.push_back(work);
    rows.add_variable({0, std::ceil(work), goal == MixGoal::kCost ? column.price : 0.0, integer});
  }
  made.unserved.resize(static_cast<std::size_t>(columns.classes));
  for (std::size_t m = 0; m < problem.models.size(); ++m) {
    const MixModel& model = problem.models[m];
    const Shares shares = add_shares(model, rows);
    for (std::size_t k = 0; k < model.kinds.size(); ++k) {
      const std::size_t column = columns.first[m] + k;
      std::vector<mip::Term> work = work_of(model, shares, k);
      if (work.empty()) continue;
      work.push_back({static_cast<int>(column), -1});
      rows.add_at_most(std::move(work), 0);
      if (carrying[column] > kFewWorkers) continue;
      for (std::size_t b = 0; b < model.buckets.size(); ++b) {
        if (shares.share[b][k] >= 0) rows.add_at_most({{shares.share[b][k], 1}, {static_cast<int>(column), -1}}, 0);
      }
    }
    std::vector<mip::Term>& unserved = made.unserved[static_cast<std::size_t>(columns.ranks[m])];
    for (std::size_t b = 0; b < model.buckets.size(); ++b) {
      if (model.buckets[b].requests_per_s > 0) unserved.push_back({shares.unserved[b], model.buckets[b].requests_per_s});
    }
  }
  std::vector<double> worth(rows.variables().size(), 0.0);
  if (goal == MixGoal::kUnserved) {
    for (std::size_t c = 0; c < made.unserved.size(); ++c) {
      if (of >= 0 && static_cast<int>(c) != of) continue;
      for (const mip::Term& term : made.unserved[c]) worth[static_cast<std::size_t>(term.variable)] = term.coefficient;
    }
  }
  for (std::size_t v = 0; v < worth.size(); ++v) {
    mip::Variable variable = rows.variables()[v];
    variable.objective += worth[v];
    made.program.add_variable(variable);
  }
  for (const mip::Constraint& row : rows.constraints()) made.program.add_range(row.terms, row.lower, row.upper);
  for (std::size_t c = 0; c < std::min(max_unserved.size(), made.unserved.size()); ++c) {
    if (!made.unserved[c].empty()) made.program.add_at_most(made.unserved[c], max_unserved[c]);
  }
  add_budgets(columns, made.program);
  return made;
}

Result<Mix> mix_of(const MixColumns& columns, const std::vector<int>& counts) {
  Mix mix;
  mix.cost_per_hour = columns.cost(counts);
  for (std::size_t m = 0; m < columns.problem->models.size(); ++m) {
    const std::vector<int> own(counts.begin() + static_cast<std::ptrdiff_t>(columns.first[m]),
                               counts.begin() + static_cast<std::ptrdiff_t>(columns.first[m + 1]));
    WINDLASS_ASSIGN_OR_RETURN(MixShares shares, shares_of(columns.problem->models[m], own));
    if (shares.unserved_per_s <= kMixTolerance * columns.all_per_s) shares.unserved_per_s = 0;
    mix.unserved_per_s += shares.unserved_per_s;
    mix.models.push_back(std::move(shares));
  }
  return mix;
}

}  // namespace windlass::search
