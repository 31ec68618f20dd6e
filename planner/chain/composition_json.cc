// Writes a composition as JSON; see composition_json.h.
#include "planner/chain/composition_json.h"

namespace windlass::chain {
namespace {

using Json = nlohmann::ordered_json;

Json names_json(const Instance& instance, const std::vector<int>& servers) {
  Json names = Json::array();
  for (const int server : servers) names.push_back(instance.servers[static_cast<std::size_t>(server)].name);
  return names;
}

Json chain_json(const Instance& instance, const ServerChain& chain) {
  return {{"servers", names_json(instance, chain.servers)},
          {"blocks", chain.blocks},
          {"capacity", chain.capacity},
          {"serviceTimeSeconds", chain.service_time_s},
          {"serviceRatePerSecond", chain.service_rate_per_s()}};
}

}  // namespace

Json composition_json(const Instance& instance, const Composition& composition) {
  Json placement = Json::array();
  std::vector<int> unplaced;
  for (std::size_t j = 0; j < composition.placement.size(); ++j) {
    const BlockRange& range = composition.placement[j];
    if (range.blocks == 0) {
      unplaced.push_back(static_cast<int>(j));
    } else {
      placement.push_back({{"server", instance.servers[j].name}, {"firstBlock", range.first}, {"blocks", range.blocks}});
    }
  }
  Json disjoint = Json::array();
  for (const auto& servers : composition.disjoint_chains) disjoint.push_back(names_json(instance, servers));
  Json chains = Json::array();
  for (const ServerChain& chain : composition.chains) chains.push_back(chain_json(instance, chain));
  Json considered = Json::array();
  for (const ConsideredCapacity& judged : composition.considered) {
    considered.push_back({{"capacity", judged.capacity}, {"objective", judged.objective}});
  }
  Json bounds = nullptr;
  if (composition.mean_response_lower_s && composition.mean_response_upper_s) {
    bounds = {{"meanResponseTimeLowerSeconds", *composition.mean_response_lower_s},
              {"meanResponseTimeUpperSeconds", *composition.mean_response_upper_s}};
  }
  const double nu = composition.total_service_rate_per_s;
  return {{"capacity", composition.capacity > 0 ? Json(composition.capacity) : Json(nullptr)},
          {"placement", std::move(placement)},
          {"unplacedServers", names_json(instance, unplaced)},
          {"disjointChains", std::move(disjoint)},
          {"chains", std::move(chains)},
          {"totalCapacity", composition.total_capacity},
          {"totalServiceRatePerSecond", nu},
          {"arrivalRate", instance.arrival_rate_per_s},
          {"maxLoad", instance.max_load},
          {"load", nu > 0 ? Json(instance.arrival_rate_per_s / nu) : Json(nullptr)},
          {"stable", composition.stable},
          {"meetsMaxLoad", composition.meets_max_load},
          {"bounds", std::move(bounds)},
          {"considered", std::move(considered)}};
}

}  // namespace windlass::chain
