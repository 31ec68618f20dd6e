// See split_advice.h.
#include "planner/whatif/split_advice.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/perf/linear_model.h"
#include "planner/policy/split.h"
#include "planner/strategies/auto/auto_plan.h"
#include "planner/strategies/distserve/distserve.h"
#include "planner/strategies/strategies.h"
#include "planner/whatif/question.h"

namespace windlass::search {
namespace {

constexpr std::array kAsked = {"distserve", "splitwise", "tetriinfer"};
constexpr double kLeastRatePerS = 0.1;  // for a service that assumes no rate
// The rate of one worker does not depend on how many there are: the load of four pairs suffices, and eight nodes of a class
// hold them.
constexpr int kPairs = 4, kNodes = 8;

planner::PhaseAdvice phase_of(const Pool& pool, double requests_per_s) {
  return {pool.spec.accelerator, pool.spec.gpus(), requests_per_s / pool.workers};
}

// The plan's two phases; nullopt if it is not such a plan, for example one of unified workers.
std::optional<planner::SplitAdvice> advice_of(const Problem& problem, const Offer& plan) {
  const Pool *prefill = nullptr, *decode = nullptr;
  for (const Pool& pool : plan.deployment.pools) {
    if (pool.role == dispatch::Role::kUnified || pool.workers < 1) continue;
    const Pool*& side = pool.role == dispatch::Role::kPrefill ? prefill : decode;
    if (side != nullptr) return std::nullopt;
    side = &pool;
  }
  const double served_per_s = std::max(plan.predicted.capacity_requests_per_s, problem.requests_per_s);
  if (prefill == nullptr || decode == nullptr) return std::nullopt;
  planner::SplitAdvice advice;
  advice.strategy = plan.strategy;
  advice.holds = true;
  advice.prefill = phase_of(*prefill, served_per_s);
  advice.decode = phase_of(*decode, served_per_s);
  return advice;
}

Error stopped() { return Error{ErrorCode::kCancelled, "split_advice: stopped"}; }

// Copy of the service without limits on the number of workers; maxGPUs still limits a single worker. Drops classes without
// GPUs, even if the spec allows them. Nullopt if no class remains.
std::optional<planner::Service> without_limits(const planner::Service& asked,
                                               std::span<const planner::AcceleratorState> classes) {
  planner::Service service = asked;
  service.workload.requests_per_s = std::max(kLeastRatePerS, service.workload.requests_per_s);
  service.scaling.max_cost_per_hour.reset();
  if (service.accelerators.empty()) return service;
  std::erase_if(service.accelerators, [&](const planner::AllowedAccelerator& allowed) {
    return std::none_of(classes.begin(), classes.end(),
                        [&](const auto& state) { return state.spec.name == allowed.accelerator; });
  });
  return service.accelerators.empty() ? std::nullopt : std::optional(std::move(service));
}

// The service's problem with plenty of GPUs of every class.
Result<Question> plentiful_question(const planner::Service& service, std::span<const planner::AcceleratorState> classes) {
  std::vector<planner::AcceleratorState> plenty(classes.begin(), classes.end());
  for (planner::AcceleratorState& state : plenty) {
    state.mode = planner::CapacityMode::kElastic;
    state.max_gpus = kNodes * std::max(1, state.spec.gpus_per_node);
  }
  auto made = question_of(service, plenty);
  if (!made.ok()) return made.error();
  for (AcceleratorChoice& choice : made->problem().accelerators) {
    choice.gpus = kNodes * std::max(1, choice.spec.gpus_per_node);
  }
  return made;
}

// The cheapest split among several plans, and a remark on each plan.
class Weighing {
 public:
  explicit Weighing(const Problem& problem) : problem_(problem) {}

  void weigh(const char* name, const Result<Offer>& plan) {
    if (!plan.ok()) return remark(fmt::format("{}: {}", name, plan.error().message));
    if (!plan->holds) {
      return remark(fmt::format("{}: {} meets the objective for {:.4g} % of the requests", name, describe(plan->deployment),
                                plan->predicted.attainment * 100));
    }
    auto advice = advice_of(problem_, *plan);
    if (!advice) {
      return remark(fmt::format("{}: {} does not split the phases into two pools", name, describe(plan->deployment)));
    }
    remark(fmt::format("{}: {:.4g} per hour", name, plan->cost_per_hour));
    if (best_ && plan->cost_per_hour >= best_->cost_per_hour) return;
    best_ = std::move(advice);
    best_->cost_per_hour = plan->cost_per_hour;
  }

