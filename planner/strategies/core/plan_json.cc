// See plan_json.h.
#include "planner/strategies/core/plan_json.h"

#include <cmath>

#include "planner/deployment/chains.h"

namespace windlass::search {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity; unknown values are null too.
Json finite(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

void put_deployment(Json& json, const Problem& problem, const Deployment& deployment) {
  Json pools = Json::array();
  for (const Pool& pool : deployment.pools) {
    const WorkerSpec& spec = pool.spec;
    pools.push_back({{"role", dispatch::to_string(pool.role)},
                     {"accelerator", spec.accelerator},
                     {"gpusPerWorker", spec.gpus()},
                     {"tensorParallel", spec.tensor_parallel},
                     {"pipelineStages", spec.pipeline_stages},
                     {"workers", pool.workers},
                     {"batching", planner::to_string(spec.engine.batching)},
                     {"maxSequences", spec.engine.max_sequences},
                     {"maxBatchTokens", spec.engine.max_batch_tokens}});
  }
  json["pools"] = std::move(pools);
  json["dispatch"] = deployment.dispatch.policy ? dispatch::to_string(*deployment.dispatch.policy) : "jsq-tokens";
  json["costPerHour"] = cost_per_hour(problem, deployment);
  json["gpus"] = gpus_of(deployment);
  json["powerWatts"] = power_watts(problem, deployment);
}

Json alike_json(const Deployment& deployment) {
  Json pools = Json::array();
  for (const planner::AlikeChains& alike : alike_chains(deployment)) {
    const Chain& first = deployment.chains[static_cast<std::size_t>(alike.chains.front())];
    pools.push_back({{"role", dispatch::to_string(alike.role)},
                     {"accelerator", alike.accelerators_text()},
                     {"gpusPerWorker", alike.gpus},
                     {"tensorParallel", alike.tensor_parallel},
                     {"pipelineStages", alike.hops},
                     {"workers", alike.chains.size()},
                     {"maxSequences", first.batch}});
  }
  return pools;
}

Json chains_json(const hetero::GpuCluster& cluster, const Deployment& deployment) {
  Json chains = Json::array();
  for (const Chain& chain : deployment.chains) {
    Json stages = Json::array();
    for (const Hop& hop : chain.hops)
      stages.push_back({{"gpus", planner::gpu_names(cluster, hop.gpus)}, {"layers", hop.layers}});
    chains.push_back({{"gpus", planner::gpu_names(cluster, chain.gpus())},
                      {"role", dispatch::to_string(chain.role)},
                      {"tensorParallel", chain.tensor_parallel()},
                      {"stages", std::move(stages)},
                      {"batch", chain.batch},
                      {"latencySeconds", chain.latency_s},
                      {"capacityRequestsPerSecond", chain.requests_per_s}});
  }
  return chains;
}

Json pairs_json(const Deployment& deployment) {
  Json pairs = Json::array();
  for (const PairShare& pair : deployment.pairs) {
    pairs.push_back({{"from", pair.from},
                     {"to", pair.to},
                     {"share", pair.share},
                     {"requestsPerSecond", pair.requests_per_s},
                     {"capacityRequestsPerSecond", pair.capacity_requests_per_s}});
  }
  return pairs;
}

Json to_json(const Problem& problem, const Rejection& other) {
  if (!other.what.empty()) {
    return {{"what", other.what},
            {"capacityRequestsPerSecond", other.predicted.capacity_requests_per_s},
            {"costPerHour", other.cost_per_hour},
            {"rejectedBecause", other.rejected_because}};
  }
  Json entry = Json::object();
  put_deployment(entry, problem, other.deployment);
  entry["predicted"] = to_json(other.predicted);
  entry["rejectedBecause"] = other.rejected_because;
  return entry;
}

}  // namespace

Json to_json(const Prediction& predicted) {
  if (!predicted.simulated && !(predicted.ttft_s > 0)) return nullptr;
  Json json = {{"ttftSeconds", finite(predicted.ttft_s)},
               {"tpotSeconds", finite(predicted.tpot_s)},
               {"attainment", finite(predicted.attainment)},
               {"attainmentLow", finite(predicted.attainment_low)},
               {"capacityRequestsPerSecond", finite(predicted.capacity_requests_per_s)},
               {"simulated", predicted.simulated}};
  if (const auto& interval = predicted.interval) {
    const auto ends = [](const planner::Interval& of) { return Json::array({finite(of.low), finite(of.high)}); };
    json["intervals"] = {{"confidenceLevel", 0.9},
                         {"basis", planner::to_string(interval->from)},
                         {"ttftSeconds", ends(interval->ttft_s)},
                         {"tpotSeconds", ends(interval->tpot_s)},
                         {"attainment", ends(interval->attainment)}};
    if (const auto& capacity = interval->capacity_requests_per_s) {
      json["intervals"]["capacityRequestsPerSecond"] = ends(*capacity);
    }
  }
  return json;
}

Json to_json(const Problem& problem, const Offer& plan, double wall_s) {
  const bool placed = !plan.deployment.chains.empty();
  Json json = {{"strategy", plan.strategy}, {"meetsObjectives", plan.holds}};
  if (placed) {
    json["servesRate"] = plan.predicted.capacity_requests_per_s >= problem.requests_per_s;
    json["pools"] = alike_json(plan.deployment);
    json["costPerHour"] = plan.cost_per_hour;
    json["gpus"] = plan.gpus;
    json["powerWatts"] = plan.power_watts;
  } else {
    put_deployment(json, problem, plan.deployment);
  }
  json["predicted"] = to_json(plan.predicted);
  json["reasons"] = plan.reasons;
  Json considered = Json::array();
  for (const Rejection& other : plan.considered) considered.push_back(to_json(problem, other));
  json["considered"] = std::move(considered);
  if (placed) {
    json["groups"] = chains_json(*problem.cluster, plan.deployment);
    json["flow"] = {{"value", plan.predicted.capacity_requests_per_s}, {"edges", pairs_json(plan.deployment)}};
  } else {
    json["trials"] = plan.trials;
  }
  json["iterations"] = plan.iterations;
  json["stopped"] = plan.stopped;
  json["wallSeconds"] = wall_s;
  return json;
}

}  // namespace windlass::search
