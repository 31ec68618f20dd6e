// EngineOverhead: what an engine adds to its kernels. Pure.
#pragma once

#include <optional>

#include "planner/catalog/engine_type.h"
#include "planner/perf/iteration_model.h"

namespace windlass::planner {

// Time and memory that the engine adds to its kernels.
struct EngineOverhead {
  double iteration_s = 0;           // schedule, prepare inputs, sample, process outputs: the part not hidden behind the GPU
  double prefill_s = 0;             // the same, in addition for an iteration that has prompts
  double sequence_s = 0;            // CPU time per sequence
  double eager_layer_s = 0;         // CPU time to launch one layer: the minimum time of a layer without a CUDA graph
  double largest_graph_tokens = 0;  // batches with more tokens run without a CUDA graph
  bool overlaps = false;            // the CPU time per sequence passes while the GPU computes
  double memory_share = 0.9;        // fraction of a GPU's memory that the engine uses
  double reserved_bytes = 4e9;      // part of it: activations, communication buffers, CUDA context and graphs
};

// Time that the engine adds to an iteration whose layers' kernels take `kernels_s`.
[[nodiscard]] double engine_overhead_s(const EngineOverhead& overhead, int layers, const Batch& batch, double kernels_s);

// What an engine of this type adds on a GPU, as fitted to published runs (docs/algorithms/latency-end-to-end.md). nullopt: no
// run of this engine was published.
[[nodiscard]] std::optional<EngineOverhead> overhead_of(EngineType engine);

}  // namespace windlass::planner
