// A closed loop of clients on one engine: each client sends its next request when its last one is answered.
//
// The end-to-end measurements of ../shared/data/measured were taken this way, as far as is known. The simulator's Engine forms
// the batches; an IterationModel gives their times.
#pragma once

#include "planner/perf/iteration_model.h"
#include "planner/sim/simulated_engine.h"

namespace windlass::bench {

struct ClosedLoop {
  int clients = 1;
  int requests = 1;  // in total
  int input_tokens = 1;
  int output_tokens = 2;
  double stagger_s = 0;     // between the first requests of successive clients
  double turnaround_s = 0;  // from an answer's last token until the client's next request reaches the engine
  double request_s = 0;     // time of a first token outside of the engine: HTTP, tokeniser, detokeniser, client
};

struct ClosedLoopResult {
  bool fits = true;  // a single request fits the KV cache
  double mean_ttft_s = 0;
  double mean_tpot_s = 0;
  double iterations = 0;
};

// REQUIRES: clients, requests, input_tokens >= 1, output_tokens >= 2.
[[nodiscard]] ClosedLoopResult run_closed_loop(const ClosedLoop& load, const planner::EngineSettings& options,
                                               const planner::IterationModel& model);

}  // namespace windlass::bench
