// The programs of a mix, and what they say: for mix*.cc alone.
//
// Whether counts of workers carry a model's requests is a linear program of its own model: models share nothing but budgets.
// Its row prices say what a worker more of each kind is worth; any prices y >= 0 give
//   unserved(n) >= sum_b rate_b min(1, min_k load_bk y_k) - sum_k y_k n_k
// for all counts n: a cut. One program so tells of many counts that they are too few. Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "planner/mip/mixed_integer_program.h"
#include "planner/strategies/mix/mix.h"

namespace windlass::search {

inline constexpr int kPriorityClasses = 8;  // those below share the last

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
  std::vector<double> hopeless_per_s;  // of each model: of buckets that no kind serves
  double all_per_s = 0;
  std::vector<int> ranks;  // of each model: 0 has the highest priority
  int classes = 0;

  [[nodiscard]] double cost(const std::vector<int>& counts) const;
  [[nodiscard]] bool inside_budgets(const std::vector<int>& counts) const;
};

struct MixCut {
  double constant = 0;        // requests/s
  std::vector<double> price;  // y, by kind of the model
};

// What these counts of the model's kinds leave unserved at least, and the cut that says so.
struct MixUnserved {
  double per_s = 0;
  MixCut cut;
};
[[nodiscard]] Result<MixUnserved> unserved_by(const MixModel& model, const int* counts);

// The shares in which counts of workers carry the most requests.
[[nodiscard]] Result<MixShares> shares_of(const MixModel& model, const std::vector<int>& counts);

// The program of the header of mix.h over all models. Counts are the first variables, by column.
struct MixProgram {
  mip::MixedIntegerProgram program;
  std::vector<std::vector<mip::Term>> unserved;  // of each class, in requests/s
};
enum class MixGoal { kCost, kUnserved };
// Counts integer or not; `most_unserved`: of each class, requests/s (none: of none). With kUnserved class `of` is what counts.
[[nodiscard]] MixProgram mix_program(const MixColumns& columns, bool integer, MixGoal goal, int of,
                                     const std::vector<double>& most_unserved);

// Budgets over variables that begin with the counts.
void add_budgets(const MixColumns& columns, mip::MixedIntegerProgram& program);

// Figures, shares and words of these counts; bounds are left to the caller.
[[nodiscard]] Result<Mix> mix_of(const MixColumns& columns, const std::vector<int>& counts);

}  // namespace windlass::search
