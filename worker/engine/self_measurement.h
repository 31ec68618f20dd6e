// What a worker measures of itself before it serves: the seconds of one iteration over a prompt of two lengths, and over two
// batches of decoding sequences. Whoever sizes a service can then believe the machine, not its data sheet.
//
// An engine of its own runs on the worker's backend and is gone afterwards: no counter, prefix or block of the KV cache that
// the serving engine has knows of it.
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
  double budget_s = 2;  // for all of it; a slow machine takes longer, since each kind of iteration runs at least once
  bool decode = true;   // false: only prefill
};

// Where there is time an iteration is repeated, and its figure is the median. Lengths and batches keep to what
// options and KV cache allow; two that would be the same are measured once. Decoding sequences have a KV cache that is filled,
// not computed. Error: of the backend or the sampler. REQUIRES: options and backend as for an Engine; the backend has all
// blocks of the model and nobody else uses it.
[[nodiscard]] Result<std::vector<metrics::MeasuredIteration>> measure_iterations(const EngineOptions& options, Backend& backend,
                                                                                 const Clock& clock,
                                                                                 const MeasureOptions& measure);

// For a person: "prefill of 256 tokens 81.2 ms", "decode at batch 8 and context 271 20.4 ms".
[[nodiscard]] std::string to_text(const metrics::MeasuredIteration& iteration);

}  // namespace windlass::worker