  // Records what the same service costs with whole workers.
  void compare_with_whole(const Result<Offer>& whole) {
    if (whole.ok() && whole->holds) whole_cost_ = whole->cost_per_hour;
    // If nothing is known about whole workers, assume that they cost no more, so that what runs stays.
    if (!whole.ok()) whole_cost_ = best_ ? best_->cost_per_hour : 0;
    remark(!whole.ok()   ? "whole workers: " + whole.error().message
           : whole_cost_ ? fmt::format("whole workers: {:.4g} per hour", *whole_cost_)
                         : "no whole workers meet the objective");
  }

  // The answer with its costs and reason; if no split is feasible, it says why.
  [[nodiscard]] planner::SplitAdvice advice() const {
    planner::SplitAdvice advice = best_.value_or(planner::SplitAdvice{});
    advice.why = best_ ? fmt::format("{}", fmt::join(remarks_, ", "))
                       : fmt::format("no split meets the objective: {}", fmt::join(remarks_, "; "));
    if (best_) advice.whole_cost_per_hour = whole_cost_;
    return advice;
  }

 private:
  void remark(std::string text) { remarks_.push_back(std::move(text)); }

  const Problem& problem_;
  std::optional<planner::SplitAdvice> best_;
  std::optional<double> whole_cost_;
  std::vector<std::string> remarks_;
};

// Adds the closed form's rate of a worker of each phase.
void add_closed_forms(planner::SplitAdvice& advice, const planner::Service& service,
                      std::span<const planner::AcceleratorState> classes) {
  const planner::Lengths lengths{service.workload.input_tokens, service.workload.output_tokens};
  for (auto& [phase, role] :
       {std::pair(&advice.prefill, dispatch::Role::kPrefill), {&advice.decode, dispatch::Role::kDecode}}) {
    const auto state =
        std::find_if(classes.begin(), classes.end(), [&](const auto& one) { return one.spec.name == phase->accelerator; });
    const planner::LinearModel model(
        planner::believed_coefficients(*service.shape, state->spec, phase->gpus_per_worker, service.estimates));
    phase->closed_form_per_s = planner::phase_rate_per_s(service, model, lengths, role);
  }
}

// Compares the strategies' plans. Error: stopped.
Result<planner::SplitAdvice> cheapest_split(const Problem& problem, planner::Family asked, const Effort& effort) {
  Weighing weighing(problem);
  for (const char* name : kAsked) {
    const auto plan = (*strategy_by_name(name))->plan(problem, effort);
    if (stop_requested(effort.stop)) return stopped();
    weighing.weigh(name, plan);
  }
  if (asked == planner::Family::kAuto) {
    const auto any = auto_plan(problem, AutoOptions{}, effort);
    AutoOptions whole_alone;
    whole_alone.split = false;
    const auto whole = auto_plan(problem, whole_alone, effort);
    if (stop_requested(effort.stop)) return stopped();
    weighing.weigh("auto", any);
    weighing.compare_with_whole(whole);
  }
  return weighing.advice();
}

planner::SplitAdvice no_split(std::string why) {
  planner::SplitAdvice none;
  none.why = std::move(why);
  return none;
}

}  // namespace

Result<planner::SplitAdvice> split_advice(const planner::Service& asked, std::span<const planner::AcceleratorState> classes,
                                          const Effort& effort) {
  const std::optional<planner::Service> service = without_limits(asked, classes);
  if (!service) return no_split("no class in spec.accelerators has GPUs");
  auto made = plentiful_question(*service, classes);
  if (!made.ok()) return no_split(made.error().message);
  Problem& problem = made->problem();
  const auto choice = distserve_choice(problem, effort);
  if (stop_requested(effort.stop)) return stopped();
  const bool chosen = choice.ok() && choice->prefill_per_s > 0 && choice->decode_per_s > 0;
  if (choice.ok() && !chosen && choice->affinity == NodeAffinity::kHigh) {
    // A phase that no worker can hold even when alone on it holds in no plan; the other strategies would take long to find that
    // out.
    return no_split(fmt::format("no split meets the objective: distserve: {} is not feasible at any rate on any allowed worker",
                                choice->prefill_per_s > 0 ? "decoding" : "prefill"));
  }
  if (chosen) {
    problem.requests_per_s = std::min(problem.requests_per_s, kPairs * std::min(choice->prefill_per_s, choice->decode_per_s));
  }
  auto best = cheapest_split(problem, asked.scaling.strategy, effort);
  if (!best.ok() || !best->holds) return best;
  if (best->strategy == "distserve" && chosen) {
    // Its plan has whole instances for one rate; the goodput of each instance is more accurate for other rates.
    best->prefill.requests_per_s = choice->prefill_per_s;
    best->decode.requests_per_s = choice->decode_per_s;
  }
  add_closed_forms(*best, *service, classes);
  return best;
}

}  // namespace windlass::search
