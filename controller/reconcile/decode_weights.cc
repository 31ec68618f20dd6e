// See decode_weights.h.
#include "controller/reconcile/decode_weights.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "controller/reconcile/routes.h"
#include "planner/dispatch/pair_flow.h"
#include "planner/policy/demand_view.h"

namespace windlass::controller {
namespace {

constexpr double kWireValueBytes = 4;  // workers send FP32, whatever the cache's type (worker/parallel/kv_wire.h)
constexpr double kWeightSteps = 1e6;   // as shares of all requests: smaller changes do not matter
constexpr double kSamePart = 1e-4;     // as a share of a prefill chain's requests

// The chains of one phase, with their workers' rates.
struct PhaseChains {
  std::vector<std::size_t> chains;  // indices in the route
  std::vector<hetero::PairedWorker> workers;
};

PhaseChains chains_of(const dispatch::ModelRoute& route, dispatch::Role role, const planner::ModelShape& shape,
                      const planner::Snapshot& snapshot, const std::map<std::string, const Worker*>& workers,
                      double cache_bytes) {
  PhaseChains phase;
  for (std::size_t k = 0; k < route.chains.size(); ++k) {
    const dispatch::Chain& chain = route.chains[k];
    const double rate_per_s = chain.service_rate_per_s * chain.capacity;
    if (chain.role != role || chain.draining || !(rate_per_s > 0) || !std::isfinite(rate_per_s)) continue;
    const Worker& worker = *workers.at(chain.id);
    hetero::PairedWorker& paired = phase.workers.emplace_back();
    phase.chains.push_back(k);
    paired.node = worker.node;
    paired.requests_per_s = rate_per_s;
    const auto known = std::find_if(snapshot.accelerators.begin(), snapshot.accelerators.end(),
                                    [&](const auto& one) { return one.spec.name == worker.accelerator; });
    if (known == snapshot.accelerators.end()) continue;
    // Each GPU that holds part of the cache sends it over its own link.
    const double links = std::clamp(worker.gpus, 1, planner::kv_shards(shape));
    const auto caches_per_s = [&](double link_bytes_per_s, double unknown) {
      return link_bytes_per_s > 0 ? links * link_bytes_per_s / cache_bytes : unknown;
    };
    paired.within_per_s = caches_per_s(known->spec.intra_link_bandwidth_bytes_per_s, paired.within_per_s);
    paired.between_per_s = caches_per_s(known->spec.inter_link_bandwidth_bytes_per_s, paired.between_per_s);
  }
  return phase;
}

}  // namespace

std::map<std::size_t, std::vector<dispatch::DecodeWeight>> decode_weights(const planner::Service& service,
                                                                          const planner::Snapshot& snapshot,
                                                                          const std::vector<Worker>& workers,
                                                                          const dispatch::ModelRoute& route) {
  const auto has = [&](dispatch::Role role) {
    return std::any_of(route.chains.begin(), route.chains.end(), [&](const auto& chain) { return chain.role == role; });
  };
  if (!service.shape || !has(dispatch::Role::kPrefill) || !has(dispatch::Role::kDecode)) return {};
  std::map<std::string, const Worker*> by_chain;
  for (const Worker& worker : workers) by_chain[chain_id(worker)] = &worker;
  const double prompt_tokens = planner::view_demand(service, service.memory, snapshot.now_s).lengths.input_tokens;
  const double cache_bytes = std::max(1.0, planner::kv_bytes(*service.shape, std::max(1.0, prompt_tokens)) * kWireValueBytes /
                                               planner::bytes_of(service.shape->dtype));
  const PhaseChains prefill = chains_of(route, dispatch::Role::kPrefill, *service.shape, snapshot, by_chain, cache_bytes);
  const PhaseChains decode = chains_of(route, dispatch::Role::kDecode, *service.shape, snapshot, by_chain, cache_bytes);

  const std::size_t decodes = decode.chains.size();
  std::vector<double> flows(prefill.chains.size() * decodes, 0);  // by pair
  for (const hetero::PairFlow& pair : hetero::pair_flow(prefill.workers, decode.workers)) {
    flows[pair.prefill * decodes + pair.decode] = pair.requests_per_s;
  }
  const double value = std::accumulate(flows.begin(), flows.end(), 0.0);
  double rates = 0;
  for (const hetero::PairedWorker& worker : decode.workers) rates += worker.requests_per_s;
  bool by_rates_alone = true;
  std::map<std::size_t, std::vector<dispatch::DecodeWeight>> weights;
  for (std::size_t p = 0; p < prefill.chains.size(); ++p) {
    double together = 0;
    for (std::size_t d = 0; d < decodes; ++d) together += flows[p * decodes + d];
    for (std::size_t d = 0; d < decodes && together > 0; ++d) {
      const double flow = flows[p * decodes + d];
      const double by_rates = decode.workers[d].requests_per_s / rates;
      by_rates_alone = by_rates_alone && std::abs(flow / together - by_rates) <= kSamePart;
      const double weight = std::round(flow / value * kWeightSteps) / kWeightSteps;
      if (weight > 0) weights[prefill.chains[p]].push_back({static_cast<int>(decode.chains[d]), weight});
    }
  }
  if (by_rates_alone) weights.clear();
  return weights;
}

}  // namespace windlass::controller
