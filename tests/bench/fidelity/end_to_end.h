// Compares the operator model with end-to-end measurements on H100. Nothing is fitted on them.
#pragma once

#include <string>
#include <vector>

#include "planner/perf/operator_model.h"
#include "tests/bench/fidelity/closed_loop.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {

// An engine's settings in the measurements, from its documentation and defaults. None of them is fitted.
struct EngineSetting {
  std::string name;
  planner::Batching batching = planner::Batching::kSarathi;
  int max_batch_tokens = 8192;
  int max_sequences = 256;
  int rounds = 1;  // requests = rounds x clients
  ClosedLoop load;
  planner::EngineOverhead overhead;
};

// CPU time of an iteration as measured by Vidur (CodeLlama-34B, A100): a least-squares line over the batch size.
struct CpuTime {
  double iteration_s = 0;
  double sequence_s = 0;
};
// Sum of the named operators ("cpu_schedule", ...). Error kNotFound: one of them has fewer than two batch sizes.
[[nodiscard]] Result<CpuTime> cpu_time(const std::vector<planner::VidurSample>& samples, const std::vector<std::string>& names);

// Fails for an unknown engine.
[[nodiscard]] Result<EngineSetting> engine_setting(const std::string& engine, const std::vector<planner::VidurSample>& vidur);

struct EndToEndPrediction {
  EndToEndRow row;
  ClosedLoopResult predicted;
};

struct EndToEndOptions {
  bool roofline_only = false;  // ignore the measured operators
  double stagger_s = -1;       // overrides the setting's value if >= 0
};

// One prediction per row, in the same order.
[[nodiscard]] Result<std::vector<EndToEndPrediction>> predict_end_to_end(const std::vector<EndToEndRow>& rows,
                                                                         const MeasuredGpu& h100,
                                                                         const std::vector<planner::VidurSample>& vidur,
                                                                         const EndToEndOptions& options = {});

}  // namespace windlass::bench
