// Measures a worker before it serves: the seconds of an iteration with prompts of two lengths, and with decode batches of two
// sizes. Capacity planning can then use the machine's real speed instead of its data sheet.
//
// Runs a temporary engine on the worker's backend. The serving engine's counters, prefixes and KV blocks are not affected.
#pragma once

#include <string>
#include <vector>

#include "metrics/engine_metrics.h"
#include "planner/base/result.h"
#include "worker/backend/backend.h"
#include "worker/engine/clock.h"
#include "worker/engine/engine.h"

namespace windlass::worker {

struct MeasureOptions {
  double budget_s = 2;  // for everything; a slow machine takes longer, because each kind of iteration runs at least once
  bool decode = true;   // false: measure only prefill
};

// Repeats an iteration while time allows and reports the median. Lengths and batches respect the options and the KV cache;
// cases that coincide are measured once. Decoding sequences use a KV cache filled with dummy data. Errors: those of the backend
// or the sampler. REQUIRES: options and backend as for an Engine; the backend has all blocks of the model and is not in use.
[[nodiscard]] Result<std::vector<metrics::MeasuredIteration>> measure_iterations(const EngineOptions& options, Backend& backend,
                                                                                 const Clock& clock,
                                                                                 const MeasureOptions& measure);

// For people: "prefill of 256 tokens 81.2 ms", "decode at batch 8 and context 271 20.4 ms".
[[nodiscard]] std::string to_text(const metrics::MeasuredIteration& iteration);

}  // namespace windlass::worker
