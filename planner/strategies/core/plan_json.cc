// See plan_json.h.
#include "planner/strategies/core/plan_json.h"

#include <cmath>

namespace windlass::search {
namespace {

using Json = nlohmann::ordered_json;

// JSON has no infinity; what nobody has worked out is null too.
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

}  // namespace

Json to_json(const Prediction& predicted) {
  if (!predicted.simulated && !(predicted.ttft_s > 0)) return nullptr;
  return {{"ttftSeconds", finite(predicted.ttft_s)},
          {"tpotSeconds", finite(predicted.tpot_s)},
          {"attainment", finite(predicted.attainment)},
          {"attainmentLow", finite(predicted.attainment_low)},
          {"capacityRequestsPerSecond", finite(predicted.capacity_requests_per_s)},
          {"simulated", predicted.simulated}};
}

Json to_json(const Problem& problem, const Offer& plan, double wall_s) {
  Json json = {{"strategy", plan.strategy}, {"meetsObjectives", plan.holds}};
  put_deployment(json, problem, plan.deployment);
  json["predicted"] = to_json(plan.predicted);
  json["reasons"] = plan.reasons;
  Json considered = Json::array();
  for (const Rejection& other : plan.considered) {
    Json entry = Json::object();
    put_deployment(entry, problem, other.deployment);
    entry["predicted"] = to_json(other.predicted);
    entry["rejectedBecause"] = other.rejected_because;
    considered.push_back(std::move(entry));
  }
  json["considered"] = std::move(considered);
  json["trials"] = plan.trials;
  json["iterations"] = plan.iterations;
  json["stopped"] = plan.stopped;
  json["wallSeconds"] = wall_s;
  return json;
}

}  // namespace windlass::search
