// Gain and cost of a transition; see transition_worth.h.
#include "planner/chain/transition_worth.h"

#include <algorithm>

#include "planner/chain/gca.h"
#include "planner/queueing/chain_bounds.h"

namespace windlass::chain {

Service service_of(const std::vector<ServerChain>& chains, double arrival_rate_per_s, double at_least) {
  Service service;
  service.arrival_rate_per_s = arrival_rate_per_s;
  std::vector<planner::ChainRate> rates;
  for (const ServerChain& chain : chains) {
    rates.push_back({chain.service_rate_per_s(), chain.capacity});
    service.capacity += chain.capacity;
  }
  service.rate_per_s = planner::total_rate_per_s(rates);
  const bool stable = arrival_rate_per_s < service.rate_per_s;
  const auto mean_s = stable ? planner::mean_response_lower_s(rates, arrival_rate_per_s) : std::nullopt;
  service.present = mean_s ? arrival_rate_per_s * *mean_s : std::max(service.capacity, at_least);
  return service;
}

Course course(const Service& service, double waiting, double seconds) {
  const double growth_per_s = service.arrival_rate_per_s - service.rate_per_s;
  double grows_s = seconds;
  if (growth_per_s < 0) grows_s = std::min(seconds, waiting / -growth_per_s);  // until all is drained
  const double end = std::max(0.0, waiting + growth_per_s * grows_s);
  return {service.present * seconds + (waiting + end) / 2 * grows_s, end};
}

TransitionWorth worth_of(const Instance& instance, const Composition& current, const Composition& next,
                         std::vector<TransitionWave>& waves, double horizon_s) {
  const double arrivals = instance.arrival_rate_per_s;
  TransitionWorth worth;
  worth.next = service_of(next.chains, arrivals);
  const Service old_service = service_of(current.chains, arrivals, worth.next.present);

  TransitionState state(instance, current.placement, changes_between(instance, current.placement, next.placement));
  for (TransitionWave& wave : waves) {
    state.begin(wave);
    const TransitionState::View view = state.view();
    const Service service = service_of(gca(view.instance, view.placement, view.slots), arrivals, worth.next.present);
    state.end(wave);
    wave.total_service_rate_per_s = service.rate_per_s;
    const Course during = course(service, worth.moving.waiting, wave.seconds);
    worth.moving = {worth.moving.request_s + during.request_s, during.waiting};
    worth.seconds += wave.seconds;
  }
  const Course staying = course(old_service, 0, worth.seconds);
  const double from_rest = course(worth.next, 0, horizon_s).request_s;
  worth.gain_request_s = course(old_service, staying.waiting, horizon_s).request_s - from_rest;
  worth.cost_request_s = worth.accumulated(worth.seconds + horizon_s) - from_rest - staying.request_s;
  return worth;
}

}  // namespace windlass::chain
