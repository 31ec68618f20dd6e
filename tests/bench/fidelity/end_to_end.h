// Predicts published end-to-end runs from measured operators, a recipe and the engine's costs.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/linear_model.h"
#include "planner/perf/operator_model.h"
#include "planner/perf/table_transfer.h"
#include "tests/bench/fidelity/closed_loop.h"
#include "tests/bench/fidelity/load_recipe.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {

// Where the times of a GPU's operators come from.
enum class Kernels {
  kMeasured,     // its own tables, without what contradicts H100's
  kAsPublished,  // its own tables; those with too many impossible rows are refused and priced by roofline
  kOtherGpu,     // H100's from H200's tables, H200's from H100's: as if it had not been measured
  kRoofline      // its data sheet
};

// The rows and what is needed to predict them. Building a model takes a tenth of a second; it is kept.
class EndToEnd {
 public:
  [[nodiscard]] static Result<EndToEnd> load(const std::string& data);

  [[nodiscard]] const std::vector<EndToEndRow>& rows() const { return rows_; }

  // The model of the row's worker, without the engine's costs; for predict(). Memory and type of the cache come from `recipe`.
  [[nodiscard]] Result<const planner::OperatorModel*> model_of(const EndToEndRow& row, const LoadRecipe& recipe,
                                                               Kernels kernels = Kernels::kMeasured);

  // What had to be replaced in H200's tables.
  [[nodiscard]] const std::vector<planner::Replaced>& replaced() const { return replaced_; }

 private:
  EndToEnd() = default;

  std::vector<EndToEndRow> rows_;
  std::map<std::string, planner::GpuTables> gpus_;  // by folder
  std::map<std::pair<std::string, Kernels>, planner::OperatorTimes> times_;
  std::map<std::tuple<std::string, Kernels, std::string, planner::GemmKind, int, int, bool, double, double>,
           planner::OperatorModel>
      models_;
  std::vector<planner::Replaced> replaced_;
};

[[nodiscard]] ClosedLoopResult predict(const EndToEndRow& row, const LoadRecipe& recipe, const EngineCosts& costs,
                                       const planner::OperatorModel& model);

// By the line from which `windlass plan` starts (planner/perf/linear_model.h): with the engine's costs; nullopt: the data sheet
// and fixed shares of it. It knows no front end and no FP8 cache.
[[nodiscard]] Result<ClosedLoopResult> predict_by_line(const EndToEndRow& row, const LoadRecipe& recipe,
                                                       const std::optional<EngineCosts>& costs);

// Whether a request of the row fits the model's memory.
[[nodiscard]] bool holds(const EndToEndRow& row, const LoadRecipe& recipe, const planner::OperatorModel& model);

[[nodiscard]] std::string short_model(const EndToEndRow& row);  // "Qwen3-32B"
// Rows with the same set were measured in the same way: "h100_sxm, vllm 0.12.0, Qwen3-32B, fp8".
[[nodiscard]] std::string set_of(const EndToEndRow& row);

// The time that a row's requests need at full FLOP/s for prompts and full bandwidth for weights and caches of decodes, one
// after the other, over the time they took. Beyond kSuspiciousShare, prompts were probably not computed but cached. Engines
// overlap the two, so that a share may pass 1.
[[nodiscard]] Result<double> speed_of_light_share(const EndToEndRow& row);
inline constexpr double kSuspiciousShare = 0.75;

}  // namespace windlass::bench
