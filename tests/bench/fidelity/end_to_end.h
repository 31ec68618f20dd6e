// The operator model against end-to-end measurements on H100, with nothing fitted on them.
#pragma once

#include <string>
#include <vector>

#include "planner/perf/operator_model.h"
#include "tests/bench/fidelity/closed_loop.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {

// An engine as the measurements ran it, as far as its documentation and defaults tell; none of it is fitted.
struct EngineSetting {
  std::string name;
  planner::Batching batching = planner::Batching::kSarathi;
  int max_batch_tokens = 8192;
  int max_sequences = 256;
  int rounds = 1;  // requests = rounds x clients
  ClosedLoop load;
  planner::EngineOverhead overhead;
};

// CPU time of an iteration as Vidur measured it (CodeLlama-34B, A100): a line over the batch by least squares.
struct CpuTime {
  double iteration_s = 0;
  double sequence_s = 0;
};
// Sum of the named operators ("cpu_schedule", ...). Error kNotFound: one has fewer than two batch sizes.
[[nodiscard]] Result<CpuTime> cpu_time(const std::vector<planner::VidurSample>& samples, const std::vector<std::string>& names);

// Error: an engine that is not known.
[[nodiscard]] Result<EngineSetting> engine_setting(const std::string& engine, const std::vector<planner::VidurSample>& vidur);

struct EndToEndPrediction {
  EndToEndRow row;
  ClosedLoopResult predicted;
};

struct EndToEndOptions {
  bool roofline_only = false;  // without the measured operators
  double stagger_s = -1;       // another than the setting's
};

// One prediction per row, in their order.
[[nodiscard]] Result<std::vector<EndToEndPrediction>> predict_end_to_end(const std::vector<EndToEndRow>& rows,
                                                                         const MeasuredGpu& h100,
                                                                         const std::vector<planner::VidurSample>& vidur,
                                                                         const EndToEndOptions& options = {});

}  // namespace windlass::bench
