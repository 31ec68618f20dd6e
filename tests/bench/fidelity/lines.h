// How good the lines are from which `windlass plan` and `simulate` start without a measurement (planner/perf/linear_model.h),
// by published end-to-end runs.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "tests/bench/fidelity/left_out.h"

namespace windlass::bench {

// Of these rows, by index in `all`. nullopt: the line of an engine without published runs.
[[nodiscard]] Result<std::vector<ClosedLoopResult>> predict_by_lines(const std::vector<EndToEndRow>& all,
                                                                     std::span<const std::size_t> rows,
                                                                     const std::optional<EngineCosts>& costs,
                                                                     Executor& executor);

// As leave_out() (left_out.h): costs are fitted by the operator model to the other rows. A left-out engine has none.
[[nodiscard]] Result<std::vector<LeftOut>> leave_out_of_lines(Predictions& predictions, const std::vector<std::size_t>& rows,
                                                              Executor& executor);

}  // namespace windlass::bench
