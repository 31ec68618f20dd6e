// Measures the time that a worker adds to a model: listener, JSON, tokenizer, scheduler, sampling, streams.
//
// A child process is the worker. It uses the same classes as windlass-worker and a model that waits for some milliseconds, like
// a GPU, and whose logits are precomputed. This process is its clients. Linux only.
#pragma once

#include <cstdint>

#include "planner/base/result.h"

namespace windlass::worker {

// Of an iteration with all sequences, in seconds.
struct WorkerOverhead {
  double engine_cpu_s = 0;  // of the engine's thread, which delays the next iteration
  double all_cpu_s = 0;     // of all threads
};

// Runs `sequences` concurrent streamed completions, greedy, over a vocabulary of 512 tokens. Call this before starting any
// thread. Error: kInternal, naming the stream that was incomplete or the part that did not start.
[[nodiscard]] Result<WorkerOverhead> overhead_through_http(std::int64_t sequences);

}  // namespace windlass::worker
