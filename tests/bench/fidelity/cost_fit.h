// Fits an engine's costs to end-to-end rows by coordinate descent over a grid: each cost in turn takes the value with the
// smallest loss, until none changes (at most four rounds). The loss is the sum over rows of 2 min(|ln TPOT ratio|, 0.3) +
// min(|ln TTFT ratio|, 0.7), which one row that was taken in another way cannot pull far, and 0.3 log2(cost / prior)^2 for each
// cost, because rows hardly show some of them. Deterministic.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "tests/bench/fidelity/end_to_end.h"

namespace windlass::bench {

// Which known causes a prediction leaves out, to say what each is worth.
using Change = void (*)(LoadRecipe& recipe, EngineCosts& costs);

// Predictions of the rows under many costs; each is simulated once.
class Predictions {
 public:
  // Borrows both.
  Predictions(EndToEnd& data, Executor& executor, Kernels kernels = Kernels::kMeasured, Change change = nullptr)
      : data_(data), executor_(executor), kernels_(kernels), change_(change) {}

  [[nodiscard]] Predictions with(Change change) const { return {data_, executor_, kernels_, change}; }
  [[nodiscard]] const std::vector<EndToEndRow>& rows() const { return data_.rows(); }
  // One for each of `rows`, by index in rows().
  [[nodiscard]] Result<std::vector<ClosedLoopResult>> of(std::span<const std::size_t> rows, const EngineCosts& costs);

 private:
  using Key = std::array<double, 7>;
  [[nodiscard]] static Key key_of(const EngineCosts& costs);

  EndToEnd& data_;
  Executor& executor_;
  Kernels kernels_;
  Change change_;
  std::map<std::pair<Key, std::size_t>, ClosedLoopResult> known_;
};

// REQUIRES: `rows` are of one engine.
[[nodiscard]] Result<EngineCosts> fit_costs(Predictions& predictions, std::span<const std::size_t> rows);

// For an engine that was not fitted: the means of others'.
[[nodiscard]] EngineCosts mean_of(std::span<const EngineCosts> all);

}  // namespace windlass::bench
