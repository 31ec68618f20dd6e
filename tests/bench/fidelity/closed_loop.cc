// Implements closed_loop.h.
#include "tests/bench/fidelity/closed_loop.h"

#include <algorithm>
#include <queue>
#include <vector>

namespace windlass::bench {

ClosedLoopResult run_closed_loop(const ClosedLoop& load, const planner::EngineSettings& options,
                                 const planner::IterationModel& model) {
  ClosedLoopResult result;
  sim::SimulatedEngine engine(options);
  if (!engine.can_hold(load.input_tokens, load.output_tokens)) {
    result.fits = false;
    return result;
  }
  std::vector<double> arrival_s;
  std::vector<double> first_token_s(static_cast<std::size_t>(load.requests), 0);
  // Arrivals are created in order of time: the first ones staggered, each later one after an answer; answers come in order.
  std::queue<double> arrivals;
  int sent = std::min(load.clients, load.requests);
  for (int client = 0; client < sent; ++client) arrivals.push(client * load.stagger_s);
  double now_s = 0;
  double ttft_s = 0;
  double tpot_s = 0;
  int done = 0;
  while (done < load.requests) {
    while (!arrivals.empty() && arrivals.front() <= now_s) {
      engine.enqueue({.request = static_cast<int>(arrival_s.size()),
                      .prompt_tokens = load.input_tokens,
                      .output_tokens = load.output_tokens});
      arrival_s.push_back(arrivals.front());
      arrivals.pop();
    }
    const auto batch = engine.begin();
    if (!batch) {
      now_s = std::max(now_s, arrivals.front());
      continue;
    }
    ++result.iterations;
    now_s += model.iteration_s(*batch);
    const sim::SimulatedEngine::Outcome& outcome = engine.end();
    for (const int request : outcome.first_tokens) {
      const auto index = static_cast<std::size_t>(request);
      first_token_s[index] = now_s;
      ttft_s += now_s - arrival_s[index] + load.request_s;
    }
    for (const int request : outcome.finished) {
      tpot_s += (now_s - first_token_s[static_cast<std::size_t>(request)]) / (load.output_tokens - 1);
      ++done;
      if (sent == load.requests) continue;
      ++sent;
      const double next_s = now_s + load.turnaround_s;
      arrivals.push(arrivals.empty() ? next_s : std::max(next_s, arrivals.back()));
    }
  }
  result.mean_ttft_s = ttft_s / load.requests;
  result.mean_tpot_s = tpot_s / load.requests;
  return result;
}

}  // namespace windlass::bench
