// A closed loop of clients on one engine: each client sends its next request when its last is answered.
//
// What the end-to-end measurements of ../shared/data/measured were taken under, as far as is known. The engine's batches come
// from the simulator's Engine, their times from an IterationModel.
#pragma once

#include "planner/perf/iteration_model.h"
#include "planner/sim/simulated_engine.h"

namespace windlass::bench {

struct ClosedLoop {
  int clients = 1;
  int requests = 1;  // in all
  int input_tokens = 1;
  int output_tokens = 2;
  double stagger_s = 0;     // between the first requests of two clients
  double turnaround_s = 0;  // from an answer's last token to that client's next request at the engine
  double request_s = 0;     // that a first token spends outside of the engine: HTTP, tokeniser, detokeniser, client
};

struct ClosedLoopResult {
  bool fits = true;  // a request alone fits the KV cache
  double mean_ttft_s = 0;
  double mean_tpot_s = 0;
  double iterations = 0;
};

// REQUIRES: clients, requests, input_tokens >= 1, output_tokens >= 2.
[[nodiscard]] ClosedLoopResult run_closed_loop(const ClosedLoop& load, const planner::EngineSettings& options,
                                               const planner::IterationModel& model);

}  // namespace windlass::bench
