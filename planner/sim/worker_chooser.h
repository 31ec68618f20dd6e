// WorkerChooser assigns a request to a worker of one role, by a policy of planner/dispatch or by the fewest pending tokens.
// Also TetriInfer's choice of a decode worker.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/rng.h"
#include "planner/dispatch/policies.h"
#include "planner/perf/linear_iteration_model.h"
#include "planner/sim/serving_worker.h"

namespace windlass::sim {

using ServingWorkers = std::vector<std::unique_ptr<ServingWorker>>;  // by id

class WorkerChooser {
 public:
  // `stream` names the random stream of a randomised policy. Without a policy: the fewest pending tokens.
  WorkerChooser(std::optional<dispatch::PolicyKind> policy, std::uint64_t seed, const std::string& stream,
                const dispatch::PolicyRules& rules = {});

  struct Candidate {
    int worker = 0;
    int slots = 0;  // slots that the policy may fill
    int in_flight = 0;
  };
  // Restarts with these candidates, in ascending order of worker. The policy keeps its random stream.
  void reset(const ServingWorkers& workers, const std::vector<Candidate>& candidates);
  // Records `by` more requests in flight at the worker; ignored if it is not a candidate.
  void changed(int worker, int by);

  // Whether the policy places by lengths and needs reports about requests.
  [[nodiscard]] bool tracks() const { return tracker_ != nullptr; }
  void placed(int worker, const dispatch::RequestLengths& request);
  void first_token(std::uint64_t id, double now_s);
  void iterated(int worker);
  void ended(std::uint64_t id, int output_tokens);

  struct Choice {
    int worker = -1;    // -1: no worker passed
    bool wait = false;  // the policy keeps the request in the queue
  };
  // Chooses among workers that pass `admits`. If the policy's choice does not pass, or it holds the request back although
  // `may_wait` is false: the passing worker with the fewest pending tokens; for a policy that holds requests back, only workers
  // with a free slot.
  template <class Admits>
  [[nodiscard]] Choice choose(const ServingWorkers& workers, const dispatch::RequestLengths& request, double now_s,
                              bool may_wait, Admits admits) {
    if (policy_) {
      const auto chosen = policy_->choose_for(request, now_s);
      if (chosen && admits(*workers[static_cast<std::size_t>(candidates_[*chosen])])) return {candidates_[*chosen], false};
      if (may_wait && (keeps_back_ || !chosen)) {
        const int free =
            chosen ? least(workers, admits, pending, [&](std::size_t i) { return states_[i].has_free_slot(); }) : -1;
        if (free >= 0) return {free, false};
        if (any(workers, admits)) return {-1, true};
      }
    }
    return {fewest_pending(workers, admits), false};
  }

  // -1: no worker passes.
  template <class Admits>
  [[nodiscard]] int fewest_pending(const ServingWorkers& workers, Admits admits) const {
    return least(workers, admits, pending, every);
  }
  template <class Admits>
  [[nodiscard]] int fewest_promised(const ServingWorkers& workers, Admits admits) const {
    return least(
        workers, admits, [](const ServingWorker& worker) { return worker.promised_tokens; }, every);
  }

  template <class Admits>
  [[nodiscard]] bool any(const ServingWorkers& workers, Admits admits) const {
    return std::any_of(candidates_.begin(), candidates_.end(),
                       [&](int candidate) { return admits(*workers[static_cast<std::size_t>(candidate)]); });
  }

  [[nodiscard]] bool empty() const { return candidates_.empty(); }
  [[nodiscard]] const std::vector<int>& candidates() const { return candidates_; }

 private:
  [[nodiscard]] std::optional<std::size_t> index_of(int worker) const;
  [[nodiscard]] const dispatch::PackingModel* packing_of(const ServingWorker& worker);
  static std::int64_t pending(const ServingWorker& worker) { return worker.pending(); }
  static bool every(std::size_t) { return true; }

  template <class Admits, class Tokens, class Places>
  [[nodiscard]] int least(const ServingWorkers& workers, Admits admits, Tokens tokens, Places places) const {
    int best = -1;
    std::int64_t fewest = 0;
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      const ServingWorker& worker = *workers[static_cast<std::size_t>(candidates_[i])];
      if (!places(i) || !admits(worker)) continue;
      const std::int64_t here = tokens(worker);
      if (best >= 0 && here >= fewest) continue;
      best = candidates_[i];
      fewest = here;
    }
    return best;
  }

  std::vector<int> candidates_;  // workers, ascending
  std::unique_ptr<dispatch::DispatchPolicy> policy_;
  planner::LinearForm form_ = planner::LinearForm::kAladdin;  // form of the linear model that the policy uses
  bool keeps_back_ = false;  // the policy leaves requests in the central queue while no slot is free
  std::vector<dispatch::ChainState> states_;
  dispatch::RequestTracker* tracker_ = nullptr;                                    // part of policy_
  std::map<const ServingPool*, std::unique_ptr<dispatch::PackingModel>> packing_;  // looked up, never iterated
};

// The workers of one role, as planner/dispatch/mixed_pool.h sees a pool. Borrows both.
struct RolePool {
  WorkerChooser& chooser;
  const ServingWorkers& workers;
  dispatch::RequestLengths lengths = {};
  double now_s = 0;

  template <class Passes>
  [[nodiscard]] int preferred(Passes passes) const {
    return chooser.choose(workers, lengths, now_s, false, passes).worker;
  }
  template <class Passes>
  [[nodiscard]] int fewest_pending(Passes passes) const {
    return chooser.fewest_pending(workers, passes);
  }
  template <class Passes>
  [[nodiscard]] int fewest_promised(Passes passes) const {
    return chooser.fewest_promised(workers, passes);
  }
  [[nodiscard]] const ServingWorker& at(int worker) const { return *workers[static_cast<std::size_t>(worker)]; }
};

// TetriInfer, Section 3.3.4: draws two workers from those with room for the predicted length (from all, if none has). A heavy
// request goes to the one with the lower resulting ratio of heavy to light decodes, a light one to the one with fewer decodes.
// Ties: fewer decodes, then the one drawn first. -1: no worker can hold the request.
//
// The paper asks for "the lowest average ratio of heavy decode:light decode, which means we need to spread heavy decode
// requests evenly", and gives no rule for light ones. If light requests followed the ratio too, they would gather where light
// ones already are, and heavy ones would follow them: in the setting of the paper's Fig. 19 that is far worse than a random
// choice, while the paper's result is better than random.
[[nodiscard]] int two_choice(const ServingWorkers& workers, const std::vector<int>& candidates, const SequenceSpec& request,
                             bool heavy, Rng& rng);

}  // namespace windlass::sim
