// Implements lines.h.
#include "tests/bench/fidelity/lines.h"

namespace windlass::bench {

Result<std::vector<ClosedLoopResult>> predict_by_lines(const std::vector<EndToEndRow>& all, std::span<const std::size_t> rows,
                                                       const std::optional<EngineCosts>& costs, Executor& executor) {
  std::vector<LoadRecipe> recipes;
  for (const std::size_t row : rows) {
    WINDLASS_ASSIGN_OR_RETURN(LoadRecipe recipe, recipe_of(all[row]));
    recipes.push_back(recipe);
  }
  WINDLASS_ASSIGN_OR_RETURN(const auto found, parallel_map<Result<ClosedLoopResult>>(executor, rows.size(), [&](std::size_t i) {
                              return predict_by_line(all[rows[i]], recipes[i], costs);
                            }));
  std::vector<ClosedLoopResult> results;
  for (const Result<ClosedLoopResult>& one : found) {
    if (!one.ok()) return one.error();
    results.push_back(*one);
  }
  return results;
}

Result<std::vector<LeftOut>> leave_out_of_lines(Predictions& predictions, const std::vector<std::size_t>& rows,
                                                Executor& executor) {
  using Costs = std::optional<EngineCosts>;
  const std::vector<EndToEndRow>& all = predictions.rows();
  return leave_out(all, rows, {"TP", "model", "GPU", "engine"}, [&](const auto& train, const auto& test) {
    return predict_left_out<Costs>(
        all, train, test,
        [&](std::span<const std::size_t> fitted) -> Result<Costs> {
          WINDLASS_ASSIGN_OR_RETURN(const EngineCosts costs, fit_costs(predictions, fitted));
          return Costs(costs);
        },
        [](const std::vector<Costs>&) { return Costs(); },
        [&](std::span<const std::size_t> of, const Costs& costs) -> Result<std::vector<LeftOutRow>> {
          WINDLASS_ASSIGN_OR_RETURN(const auto results, predict_by_lines(all, of, costs, executor));
          return left_out_rows(of, results);
        });
  });
}

}  // namespace windlass::bench
