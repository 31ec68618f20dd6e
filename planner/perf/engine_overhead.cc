// Implements engine_overhead.h.
#include "planner/perf/engine_overhead.h"

#include <algorithm>

namespace windlass::planner {

double engine_overhead_s(const EngineOverhead& overhead, int layers, const Batch& batch, double kernels_s) {
  const int sequences = batch.prefill_sequences + batch.decode_sequences;
  double least_s = 0;  // the kernels take at least this long, because the CPU must keep up
  if (batch.prefill_tokens + batch.decode_sequences > overhead.largest_graph_tokens) least_s = layers * overhead.eager_layer_s;
  double sum_s = overhead.iteration_s;
  (overhead.overlaps ? least_s : sum_s) += overhead.sequence_s * sequences;
  if (batch.prefill_sequences > 0) sum_s += overhead.prefill_s;
  return sum_s + std::max(0.0, least_s - kernels_s);
}

std::optional<EngineOverhead> overhead_of(EngineType engine) {
  switch (engine) {
    case EngineType::kVLLM:
      return EngineOverhead{
          .iteration_s = 2e-3, .prefill_s = 8e-3, .sequence_s = 20e-6, .eager_layer_s = 0.5e-3, .largest_graph_tokens = 512};
    case EngineType::kSGLang:
      return EngineOverhead{.iteration_s = 1.4e-3,
                            .prefill_s = 4e-3,
                            .sequence_s = 20e-6,
                            .eager_layer_s = 0.35e-3,
                            .largest_graph_tokens = 256,
                            .overlaps = true};
    case EngineType::kTensorRTLLM:
      return EngineOverhead{.iteration_s = 0.7e-3,
                            .prefill_s = 2e-3,
                            .sequence_s = 20e-6,
                            .eager_layer_s = 0.6e-3,
                            .largest_graph_tokens = 128,
                            .overlaps = true};
    case EngineType::kWindlass:
    case EngineType::kLlamaCpp: return std::nullopt;
  }
  return std::nullopt;
}

}  // namespace windlass::planner
