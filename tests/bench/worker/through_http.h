// What a worker adds to a model that takes no time at all: listener, JSON, tokenizer, scheduler, sampling, streams.
//
// A child process is the worker, with the very classes of windlass-worker and a model whose logits are already there; this one
// is its clients. Linux alone.
#pragma once

#include <cstdint>

#include "planner/base/result.h"

namespace windlass::worker {

// Of an iteration with all sequences, in seconds.
struct WorkerOverhead {
  double engine_cpu_s = 0;  // of the engine's thread, which is what delays the next iteration
  double all_cpu_s = 0;     // of all threads
};

// `sequences` streamed completions run beside each other, greedy, over a vocabulary of 512 tokens. Call it before any thread is
// started. Error: kInternal saying which stream was not whole, or what did not start.
[[nodiscard]] Result<WorkerOverhead> overhead_through_http(std::int64_t sequences);

}  // namespace windlass::worker
