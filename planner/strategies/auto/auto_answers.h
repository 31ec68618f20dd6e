// AutoAnswers: the deployments that `auto` has found, and the best of them at any time. Only for auto_plan.cc.
//
// Answers have a fixed order: confirmed ones first, then those that passed one trial; within each, less worth first, and the
// first found among equals. So the best never gets worse.
//
// With joint objectives, an answer is confirmed if the lower end of the 95 % Wilson interval of the share of requests that meet
// them reaches the required attainment. Close cases use more requests. With limits only, they must hold on three seeds.
// Neighbouring requests share a queue, so the interval is nominal. Pure; not thread-safe.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/executor.h"
#include "planner/base/result.h"
#include "planner/strategies/core/deployment.h"
#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/strategy.h"
#include "planner/strategies/core/trial.h"

namespace windlass::search {

struct AutoAnswer {
  Deployment deployment;
  std::string by;         // who found it
  double attainment = 0;  // as predicted; the better one of two with equal worth is confirmed first
  int enlarged = 0;       // how often it was enlarged since it was found
  double worth = 0;
  bool confirmed = false;
};

inline constexpr int kAutoSeeds = 3;  // on which limits must hold

class AutoAnswers {
 public:
  struct Work {
    std::int64_t trials = 0, iterations = 0;
  };
  // A deployment that was not chosen; "{}" in `because` stands for the plan's worth.
  struct Lost {
    Deployment deployment;
    std::string because;
  };

  // Borrows both. `trial`: the first one of each deployment. `max_requests`: of one trial that confirms.
  AutoAnswers(const Problem& problem, const StopCheck& stop, const Trial& trial, std::int64_t max_requests)
      : problem_(problem), stop_(stop), trial_(trial), max_requests_(max_requests) {}

  // Adds a deployment that passed the first trial.
  void add(Deployment deployment, const std::string& by, double attainment = 0);
  // Tries a deployment from elsewhere once, unless it is known or cannot become the best; adds it if it passes.
  [[nodiscard]] Result<void> offer(const Deployment& deployment, const std::string& by, double attainment);
  // Confirms what may still become the best, cheapest first. An answer that is not confirmed is enlarged a little, a few times.
  // A stop leaves the rest for later.
  [[nodiscard]] Result<void> confirm();

  [[nodiscard]] const AutoAnswer* best() const { return confirmed_ ? &*confirmed_ : passed_ ? &*passed_ : nullptr; }
  // An answer becomes the best for certain only below this worth.
  [[nodiscard]] double confirmed_worth() const {
    return confirmed_ ? confirmed_->worth : std::numeric_limits<double>::infinity();
  }
  [[nodiscard]] const Work& work() const { return work_; }
  // All that lost, after the search.
  [[nodiscard]] std::vector<Lost> take_lost();

 private:
  [[nodiscard]] Result<sim::ServingResult> run(const Deployment& deployment, const Trial& trial);
  // No value: stopped before it was certain.
  [[nodiscard]] Result<std::optional<bool>> is_confident(const Deployment& deployment);
  [[nodiscard]] Result<std::optional<bool>> holds_on_all_seeds(const Deployment& deployment);
  // Takes the next one to confirm out of `open_`.
  [[nodiscard]] AutoAnswer next();
  void refute(AutoAnswer answer);

  const Problem& problem_;
  const StopCheck& stop_;
  const Trial trial_;
  const std::int64_t max_requests_;
  std::optional<AutoAnswer> confirmed_, passed_;  // the best of each
  std::vector<AutoAnswer> open_;                  // passed one trial, in the order found
  std::vector<Deployment> offered_;
  std::vector<Lost> lost_;
  Work work_;
};

}  // namespace windlass::search
