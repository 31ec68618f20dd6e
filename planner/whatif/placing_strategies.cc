// See placing_strategies.h.
#include "planner/whatif/placing_strategies.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "planner/strategies/core/fewest_workers.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/core/trial.h"

namespace windlass::search {
namespace {

constexpr std::int64_t kPlacingSteps = 10'000;  // of a placement's own search

// The deployments without nodes that a placement stands for; empty if it splits a copy of the model over several workers.
std::vector<Deployment> without_nodes(const Deployment& placed) {
  if (std::any_of(placed.chains.begin(), placed.chains.end(), [](const Chain& chain) { return chain.hops.size() > 1; }))
    return {};
  Deployment together = placed;
  together.chains.clear();
  together.pairs.clear();
  if (placed.pools.front().role != dispatch::Role::kUnified) {
    together.dispatch = Deployment{}.dispatch;  // pairs of workers exist only on nodes
    return {std::move(together)};
  }
  std::vector<Deployment> alone;
  for (const Pool& pool : placed.pools) {
    alone.push_back(together);
    alone.back().pools = {pool};
  }
  return alone;
}

// The deployment with this share of its workers, at least one in each pool.
Deployment scaled(Deployment deployment, int workers, int of) {
  for (Pool& pool : deployment.pools) {
    pool.workers = std::max(1, static_cast<int>(std::ceil(static_cast<double>(pool.workers) * workers / of - 1e-9)));
  }
  return deployment;
}

// Finds the fewest workers in a proportion.
class Counting {
 public:
  Counting(const Problem& problem, const Effort& effort)
      : problem_(problem),
        effort_(effort),
        trial_{problem.requests_per_s, trial_requests(problem, problem.requests_per_s), problem.seed, true} {}

  // Nullopt if no number holds; `missed` then says why.
  Result<std::optional<Deployment>> fewest(const Deployment& shape, std::string& missed) {
    int of = 0;
    for (const Pool& pool : shape.pools) of = std::max(of, pool.workers);
    int too_few = 0, enough = 1;
    for (;; enough *= 2) {
      const Deployment tried = scaled(shape, enough, of);
      if (const auto room = check_room(problem_, tried); !room.ok()) {
        if (missed.empty()) missed = room.error().message;
        return std::optional<Deployment>();
      }
      WINDLASS_ASSIGN_OR_RETURN(const bool held, holds(tried, missed));
      if (held) break;
      if (enough > trial_.requests) return std::optional<Deployment>();
      too_few = enough;
    }
    while (enough - too_few > 1) {
      const int middle = too_few + (enough - too_few) / 2;
      WINDLASS_ASSIGN_OR_RETURN(const bool held, holds(scaled(shape, middle, of), missed));
      (held ? enough : too_few) = middle;
    }
    return std::optional(scaled(shape, enough, of));
  }

  std::int64_t trials = 0, iterations = 0;

 private:
  Result<bool> holds(const Deployment& deployment, std::string& missed) {
    if (stop_requested(effort_.stop)) return Error{ErrorCode::kCancelled, "stopped"};
    WINDLASS_ASSIGN_OR_RETURN(const auto result, try_out(problem_, deployment, trial_));
    ++trials;
    iterations += result.iterations;
    const Verdict verdict = judge(problem_, result);
    if (!verdict.holds) missed = verdict.broken;
    return verdict.holds;
  }

  const Problem& problem_;
  const Effort& effort_;
  Trial trial_;
};

using planner::AcceleratorSpec;

// Of classes, the one with the highest ratio of a figure to its price; null: there is none.
template <class Figure>
const AcceleratorSpec* most_for_its_price(const std::vector<const AcceleratorSpec*>& classes, const Figure& figure) {
  const auto best = std::max_element(classes.begin(), classes.end(), [&](const AcceleratorSpec* a, const AcceleratorSpec* b) {
    return figure(*a) * b->price_per_hour < figure(*b) * a->price_per_hour;
  });
  return best == classes.end() ? nullptr : *best;
}

}  // namespace

std::vector<planner::NodeState> nodes_to_place_on(const Problem& problem) {
  std::vector<const AcceleratorSpec*> holding;
  for (const AcceleratorChoice& choice : problem.accelerators) {
    if (std::any_of(problem.kinds.begin(), problem.kinds.end(),
                    [&](const WorkerKind& kind) { return &problem.spec(kind) == &choice.spec; })) {
      holding.push_back(&choice.spec);
    }
  }
  const planner::DType dtype = planner::compute_dtype(problem.shape);
  const AcceleratorSpec* computes =
      most_for_its_price(holding, [&](const AcceleratorSpec& of) { return planner::peak_flops_for(of, dtype); });
  const AcceleratorSpec* reads =
      most_for_its_price(holding, [](const AcceleratorSpec& of) { return of.memory_bandwidth_bytes_per_s; });
  std::vector<planner::NodeState> nodes;
  for (const AcceleratorSpec* spec : {computes, reads == computes ? nullptr : reads}) {
    if (spec == nullptr) continue;
    const int gpus = std::max(1, spec->gpus_per_node);
    for (int held = 0; held < kPlacedGpus; held += gpus) {
      planner::NodeState& node = nodes.emplace_back();
      node.name = fmt::format("{}-{}", spec->name, nodes.size());
      node.accelerator = spec->name;
      node.allocatable_gpus = gpus;
    }
  }
  return nodes;
}

Result<Offer> plan_anywhere(const NamedStrategy& placing, const Problem& on_nodes, const Problem& problem,
                            const Effort& effort) {
  Effort placement = effort;
  placement.max_iterations = kPlacingSteps;
  WINDLASS_ASSIGN_OR_RETURN(const Offer placed, placing.plan(on_nodes, placement));
  const auto not_found = [&](const std::string& why) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: {}", problem.name, why)};
  };
  const std::vector<Deployment> shapes = without_nodes(placed.deployment);
  if (shapes.empty()) return not_found("it splits a copy of the model over several workers, which the controller cannot start");
  Counting counting(problem, effort);
  std::optional<Deployment> best;
  std::string missed;
  for (const Deployment& shape : shapes) {
    WINDLASS_ASSIGN_OR_RETURN(std::optional<Deployment> found, counting.fewest(shape, missed));
    if (found && (!best || worth_of(problem, *found) < worth_of(problem, *best))) best = std::move(found);
  }
  if (!best) return not_found("no number of its workers holds within the limits: " + missed);
  Offer plan = plan_of(problem, placing.name, *std::move(best));
  plan.predicted.capacity_requests_per_s = problem.requests_per_s;
  plan.holds = true;  // by the trials; confirmed with a whole run
  confirm(problem, plan);
  plan.trials += counting.trials;
  plan.iterations += counting.iterations;
  plan.reasons.push_back(fmt::format("{} chose these workers on {} GPUs; their number is the simulator's", placing.name,
                                     on_nodes.cluster->gpus()));
  return plan;
}

}  // namespace windlass::search
