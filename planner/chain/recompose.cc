// Recomposition; see recompose.h.
#include "planner/chain/recompose.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string_view>
#include <tuple>

#include <fmt/format.h>

#include "planner/chain/failure.h"
#include "planner/chain/fewest_loads.h"
#include "planner/chain/transition_worth.h"

namespace windlass::chain {
namespace {

Error invalid(std::string message) { return Error{ErrorCode::kInvalidArgument, std::move(message)}; }

Result<void> check(const Instance& old_instance, const Composition& old, const Instance& next,
                   const RecomposeOptions& options) {
  if (next.blocks != old_instance.blocks) {
    return invalid(fmt::format("model.blocks: must be {} as before (got {}): another model shares no blocks",
                               old_instance.blocks, next.blocks));
  }
  if (next.block_gb != old_instance.block_gb) {
    return invalid(fmt::format("model.blockSizeGB: must be {} as before (got {}): another model shares no blocks",
                               old_instance.block_gb, next.block_gb));
  }
  if (old.placement.size() != old_instance.servers.size()) {
    return invalid(fmt::format("placement: must be {} ranges, one per server (got {})", old_instance.servers.size(),
                               old.placement.size()));
  }
  for (std::size_t j = 0; j < old.placement.size(); ++j) {
    const BlockRange& range = old.placement[j];
    if (range.blocks < 0 || (range.blocks > 0 && (range.first < 1 || range.last() > old_instance.blocks))) {
      return invalid(fmt::format("placement of server {}: must be within blocks 1 to {} (got {} to {})",
                                 old_instance.servers[j].name, old_instance.blocks, range.first, range.last()));
    }
  }
  if (!(next.arrival_rate_per_s > 0)) {
    return invalid(fmt::format("arrivalRate: must be a number above 0 (got {})", next.arrival_rate_per_s));
  }
  std::set<std::string_view> names;
  for (const Server& server : next.servers) {
    if (!names.insert(server.name).second) {
      return invalid(fmt::format("servers: names must be unique (got '{}' twice)", server.name));
    }
    if (!(server.load_gb_per_s > 0 && std::isfinite(server.load_gb_per_s))) {
      return invalid(
          fmt::format("server {}: loadGBPerSecond: must be a number above 0 (got {})", server.name, server.load_gb_per_s));
    }
  }
  if (!(options.horizon_s > 0 && std::isfinite(options.horizon_s))) {
    return invalid(fmt::format("horizon_s: must be a number above 0 (got {})", options.horizon_s));
  }
  return {};
}

// A transition to a composition with the steps in one order.
struct Way {
  std::size_t target = 0;
  TransitionOrder order;
  TransitionWorth worth;
};

std::vector<Way> ways_to(const Instance& instance, const Composition& current, const Composition& next, std::size_t target,
                         double horizon_s) {
  std::vector<Way> ways;
  for (TransitionOrder& order : transition_orders(instance, current.placement, next.placement)) {
    const TransitionWorth worth = worth_of(instance, current, next, order.waves, horizon_s);
    ways.push_back({target, std::move(order), worth});
  }
  // Nothing needs to move.
  if (ways.empty()) {
    std::vector<TransitionWave> none;
    ways.push_back({target, {}, worth_of(instance, current, next, none, horizon_s)});
  }
  return ways;
}

// For each composition, keep the transition that loses the least service, then the one that accumulates least in the same time.
// Of these take the best; ties go to the first.
const Way& best_of(const std::vector<Way>& ways, double horizon_s) {
  double longest_s = 0;
  for (const Way& way : ways) longest_s = std::max(longest_s, way.worth.seconds);
  const auto accumulated = [&](const Way& way) { return way.worth.accumulated(longest_s + horizon_s); };
  const auto order_key = [&](const Way& way) {
    return std::tuple(way.order.interrupted_s, accumulated(way), way.worth.seconds);
  };
  const Way* best = nullptr;
  for (std::size_t i = 0; i < ways.size();) {
    const Way* quickest = &ways[i];
    for (; i < ways.size() && ways[i].target == quickest->target; ++i) {
      if (order_key(ways[i]) < order_key(*quickest)) quickest = &ways[i];
    }
    if (best == nullptr || accumulated(*quickest) < accumulated(*best)) best = quickest;
  }
  return *best;
}

void decide(Transition& transition) {
  if (transition.changes.empty()) {
    transition.reason = "the servers already hold what the new chains need";
    return;
  }
  const bool serves = !transition.current.chains.empty();
  const bool will_serve = !transition.next.chains.empty();
  transition.proposed = will_serve && (!serves || transition.gain_request_s > transition.cost_request_s);
  if (!serves && will_serve) {
    transition.reason = "the remaining servers hold no full chain";
    return;
  }
  transition.reason = fmt::format("it gains {:.6g} request-seconds within {:.6g} s and costs {:.6g}", transition.gain_request_s,
                                  transition.horizon_s, transition.cost_request_s);
}

}  // namespace

Result<Transition> recompose(const Instance& old_instance, const Composition& old, const Instance& new_instance,
                             const RecomposeOptions& options) {
  WINDLASS_RETURN_IF_ERROR(check(old_instance, old, new_instance, options));
  Transition known;
  known.horizon_s = options.horizon_s;
  known.current = surviving(new_instance, carried_over(old_instance, old.placement, new_instance), {});
  std::set<std::string_view> names;
  for (const Server& server : new_instance.servers) names.insert(server.name);
  for (const Server& server : old_instance.servers) {
    if (!names.contains(server.name)) known.gone.push_back(server.name);
  }

  const auto composed = compose(new_instance, options.tuning);
  if (!composed.ok()) {
    if (known.current.chains.empty()) return composed.error();
    known.next = known.current;
    known.reason = composed.error().message;
    return known;
  }
  // The old c usually moves fewer blocks, and may be nearly as good as the best.
  std::vector<Composition> targets{*composed};
  if (old.capacity >= 1 && old.capacity != composed->capacity && old.capacity <= max_capacity(new_instance)) {
    const auto same_capacity = compose(new_instance, old.capacity);
    if (same_capacity.ok()) targets.push_back(*same_capacity);
  }
  std::vector<Way> ways;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    targets[i] = with_fewest_loads(new_instance, targets[i], known.current.placement);
    for (Way& way : ways_to(new_instance, known.current, targets[i], i, options.horizon_s)) ways.push_back(std::move(way));
  }
  const Way& best = best_of(ways, options.horizon_s);
  Transition transition = std::move(known);
  transition.next = targets[best.target];
  transition.changes = changes_between(new_instance, transition.current.placement, transition.next.placement);
  transition.waves = best.order.waves;
  transition.seconds = best.worth.seconds;
  transition.loaded_gb =
      static_cast<double>(blocks_to_load(transition.current.placement, transition.next.placement)) * new_instance.block_gb;
  transition.interrupted_s = best.order.interrupted_s;
  transition.interrupted = transition.interrupted_s > 0;
  transition.order_proved = best.order.proved;
  if (!transition.changes.empty()) {
    transition.gain_request_s = best.worth.gain_request_s;
    transition.cost_request_s = best.worth.cost_request_s;
  }
  decide(transition);
  return transition;
}

}  // namespace windlass::chain
