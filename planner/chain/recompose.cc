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
    return invalid(fmt::format("model.blocks: found {}, allowed is {} as before: another model shares no blocks", next.blocks,
                               old_instance.blocks));
  }
  if (next.block_gb != old_instance.block_gb) {
    return invalid(fmt::format("model.blockSizeGB: found {}, allowed is {} as before: another model shares no blocks",
                               next.block_gb, old_instance.block_gb));
  }
  if (old.placement.size() != old_instance.servers.size()) {
    return invalid(fmt::format("placement: found {} ranges, allowed are {}, one a server", old.placement.size(),
                               old_instance.servers.size()));
  }
  for (std::size_t j = 0; j < old.placement.size(); ++j) {
    const BlockRange& range = old.placement[j];
    if (range.blocks < 0 || (range.blocks > 0 && (range.first < 1 || range.last() > old_instance.blocks))) {
      return invalid(fmt::format("placement of server {}: found blocks {} to {}, allowed are 1 to {}",
                                 old_instance.servers[j].name, range.first, range.last(), old_instance.blocks));
    }
  }
  if (!(next.arrival_rate_per_s > 0)) {
    return invalid(fmt::format("arrivalRate: found {}, allowed is a number above 0", next.arrival_rate_per_s));
  }
  std::set<std::string_view> names;
  for (const Server& server : next.servers) {
    if (!names.insert(server.name).second) {
      return invalid(fmt::format("servers: found the name '{}' twice, allowed is once", server.name));
    }
    if (!(server.load_gb_per_s > 0 && std::isfinite(server.load_gb_per_s))) {
      return invalid(
          fmt::format("server {}: loadGBPerSecond: found {}, allowed is a number above 0", server.name, server.load_gb_per_s));
    }
  }
  if (!(options.horizon_s > 0 && std::isfinite(options.horizon_s))) {
    return invalid(fmt::format("horizon_s: found {}, allowed is a number above 0", options.horizon_s));
  }
  return {};
}

// The way to one composition, by the best order found: least service lost, then least cost, then least time.
Transition way_to(const Instance& instance, const Transition& known, Composition next) {
  Transition way = known;
  way.next = std::move(next);
  way.changes = changes_between(instance, way.current.placement, way.next.placement);
  if (way.changes.empty()) return way;
  bool first = true;
  for (TransitionOrder& order : transition_orders(instance, way.current.placement, way.next.placement)) {
    const TransitionWorth worth = worth_of(instance, way.current, way.next, order.waves, way.horizon_s);
    double seconds = 0;
    for (const TransitionWave& wave : order.waves) seconds += wave.seconds;
    const bool better = std::tuple(order.interrupted_s, worth.cost_request_s, seconds) <
                        std::tuple(way.interrupted_s, way.cost_request_s, way.seconds);
    if (!first && !better) continue;
    first = false;
    way.waves = std::move(order.waves);
    way.interrupted_s = order.interrupted_s;
    way.order_proved = order.proved;
    way.gain_request_s = worth.gain_request_s;
    way.cost_request_s = worth.cost_request_s;
    way.seconds = seconds;
  }
  way.interrupted = way.interrupted_s > 0;
  way.loaded_gb = static_cast<double>(blocks_to_load(way.current.placement, way.next.placement)) * instance.block_gb;
  return way;
}

void decide(Transition& transition) {
  if (transition.changes.empty()) {
    transition.reason = "the servers hold what the new chains need already";
    return;
  }
  const bool serves = !transition.current.chains.empty();
  const bool will_serve = !transition.next.chains.empty();
  transition.proposed = will_serve && (!serves || transition.gain_request_s > transition.cost_request_s);
  if (!serves && will_serve) {
    transition.reason = "the servers that are left hold no full chain";
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
  // The old c moves fewer blocks, as a rule, and may be nearly as good as the best.
  std::vector<Composition> targets{*composed};
  if (old.capacity >= 1 && old.capacity != composed->capacity && old.capacity <= max_capacity(new_instance)) {
    const auto same_capacity = compose(new_instance, old.capacity);
    if (same_capacity.ok()) targets.push_back(*same_capacity);
  }
  Transition best;
  for (std::size_t i = 0; i < targets.size(); ++i) {
    Transition way = way_to(new_instance, known, with_fewest_loads(new_instance, targets[i], known.current.placement));
    const auto net = [](const Transition& t) { return t.gain_request_s - t.cost_request_s; };
    if (i == 0 || net(way) > net(best)) best = std::move(way);
  }
  decide(best);
  return best;
}

}  // namespace windlass::chain
