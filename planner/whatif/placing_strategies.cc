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
#include "planner/strategies/core/worker_models.h"

namespace windlass::search {
namespace {

constexpr std::int64_t kPlacingSteps = 10'000;  // of a placement's own search

// The deployments without nodes that a placement stands for. Error: the controller cannot run its workers so, with the reason.
Result<std::vector<Deployment>> without_nodes(const Problem& problem, const Deployment& placed) {
  const auto not_found = [](std::string why) { return Error{ErrorCode::kNotFound, std::move(why)}; };
  Deployment together;
  for (const Pool& pool : placed.pools) {
    if (find_kind(problem, pool.spec) == nullptr)
      return not_found(fmt::format("{}: the service cannot have such workers", worker_text(pool.spec)));
    together.pools.push_back(pool);
    together.pools.back().workers = 0;
  }
  const bool split = placed.pools.front().role != dispatch::Role::kUnified;
  for (std::size_t i = 0; i < placed.chains.size(); ++i) {
    const Chain& chain = placed.chains[i];
    if (chain.hops.size() > 1) return not_found("it splits a copy of the model over several workers");
    const bool serves = !split || std::any_of(placed.pairs.begin(), placed.pairs.end(), [&](const PairShare& pair) {
      return static_cast<std::size_t>(chain.role == dispatch::Role::kPrefill ? pair.from : pair.to) == i;
    });
    if (serves) ++together.pools[static_cast<std::size_t>(chain.hops.front().pool)].workers;
  }
  std::erase_if(together.pools, [](const Pool& pool) { return pool.workers == 0; });
  if (split) {
    const auto prefills = std::count_if(together.pools.begin(), together.pools.end(),
                                        [](const Pool& pool) { return pool.role == dispatch::Role::kPrefill; });
    if (prefills != 1) return not_found("it needs several kinds of prefill workers");
    return std::vector<Deployment>{std::move(together)};  // pairs exist only on nodes
  }
  together.dispatch = placed.dispatch;
  std::vector<Deployment> alone;
  for (const Pool& pool : together.pools) {
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

  // Error: kNotFound if no number holds, with what the largest one misses; Cancelled also at the end of the step budget.
  Result<Deployment> fewest(const Deployment& shape) {
    int of = 0;
    for (const Pool& pool : shape.pools) of = std::max(of, pool.workers);
    const auto room = [&](int workers) { return check_room(problem_, scaled(shape, workers, of)); };
    if (const auto one = room(1); !one.ok()) return Error{ErrorCode::kNotFound, one.error().message};
    int most = 1, beyond = static_cast<int>(std::min<std::int64_t>(kMaxWorkers, trial_.requests)) + 1;
    while (beyond - most > 1) {
      const int middle = most + (beyond - most) / 2;
      (room(middle).ok() ? most : beyond) = middle;
    }
    std::string missed;
    int too_few = 0, enough = 1;
    for (;; enough = std::min(most, 2 * enough)) {
      WINDLASS_ASSIGN_OR_RETURN(missed, missed_by(scaled(shape, enough, of)));
      if (missed.empty()) break;
      if (enough == most) return Error{ErrorCode::kNotFound, fmt::format("{}: {}", describe(scaled(shape, most, of)), missed)};
      too_few = enough;
    }
    while (enough - too_few > 1) {
      const int middle = too_few + (enough - too_few) / 2;
      WINDLASS_ASSIGN_OR_RETURN(missed, missed_by(scaled(shape, middle, of)));
      (missed.empty() ? enough : too_few) = middle;
    }
    return scaled(shape, enough, of);
  }

  std::int64_t trials = 0, iterations = 0;

 private:
  // What it misses in a trial; empty: nothing.
  Result<std::string> missed_by(const Deployment& deployment) {
    if (stop_requested(effort_.stop) || iterations >= effort_.max_iterations) return Error{ErrorCode::kCancelled, "stopped"};
    WINDLASS_ASSIGN_OR_RETURN(const auto result, try_out(problem_, deployment, trial_));
    ++trials;
    iterations += result.iterations;
    return judge(problem_, result).broken;
  }

  const Problem& problem_;
  const Effort& effort_;
  Trial trial_;
};

using planner::AcceleratorSpec;

// Of classes, the one with the highest ratio of a figure to its price; without prices, with the highest figure. Null: there is
// none.
template <class Figure>
const AcceleratorSpec* most_for_its_price(const std::vector<const AcceleratorSpec*>& classes, const Figure& figure) {
  const auto best = std::max_element(classes.begin(), classes.end(), [&](const AcceleratorSpec* a, const AcceleratorSpec* b) {
    const double of_a = figure(*a) * b->price_per_hour, of_b = figure(*b) * a->price_per_hour;
    return of_a != of_b ? of_a < of_b : figure(*a) < figure(*b);
  });
  return best == classes.end() ? nullptr : *best;
}

}  // namespace

void add_nodes(const AcceleratorSpec& spec, int gpus, std::vector<planner::NodeState>& nodes) {
  for (int i = 0; gpus > 0; ++i, gpus -= nodes.back().allocatable_gpus) {
    planner::NodeState& node = nodes.emplace_back();
    node.name = fmt::format("{}-{}", spec.name, i);
    node.accelerator = spec.name;
    node.allocatable_gpus = std::min(gpus, std::max(1, spec.gpus_per_node));
  }
}

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
    if (spec != nullptr) add_nodes(*spec, std::max(kPlacedGpus, spec->gpus_per_node), nodes);
  }
  return nodes;
}

Result<Offer> plan_anywhere(const NamedStrategy& placing, const Problem& on_nodes, const Problem& problem,
                            const Effort& effort) {
  const auto not_found = [&](const std::string& why) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: {}", problem.name, why)};
  };
  Effort placement = effort;
  placement.max_iterations = kPlacingSteps;
  const auto placed = placing.plan(on_nodes, placement);
  if (!placed.ok()) {
    const bool in_vain = placed.error().code == ErrorCode::kCancelled && !stop_requested(effort.stop);
    return in_vain ? not_found(fmt::format("no placement was found in {} steps", kPlacingSteps)) : placed.error();
  }
  const auto shapes = without_nodes(problem, placed->deployment);
  if (!shapes.ok()) return not_found(shapes.error().message);
  Counting counting(problem, effort);
  std::optional<Deployment> best;
  std::string missed;
  bool stopped = false;
  for (const Deployment& shape : *shapes) {
    auto found = counting.fewest(shape);
    if (found.ok()) {
      if (!best || worth_of(problem, *found) < worth_of(problem, *best)) best = std::move(found).value();
    } else if (found.error().code == ErrorCode::kNotFound) {
      if (missed.empty()) missed = found.error().message;
    } else if (found.error().code == ErrorCode::kCancelled) {
      stopped = true;
      break;
    } else {
      return found.error();
    }
  }
  if (!best && stopped) return Error{ErrorCode::kCancelled, "stopped before any number of workers held"};
  if (!best) return not_found("no number of its workers holds; " + missed);
  Offer plan = plan_of(problem, placing.name, *std::move(best));
  plan.predicted.capacity_requests_per_s = problem.requests_per_s;
  plan.holds = true;  // by the trials; confirmed with a whole run
  confirm(problem, plan);
  plan.trials += counting.trials;
  plan.iterations += counting.iterations;
  plan.stopped = stopped;
  plan.reasons.push_back(fmt::format("{} chose these workers on {} GPUs; the simulator counted how many are needed",
                                     placing.name, on_nodes.cluster->gpus()));
  return plan;
}

}  // namespace windlass::search
