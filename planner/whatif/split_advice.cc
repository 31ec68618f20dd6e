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
#include "planner/whatif/service_problem.h"

namespace windlass::search {
namespace {

constexpr std::array kAsked = {"distserve", "splitwise", "tetriinfer"};
constexpr double kLeastRatePerS = 0.1;  // of a service that assumes none
// What a worker of either side serves does not depend on how many there are: so many pairs' load is enough to tell, and so many
// nodes of a class hold them.
constexpr int kPairs = 4, kNodes = 8;

planner::PhaseAdvice phase_of(const Problem& problem, const PlannedPool& pool, double requests_per_s) {
  const WorkerKind& kind = kind_of(problem, pool);
  return {problem.spec(kind).name, kind.gpus(), requests_per_s / pool.workers};
}

// The plan's two phases; nullopt where it has others, as one of unified workers.
std::optional<planner::SplitAdvice> advice_of(const Problem& problem, const Plan& plan) {
  const PlannedPool *prefill = nullptr, *decode = nullptr;
  for (const PlannedPool& pool : plan.deployment.pools) {
    if (pool.role == dispatch::Role::kUnified || pool.workers < 1) continue;
    const PlannedPool*& side = pool.role == dispatch::Role::kPrefill ? prefill : decode;
    if (side != nullptr) return std::nullopt;
    side = &pool;
  }
  const double served_per_s = std::max(plan.predicted.capacity_requests_per_s, problem.requests_per_s);
  if (prefill == nullptr || decode == nullptr) return std::nullopt;
  planner::SplitAdvice advice;
  advice.strategy = plan.strategy;
  advice.holds = true;
  advice.prefill = phase_of(problem, *prefill, served_per_s);
  advice.decode = phase_of(problem, *decode, served_per_s);
  return advice;
}

}  // namespace

Result<planner::SplitAdvice> split_advice(const planner::Service& asked, std::span<const planner::AcceleratorState> classes,
                                          const Effort& effort) {
  planner::SplitAdvice none;
  planner::Service service = asked;
  service.workload.requests_per_s = std::max(kLeastRatePerS, service.workload.requests_per_s);
  // How many there may be is not asked either; maxGPUs bounds what one worker has.
  service.scaling.max_cost_per_hour.reset();
  std::vector<planner::AcceleratorState> plenty(classes.begin(), classes.end());
  for (planner::AcceleratorState& state : plenty) {
    state.mode = planner::CapacityMode::kElastic;
    state.max_gpus = kNodes * std::max(1, state.spec.gpus_per_node);
  }
  // A class without a GPU is none to plan with, whatever the spec allows.
  const auto is_there = [&](const planner::AllowedAccelerator& allowed) {
    return std::any_of(classes.begin(), classes.end(),
                       [&](const auto& state) { return state.spec.name == allowed.accelerator; });
  };
  if (!service.accelerators.empty()) {
    std::erase_if(service.accelerators, [&](const auto& allowed) { return !is_there(allowed); });
    if (service.accelerators.empty()) {
      none.why = "no class of spec.accelerators has any GPU";
      return none;
    }
  }
  auto made = ServiceProblem::make(service, plenty);
  if (!made.ok()) {
    none.why = made.error().message;
    return none;
  }
  Problem& problem = made->problem();
  for (AcceleratorChoice& choice : problem.accelerators) choice.gpus = kNodes * std::max(1, choice.spec.gpus_per_node);
  const auto choice = distserve_choice(problem, effort);
  if (stop_requested(effort.stop)) return Error{ErrorCode::kCancelled, "split_advice: stopped"};
  const bool chosen = choice.ok() && choice->prefill_per_s > 0 && choice->decode_per_s > 0;
  if (choice.ok() && !chosen && choice->affinity == NodeAffinity::kHigh) {
    // A phase that holds on no worker when it has one to itself holds in no plan; the others would take long to come to that.
    none.why = fmt::format("no split holds the objective: distserve: {} holds at no rate on any worker that is allowed",
                           choice->prefill_per_s > 0 ? "decoding" : "prefill");
    return none;
  }
  if (chosen) {
    problem.requests_per_s = std::min(problem.requests_per_s, kPairs * std::min(choice->prefill_per_s, choice->decode_per_s));
  }

  std::optional<planner::SplitAdvice> best;
  double best_cost = 0;
  std::vector<std::string> told;
  const auto weigh = [&](const char* name, const Result<Plan>& plan) {
    if (!plan.ok()) {
      told.push_back(fmt::format("{}: {}", name, plan.error().message));
      return;
    }
    if (!plan->holds) {
      told.push_back(fmt::format("{}: {} holds the objective for {:.4g} % of the requests", name,
                                 describe(problem, plan->deployment), plan->predicted.attainment * 100));
      return;
    }
    auto advice = advice_of(problem, *plan);
    if (!advice) {
      told.push_back(fmt::format("{}: {} does not split the phases in two pools", name, describe(problem, plan->deployment)));
      return;
    }
    told.push_back(fmt::format("{}: {:.4g} an hour", name, plan->cost_per_hour));
    if (best && plan->cost_per_hour >= best_cost) return;
    best_cost = plan->cost_per_hour;
    best = std::move(advice);
  };
  for (const char* name : kAsked) {
    const auto plan = (*strategy_by_name(name))->plan(problem, effort);
    if (stop_requested(effort.stop)) return Error{ErrorCode::kCancelled, "split_advice: stopped"};
    weigh(name, plan);
  }
  std::optional<double> whole_cost;
  if (asked.scaling.strategy == planner::Strategy::kAuto) {
    const auto any = auto_plan(problem, AutoOptions{}, effort);
    AutoOptions whole_alone;
    whole_alone.split = false;
    const auto whole = auto_plan(problem, whole_alone, effort);
    if (stop_requested(effort.stop)) return Error{ErrorCode::kCancelled, "split_advice: stopped"};
    weigh("auto", any);
    if (whole.ok() && whole->holds) whole_cost = whole->cost_per_hour;
    // Where nothing was found out about whole workers, they are no dearer: what runs stays.
    if (!whole.ok()) whole_cost = best_cost;
    told.push_back(!whole.ok()  ? "whole workers: " + whole.error().message
                   : whole_cost ? fmt::format("whole workers: {:.4g} an hour", *whole_cost)
                                : "no whole workers hold");
  }
  if (!best) {
    none.why = fmt::format("no split holds the objective: {}", fmt::join(told, "; "));
    return none;
  }
  if (best->strategy == "distserve" && chosen) {
    // Its plan is of whole instances for one rate; the goodput of each says more about others.
    best->prefill.requests_per_s = choice->prefill_per_s;
    best->decode.requests_per_s = choice->decode_per_s;
  }
  const planner::Lengths lengths{service.workload.input_tokens, service.workload.output_tokens};
  for (auto& [phase, role] : {std::pair(&best->prefill, dispatch::Role::kPrefill), {&best->decode, dispatch::Role::kDecode}}) {
    const auto state =
        std::find_if(classes.begin(), classes.end(), [&](const auto& one) { return one.spec.name == phase->accelerator; });
    const planner::LinearModel model(
        planner::believed_coefficients(*service.shape, state->spec, phase->gpus_per_worker, service.estimates));
    phase->closed_form_per_s = planner::phase_rate_per_s(service, model, lengths, role);
  }
  best->cost_per_hour = best_cost;
  best->whole_cost_per_hour = whole_cost;
  best->why = fmt::format("{}", fmt::join(told, ", "));
  return *best;
}

}  // namespace windlass::search
