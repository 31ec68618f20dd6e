// Fits the coefficients of planner/catalog/efficiency.cc to measured operators.
//
// Levenberg-Marquardt on the logarithms of the coefficients, minimising soft-L1 losses of log(predicted / measured). Errors are
// relative, and the few outliers caused by a kernel's quirk count only linearly. Deterministic.
#pragma once

#include <string>
#include <vector>

#include "planner/catalog/efficiency.h"
#include "planner/perf/operator_times.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {

struct FittedEfficiency {
  std::string accelerator;
  planner::AcceleratorEfficiency efficiency;
};

[[nodiscard]] FittedEfficiency fit_efficiency(const MeasuredGpu& gpu);

// The lines between "windlass:fitted begin" and "end" of planner/catalog/efficiency.cc.
[[nodiscard]] std::string as_source(const std::vector<FittedEfficiency>& all);

// Rows whose times agree with their sizes. H200's context attention is published with the times of a sequence of length x 2 KV
// heads / heads, so a third of the rows exceed peak FLOP/s; rows with heads = 2 KV heads agree.
[[nodiscard]] std::vector<planner::AttentionRow> consistent_rows(const std::vector<planner::AttentionRow>& rows,
                                                                 planner::AttentionPhase phase,
                                                                 const planner::OperatorHardware& hardware);

}  // namespace windlass::bench
