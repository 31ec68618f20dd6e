// See splitwise.h.
#include "planner/strategies/splitwise/splitwise.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

namespace windlass::search {
namespace {

std::string machine_name(const Problem& problem, int kind) { return worker_text(problem.pool(kind).spec); }

planner::EngineSettings engine_of(const Problem& problem, const SplitwiseOptions& options) {
  planner::EngineSettings engine = problem.engine;
  engine.batching = planner::Batching::kMixed;  // when only one phase has work, each has its own iterations
  engine.max_batch_tokens = options.max_batch_tokens;
  engine.prompt_order = planner::PromptOrder::kArrival;
  return problem.engines.nearest(engine);
}

Pool machines_of(const Problem& problem, int kind, dispatch::Role role, const SplitwiseOptions& options) {
  Pool pool = problem.pool(kind, role);
  pool.spec.engine = engine_of(problem, options);
  return pool;
}

// The largest worker of each accelerator: a whole machine. Ties: fewest stages.
std::vector<int> whole_machines(const Problem& problem) {
  std::vector<int> machines;
  for (int kind = 0; kind < static_cast<int>(problem.kinds.size()); ++kind) {
    const WorkerKind& here = problem.kind_at(kind);
    const auto other = std::find_if(machines.begin(), machines.end(),
                                    [&](int machine) { return problem.kind_at(machine).accelerator == here.accelerator; });
    if (other == machines.end()) {
      machines.push_back(kind);
      continue;
    }
    const WorkerKind& there = problem.kind_at(*other);
    if (std::pair(here.gpus(), here.tensor_parallel) > std::pair(there.gpus(), there.tensor_parallel)) *other = kind;
  }
  return machines;
}

}  // namespace

std::vector<Limit> splitwise_objectives() {
  std::vector<Limit> limits;
  for (const auto& [percentile, ttft, tokens] : {std::tuple(50.0, 2.0, 1.25), {90.0, 3.0, 1.5}, {99.0, 6.0, 5.0}}) {
    limits.push_back({Metric::kTtftSlowdown, percentile, ttft});
    limits.push_back({Metric::kTbtSlowdown, percentile, tokens});
    limits.push_back({Metric::kE2eSlowdown, percentile, tokens});
  }
  return limits;
}

SplitDesign baseline_design(const Problem& problem, int kind, const SplitwiseOptions& options) {
  SplitDesign design;
  design.name = fmt::format("{} for both phases", machine_name(problem, kind));
  design.unified = true;
  design.deploy = [pool = machines_of(problem, kind, dispatch::Role::kUnified, options)](const PhaseCounts& counts) {
    Deployment deployment;
    deployment.pools = {pool};
    deployment.pools.front().workers = counts.prefill;
    deployment.dispatch.policy.reset();
    return deployment;
  };
  const PhaseLoads loads = phase_loads(problem, *problem.kind_at(kind).model, problem.kind_at(kind));
  design.guess = {workers_for(loads.prefill + loads.decode), 0};
  return design;
}

SplitDesign splitwise_design(const Problem& problem, int prompt_kind, int token_kind, bool capped,
                             const SplitwiseOptions& options) {
  SplitDesign design;
  design.name = fmt::format("{} for prompts, {}{} for tokens", machine_name(problem, prompt_kind),
                            capped ? "power-capped " : "", machine_name(problem, token_kind));
  const Pool prompts = machines_of(problem, prompt_kind, dispatch::Role::kPrefill, options);
  Pool tokens = machines_of(problem, token_kind, dispatch::Role::kDecode, options);
  if (capped) tokens.spec.power_share = problem.power_cap.machine_share;
  design.deploy = [prompts, tokens, threshold = options.mixed_pool_threshold_tokens](const PhaseCounts& counts) {
    Deployment deployment;
    deployment.pools = {prompts, tokens};
    deployment.pools[0].workers = counts.prefill;
    deployment.pools[1].workers = counts.decode;
    deployment.dispatch.policy.reset();  // "queue lengths are defined by the number of pending tokens"
    deployment.dispatch.decode_choice = dispatch::DecodeChoice::kLeastMemory;
    deployment.dispatch.mixed_pool_threshold_tokens = threshold;
    return deployment;
  };
  const PhaseLoads loads = phase_loads(problem, *problem.kind_at(prompt_kind).model, problem.kind_at(token_kind));
  design.guess = {workers_for(loads.prefill), workers_for(loads.decode)};
  return design;
}

Result<Offer> splitwise_plan(const Problem& problem, const Effort& effort, const SplitwiseOptions& options) {
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  for (const int machine : options.machines) {
    if (machine >= 0 && machine < static_cast<int>(problem.kinds.size())) continue;
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: machines: must be kinds from 0 to {} (got {})", problem.name,
                                                          problem.kinds.size() - 1, machine)};
  }
  if (options.search.seeds < 1) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: seeds: must be at least 1 (got {})", problem.name, options.search.seeds)};
  }
  const auto prompt_load = [&](int machine) {
    const WorkerKind& kind = problem.kind_at(machine);
    return phase_loads(problem, *kind.model, kind).prefill;
  };
  const std::vector<int> machines = options.machines.empty() ? whole_machines(problem) : options.machines;
  const bool power_counts = problem.goal == Goal::kPower || std::isfinite(options.search.max_power_watts);
  const int fastest =
      *std::min_element(machines.begin(), machines.end(), [&](int a, int b) { return prompt_load(a) < prompt_load(b); });
  std::vector<SplitDesign> designs;
  for (const int prompts : machines) {
    for (const int tokens : machines) {
      if (prompts != tokens && prompt_load(prompts) >= prompt_load(tokens)) continue;
      designs.push_back(splitwise_design(problem, prompts, tokens, false, options));
    }
  }
  if (options.may_cap && power_counts && problem.engines.power_share)
    designs.push_back(splitwise_design(problem, fastest, fastest, true, options));
  return plan_of_designs(problem, effort, options.search, "splitwise", std::move(designs));
}

}  // namespace windlass::search
