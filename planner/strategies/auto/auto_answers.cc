// See auto_answers.h.
#include "planner/strategies/auto/auto_answers.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/plan_parts.h"

namespace windlass::search {
namespace {

constexpr int kEnlarged = 4;               // how often an answer is enlarged to be confirmed
constexpr std::int64_t kMoreRequests = 4;  // factor of requests if a trial is not conclusive

}  // namespace

void AutoAnswers::add(Deployment deployment, const std::string& by, double attainment) {
  AutoAnswer answer{std::move(deployment), by, attainment};
  answer.worth = worth_of(problem_, answer.deployment);
  if (!passed_ || answer.worth < passed_->worth) passed_ = answer;
  open_.push_back(std::move(answer));
}

Result<sim::ServingResult> AutoAnswers::run(const Deployment& deployment, const Trial& trial) {
  WINDLASS_ASSIGN_OR_RETURN(auto result, try_out(problem_, deployment, trial));
  ++work_.trials;
  work_.iterations += result.iterations;
  return result;
}

Result<void> AutoAnswers::offer(const Deployment& deployment, const std::string& by, double attainment) {
  if (std::find(offered_.begin(), offered_.end(), deployment) != offered_.end()) return {};
  offered_.push_back(deployment);
  if (worth_of(problem_, deployment) >= confirmed_worth()) {
    lost_.push_back({deployment, fmt::format("{}: {}, the plan {}", by, worth_text(problem_, deployment), "{}")});
    return {};
  }
  if (const auto room = check_room(problem_, deployment); !room.ok()) {
    lost_.push_back({deployment, fmt::format("{}: {}", by, room.error().message)});
    return {};
  }
  WINDLASS_ASSIGN_OR_RETURN(const auto result, run(deployment, trial_));
  if (judge(problem_, result).holds) {
    add(deployment, by, attainment);
  } else {
    lost_.push_back({deployment, by + ": it misses the objectives when tried again"});
  }
  return {};
}

Result<std::optional<bool>> AutoAnswers::holds_on_all_seeds(const Deployment& deployment) {
  Trial trial = trial_;
  for (int i = 1; i < kAutoSeeds; ++i) {
    if (stop_requested(stop_)) return std::optional<bool>();
    ++trial.seed;
    WINDLASS_ASSIGN_OR_RETURN(const auto result, run(deployment, trial));
    if (!judge(problem_, result).holds) return std::optional(false);
  }
  return std::optional(true);
}

Result<std::optional<bool>> AutoAnswers::is_confident(const Deployment& deployment) {
  if (!problem_.objectives.both) return holds_on_all_seeds(deployment);
  double inside = 0, all = 0;
  std::uint64_t seed = trial_.seed;
  for (std::int64_t requests = trial_.requests; requests <= max_requests_; requests *= kMoreRequests) {
    if (stop_requested(stop_)) return std::optional<bool>();
    WINDLASS_ASSIGN_OR_RETURN(const auto result, run(deployment, {trial_.requests_per_s, requests, seed++}));
    if (!problem_.objectives.limits.empty() && !judge(problem_, result).holds) return std::optional(false);
    if (result.refused + result.failed > 0) return std::optional(false);
    inside += result.attainment * static_cast<double>(result.requests);
    all += static_cast<double>(result.requests);
    const double asked = problem_.objectives.attainment;
    if (wilson_low(inside, all) >= asked) return std::optional(true);
    if (1 - wilson_low(all - inside, all) < asked) return std::optional(false);  // certainly not
  }
  return std::optional(false);
}

AutoAnswer AutoAnswers::next() {
  const auto first = std::min_element(open_.begin(), open_.end(), [](const AutoAnswer& a, const AutoAnswer& b) {
    return std::tuple(a.worth, -a.attainment) < std::tuple(b.worth, -b.attainment);
  });
  AutoAnswer answer = std::move(*first);
  open_.erase(first);
  return answer;
}

void AutoAnswers::refute(AutoAnswer answer) {
  lost_.push_back({answer.deployment, "it met the objectives in one trial, but not with confidence"});
  if (answer.enlarged == kEnlarged) return;
  Pool& pool = answer.deployment.pools[static_cast<std::size_t>(answer.enlarged) % answer.deployment.pools.size()];
  pool.workers += std::max(1, pool.workers / 50);
  ++answer.enlarged;
  answer.worth = worth_of(problem_, answer.deployment);
  if (const auto room = check_room(problem_, answer.deployment); !room.ok()) {
    lost_.push_back({std::move(answer.deployment), room.error().message});
    return;
  }
  open_.push_back(std::move(answer));
}

Result<void> AutoAnswers::confirm() {
  while (!open_.empty()) {
    AutoAnswer answer = next();
    if (answer.worth >= confirmed_worth()) {
      lost_.push_back(
          {std::move(answer.deployment), fmt::format("{}, the plan {}", worth_text(problem_, answer.deployment), "{}")});
      continue;
    }
    WINDLASS_ASSIGN_OR_RETURN(const std::optional<bool> sure, is_confident(answer.deployment));
    if (!sure) {
      open_.push_back(std::move(answer));
      return {};
    }
    if (!*sure) {
      refute(std::move(answer));
      continue;
    }
    if (confirmed_) {
      lost_.push_back(
          {confirmed_->deployment, fmt::format("{}, the plan {}", worth_text(problem_, confirmed_->deployment), "{}")});
    }
    answer.confirmed = true;
    confirmed_ = std::move(answer);
  }
  return {};
}

std::vector<AutoAnswers::Lost> AutoAnswers::take_lost() {
  for (AutoAnswer& answer : open_) {
    if (answer.deployment == best()->deployment) continue;
    lost_.push_back({std::move(answer.deployment), "the search was stopped before more trials than one had confirmed it"});
  }
  open_.clear();
  return std::move(lost_);
}

}  // namespace windlass::search
