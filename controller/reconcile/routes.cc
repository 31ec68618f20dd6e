// See routes.h.
#include "controller/reconcile/routes.h"

#include <algorithm>
#include <cmath>

#include "controller/reconcile/decode_weights.h"
#include "planner/dispatch/routing_table.h"

namespace windlass::controller {
namespace {

constexpr double kAssumedStartS = 120;  // used until a start of this service has been measured
constexpr double kStartStepS = 5;       // rounding of the reported time; otherwise every tick would make a new table

// Index of the pool's latency model; adds it if it is new.
int latency_of(const planner::Pool& pool, std::vector<dispatch::PackingModel>& latencies) {
  if (pool.each.packing == planner::Yield{}.packing) return -1;
  const auto found = std::find(latencies.begin(), latencies.end(), pool.each.packing);
  if (found == latencies.end()) latencies.push_back(pool.each.packing);
  return static_cast<int>(found - latencies.begin());
}

dispatch::Chain chain_of(const Worker& worker, const ServiceMemory* memory, std::vector<dispatch::PackingModel>& latencies) {
  dispatch::Chain chain;
  chain.id = chain_id(worker);
  chain.hops = {worker.address};
  // A chain that is going may have lost a server. It gets no request anyway.
  const bool whole =
      std::none_of(worker.later.begin(), worker.later.end(), [](const auto& one) { return one.address.empty(); });
  for (const ChainServer& server : worker.later) {
    if (whole) chain.hops.push_back(server.address);
  }
  chain.token = worker.token;
  chain.role = role_of(worker);
  chain.draining = worker.draining_since_s || worker.terminating || worker.changing_role_since_s;
  chain.capacity = worker.max_concurrency;
  if (memory != nullptr) {
    if (const auto pool = memory->pools.find(pool_of(worker)); pool != memory->pools.end()) {
      chain.service_rate_per_s = pool->second.each.service_rate_per_s;
      // At most as many as keep TPOT within the objective, and at most as many as the worker accepts.
      chain.capacity = std::clamp(pool->second.each.slots, 1, std::max(1, worker.max_concurrency));
      chain.latency = latency_of(pool->second, latencies);
    }
  }
  return chain;
}

// Time until the first worker of a service without any is ready: the 90th percentile of its start times, less the age of the
// oldest start under way.
double expected_start_s(const planner::Service& service, double now_s) {
  const double whole_s = service.starts ? service.starts->p90_s : kAssumedStartS;
  double left_s = whole_s;
  for (const planner::Worker& worker : service.workers) {
    const bool starting = worker.state == planner::WorkerState::kStarting && worker.trouble == planner::WorkerTrouble::kNone;
    if (starting) left_s = std::min(left_s, whole_s - (now_s - worker.created_s));
  }
  return std::max(1.0, std::ceil(left_s / kStartStepS)) * kStartStepS;
}

}  // namespace

std::string chain_id(const Worker& worker) { return worker.name_space + "/" + worker.name; }

std::vector<dispatch::ModelRoute> routes(const Observation& observation, const ControllerState& state, int max_queued) {
  std::vector<dispatch::ModelRoute> all;
  for (std::size_t i = 0; i < observation.services.size(); ++i) {
    const api::ModelService& service = *observation.services[i];
    const planner::Service& planned = observation.snapshot.services[i];
    const auto memory = state.services.find(service.metadata.uid);
    dispatch::ModelRoute route;
    route.served_name = service.served_name();
    route.name_space = service.metadata.name_space;
    route.service = service.metadata.name;
    route.ttft_slo_s = planned.slo.ttft_s;
    route.tpot_slo_s = planned.slo.tpot_s;
    route.max_queued = max_queued;
    route.max_context_tokens = planned.max_context_tokens > 0 ? planned.max_context_tokens
                               : planned.shape                ? planned.shape->max_context_tokens
                                                              : 0;
    if (memory != state.services.end()) {
      // In the order of pools, not of workers, so that equal latencies give an equal table.
      for (const auto& [id, pool] : memory->second.pools) (void)latency_of(pool, route.latencies);
      route.dispatch = dispatch::at_gateway(memory->second.dispatch);
    }
    for (const Worker& worker : observation.workers.at(service.metadata.uid)) {
      if (worker.finished || worker.address.empty()) continue;
      const bool leaving = worker.draining_since_s || worker.terminating;
      if (!worker.ready && !leaving) continue;
      route.chains.push_back(chain_of(worker, memory == state.services.end() ? nullptr : &memory->second, route.latencies));
    }
    std::sort(route.chains.begin(), route.chains.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
    for (auto& [k, weights] :
         decode_weights(planned, observation.snapshot, observation.workers.at(service.metadata.uid), route)) {
      route.chains[k].decode_weights = std::move(weights);
    }
    const bool serves = std::any_of(route.chains.begin(), route.chains.end(), [](const auto& chain) {
      return !chain.draining && chain.role != dispatch::Role::kPrefill;  // nobody would continue its prompts
    });
    if (!serves) route.expected_start_s = expected_start_s(planned, observation.snapshot.now_s);
    all.push_back(std::move(route));
  }
  std::sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.served_name < b.served_name; });
  return all;
}

}  // namespace windlass::controller
