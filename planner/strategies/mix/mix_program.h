// The linear and integer programs of a mix, and their dual bounds. Only for mix*.cc.
//
// Whether given workers can carry a model's requests is a linear program of that model alone, because models share only
// budgets. Its dual prices say what one more worker of each kind is worth. Any prices y >= 0 give a cut, which holds for all
// counts n:
//   unserved(n) >= sum_b rate_b min(1, min_k load_bk y_k) - sum_k y_k n_k
// So one program rules out many counts at once as too few. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "planner/mip/mixed_integer_program.h"
#include "planner/strategies/mix/mix.h"

namespace windlass::search {

inline constexpr int kPriorityClasses = 8;  // lower priorities share the last class

// The problem with the kinds of all models in one row.
struct MixColumns {
  struct Column {
    int model = 0;
    int kind = 0;
    int accelerator = 0;
    int gpus = 1;
    double price = 0;
  };
  explicit MixColumns(const MixProblem& of);

  const MixProblem* problem = nullptr;
  std::vector<Column> columns;
  std::vector<std::size_t> first;      // column of each model's first kind; and one past the last
  std::vector<double> rate;            // requests/s of each model
  std::vector<double> hopeless_per_s;  // by model: requests of buckets that no kind serves
  double all_per_s = 0;
  std::vector<int> ranks;  // by model: 0 has the highest priority
  int classes = 0;

  [[nodiscard]] double cost(const std::vector<int>& counts) const;
  [[nodiscard]] bool inside_budgets(const std::vector<int>& counts) const;
};

struct MixCut {
  double constant = 0;        // requests/s
  std::vector<double> price;  // y, by the model's kinds
};

// Lower bound of the requests that these counts leave unserved, and the cut that proves it.
struct MixUnserved {
  double per_s = 0;
  MixCut cut;
};
[[nodiscard]] Result<MixUnserved> unserved_by(const MixModel& model, const int* counts);

// The shares with which these workers carry the most requests.
[[nodiscard]] Result<MixShares> shares_of(const MixModel& model, const std::vector<int>& counts);

// The program in the header of mix.h, over all models. The first variables are counts, by column.
struct MixProgram {
  mip::MixedIntegerProgram program;
  std::vector<std::vector<mip::Term>> unserved;  // by class, in requests/s
};
enum class MixGoal { kCost, kUnserved };
// Counts may be integer. `max_unserved`: requests/s by class (empty: no limits). With kUnserved, the objective is class `of`.
[[nodiscard]] MixProgram mix_program(const MixColumns& columns, bool integer, MixGoal goal, int of,
                                     const std::vector<double>& max_unserved);

// Adds budgets over variables that begin with the counts.
void add_budgets(const MixColumns& columns, mip::MixedIntegerProgram& program);

// The mix of these counts, with shares and explanations; the caller sets the bounds.
[[nodiscard]] Result<Mix> mix_of(const MixColumns& columns, const std::vector<int>& counts);

}  // namespace windlass::search
