// WorkerChooser: to which worker of one role a request goes: a policy of planner/dispatch, or the fewest pending tokens. And
// TetriInfer's choice of a decode worker.
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
  // `stream` names the random stream of a policy that draws. No policy: the fewest pending tokens.
  WorkerChooser(std::optional<dispatch::PolicyKind> policy, std::uint64_t seed, const std::string& stream,
                const dispatch::PolicyRules& rules = {});

  struct Candidate {
    int worker = 0;
    int slots = 0;  // that the policy may fill
    int in_flight = 0;
  };
  // Starts over with these, by rising worker. The policy keeps its random stream.
  void reset(const ServingWorkers& workers, const std::vector<Candidate>& candidates);
  // `by` more requests are in flight at the worker; one that is no candidate is passed over.
  void changed(int worker, int by);

  // What a policy that places by lengths is told; others take no note.
  [[nodiscard]] bool tracks() const { return tracker_ != nullptr; }
  void placed(int worker, const dispatch::RequestLengths& request);
  void first_token(std::uint64_t id, double now_s);
  void iterated(int worker);
  void ended(std::uint64_t id, int output_tokens);

  struct Choice {
    int worker = -1;    // -1: none of them passed
    bool wait = false;  // the policy keeps the request back
  };
  // Among workers that pass `admits`; where the policy's choice does not, or it keeps the request back although `may_wait` is
  // false, the one with the fewest pending tokens that does; under a policy that keeps requests back, of those with a free
  // slot.
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

  // -1: none passes.
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

  std::vector<int> candidates_;  // workers, rising
  std::unique_ptr<dispatch::DispatchPolicy> policy_;
  planner::LinearForm form_ = planner::LinearForm::kAladdin;  // of the lines that the policy places by
  bool keeps_back_ = false;  // the policy leaves requests in the central queue while no slot is free
  std::vector<dispatch::ChainState> states_;
  dispatch::RequestTracker* tracker_ = nullptr;                                    // of policy_
  std::map<const ServingPool*, std::unique_ptr<dispatch::PackingModel>> packing_;  // looked up, never iterated
};

// TetriInfer, Section 3.3.4: of two random ones of the workers that have room for the predicted length (of all, where none has)
// a heavy request goes to the one whose ratio of heavy to light decodes would be lower, a light one to the one with fewer
// decodes. Of equals: fewer decodes, then the one drawn first. -1: none can hold the request.
//
// The paper wants "the lowest average ratio of heavy decode:light decode, which means we need to spread heavy decode requests
// evenly", and gives no rule for light ones. By the ratio too, they would join those that are light already, and heavy ones
// them: in the setting of its Fig. 19 that is far worse than a random choice, which the paper's is better than.
[[nodiscard]] int two_choice(const ServingWorkers& workers, const std::vector<int>& candidates, const SequenceSpec& request,
                             bool heavy, Rng& rng);

}  // namespace windlass::sim
