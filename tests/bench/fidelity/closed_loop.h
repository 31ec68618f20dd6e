// A closed loop of clients on one engine behind a serving front end: each client sends its next request when its last one is
// answered.
//
// The end-to-end measurements of ../shared/data/measured were taken this way. The simulator's Engine forms the batches; an
// IterationModel gives their times.
#pragma once

#include <cstdint>

#include "planner/perf/iteration_model.h"
#include "planner/sim/simulated_engine.h"

namespace windlass::bench {

struct ClosedLoop {
  int clients = 1;
  int requests = 1;  // in total; all clients send their first one at once
  int input_tokens = 1;
  int output_tokens = 2;
  double output_jitter = 0;  // answers differ from output_tokens by at most this share, uniformly; 0: all stay in step
  // From an answer's last token until the client sends its next request: uniform between 0 and twice this.
  double turnaround_s = 0;
  std::uint64_t seed = 1;  // of jitter and turnaround
  // The front end (HTTP, template, tokeniser, stream of events) handles one message at a time, in order of arrival.
  double request_s = 0;  // of its time for each request
  double token_s = 0;    // and for each token; clients see an iteration's tokens when the last one is sent
};

struct ClosedLoopResult {
  bool fits = true;  // a single request fits the KV cache
  double mean_ttft_s = 0;
  double mean_tpot_s = 0;
  double iterations = 0;
};

[[nodiscard]] int longest_answer(const ClosedLoop& load);  // tokens
// REQUIRES: clients, requests, input_tokens >= 1, output_tokens >= 2, 0 <= output_jitter < 1.
[[nodiscard]] ClosedLoopResult run_closed_loop(const ClosedLoop& load, const planner::EngineSettings& options,
                                               const planner::IterationModel& model);

}  // namespace windlass::bench
