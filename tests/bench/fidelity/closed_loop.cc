// Implements closed_loop.h.
#include "tests/bench/fidelity/closed_loop.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

#include "planner/base/rng.h"

namespace windlass::bench {
namespace {

struct Request {
  double sent_s = 0;
  double first_token_s = 0;
  int output_tokens = 0;
};

// Requests by time, earliest first.
using Timeline = std::priority_queue<std::pair<double, int>, std::vector<std::pair<double, int>>, std::greater<>>;

// One run: clients, the front end's queue, and the engine.
class Run {
 public:
  Run(const ClosedLoop& load, const planner::EngineSettings& options, const planner::IterationModel& model)
      : load_(load), model_(model), engine_(options), rng_(load.seed, "closed loop") {
    requests_.reserve(static_cast<std::size_t>(load.requests));
    for (int client = 0; client < std::min(load.clients, load.requests); ++client) send(0);
  }

  [[nodiscard]] ClosedLoopResult play() {
    ClosedLoopResult result;
    int done = 0;
    while (done < load_.requests) {
      accept(now_s_);
      enqueue(now_s_);
      const auto batch = engine_.begin();
      if (!batch) {
        if (arrived_.empty()) {
          assert(!unseen_.empty());  // a request alone always runs, so the engine is empty and clients are about to send
          accept(unseen_.top().first);
        }
        now_s_ = std::max(now_s_, arrived_.top().first);
        continue;
      }
      ++result.iterations;
      now_s_ += model_.iteration_s(*batch);
      accept(now_s_);
      enqueue(now_s_);
      const sim::SimulatedEngine::Outcome& outcome = engine_.end();
      const auto tokens = static_cast<double>(outcome.first_tokens.size()) + outcome.decoded;
      front_end_free_s_ = std::max(front_end_free_s_, now_s_) + tokens * load_.token_s;
      const double seen_s = front_end_free_s_;
      for (const int id : outcome.first_tokens) {
        Request& request = at(id);
        request.first_token_s = seen_s;
        result.mean_ttft_s += (seen_s - request.sent_s) / load_.requests;
      }
      for (const int id : outcome.finished) {
        const Request& request = at(id);
        result.mean_tpot_s += (seen_s - request.first_token_s) / (request.output_tokens - 1) / load_.requests;
        ++done;
        if (static_cast<int>(requests_.size()) < load_.requests)
          send(seen_s + (load_.turnaround_s > 0 ? rng_.uniform(0, 2 * load_.turnaround_s) : 0));
      }
    }
    return result;
  }

 private:
  [[nodiscard]] Request& at(int id) { return requests_[static_cast<std::size_t>(id)]; }

  void send(double at_s) {
    const double share = 1 + load_.output_jitter * (load_.output_jitter > 0 ? rng_.uniform(-1, 1) : 0);
    const int tokens = std::max(2, static_cast<int>(std::lround(load_.output_tokens * share)));
    unseen_.emplace(at_s, static_cast<int>(requests_.size()));
    requests_.push_back({at_s, 0, tokens});
  }

  // The front end takes what clients sent until `until_s`.
  void accept(double until_s) {
    while (!unseen_.empty() && unseen_.top().first <= until_s) {
      const auto [sent_s, id] = unseen_.top();
      unseen_.pop();
      front_end_free_s_ = std::max(front_end_free_s_, sent_s) + load_.request_s;
      arrived_.emplace(front_end_free_s_, id);
    }
  }

  void enqueue(double until_s) {
    while (!arrived_.empty() && arrived_.top().first <= until_s) {
      const int id = arrived_.top().second;
      arrived_.pop();
      engine_.enqueue({.request = id, .prompt_tokens = load_.input_tokens, .output_tokens = at(id).output_tokens});
    }
  }

  const ClosedLoop& load_;
  const planner::IterationModel& model_;
  sim::SimulatedEngine engine_;
  Rng rng_;
  std::vector<Request> requests_;
  Timeline unseen_;   // sent, not yet taken by the front end
  Timeline arrived_;  // taken; by the time at which the engine gets them
  double now_s_ = 0, front_end_free_s_ = 0;
};

}  // namespace

int longest_answer(const ClosedLoop& load) {
  return static_cast<int>(std::ceil(load.output_tokens * (1 + load.output_jitter)));
}

ClosedLoopResult run_closed_loop(const ClosedLoop& load, const planner::EngineSettings& options,
                                 const planner::IterationModel& model) {
  if (!sim::SimulatedEngine(options).can_hold(load.input_tokens, longest_answer(load))) return {.fits = false};
  return Run(load, options, model).play();
}

}  // namespace windlass::bench
