// The fields of a Plan.
#include <cstdint>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "planner/dispatch/packing_json.h"
#include "planner/policy/json_fields.h"

namespace windlass::planner {

// Found by read_enum beside the policy's own names.
using dispatch::to_string;

namespace {

using nlohmann::json;

Json fields_of(const PoolPlan& pool) {
  Json fields{{"name", pool.name},
              {"role", to_string(pool.role)},
              {"accelerator", pool.accelerator},
              {"gpusPerWorker", pool.gpus_per_worker},
              {"workers", pool.workers},
              {"maxConcurrency", pool.max_concurrency},
              {"slots", pool.slots},
              {"serviceRatePerS", number(pool.service_rate_per_s)},
              {"kvCacheTokens", pool.kv_cache_tokens}};
  if (pool.packing != PoolPlan{}.packing) fields["packing"] = dispatch::to_json(pool.packing);
  return fields;
}

Json fields_of(const std::vector<PoolPlan>& pools) {
  Json list = Json::array();
  for (const PoolPlan& pool : pools) list.push_back(fields_of(pool));
  return list;
}

Json fields_of(const Predicted& predicted) {
  return Json{{"ttftS", number(predicted.ttft_s)},
              {"tpotS", number(predicted.tpot_s)},
              {"requestsPerS", number(predicted.requests_per_s)},
              {"utilisation", number(predicted.utilisation)},
              {"costPerHour", number(predicted.cost_per_hour)},
              {"gpus", predicted.gpus}};
}

Json fields_of(const Reason& reason) {
  Json inputs = Json::object();
  for (const auto& [key, value] : reason.inputs) inputs[key] = value;
  Json json{{"code", reason.code}, {"message", reason.message}, {"inputs", std::move(inputs)}};
  if (!reason.pass.empty()) json["pass"] = reason.pass;
  return json;
}

Json fields_of(const Hint& hint) {
  return Json{{"status", to_string(hint.status)}, {"reason", hint.reason}, {"message", hint.message}};
}

Json fields_of(const DemandForecast& forecast) {
  return Json{{"method", forecast.method},
              {"horizonS", number(forecast.horizon_s)},
              {"requestsPerS", number(forecast.requests_per_s)},
              {"relativeError", number(forecast.relative_error)},
              {"judged", forecast.judged}};
}

Json fields_of(const Considered& considered) {
  return Json{{"accelerator", considered.accelerator}, {"gpusPerWorker", considered.gpus_per_worker},
              {"workers", considered.workers},         {"costPerHour", number(considered.cost_per_hour)},
              {"tpotS", number(considered.tpot_s)},    {"ttftS", number(considered.ttft_s)},
              {"rejected", considered.rejected}};
}

Result<DemandForecast> read_forecast(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  DemandForecast forecast;
  forecast.method = reader.string("method");
  forecast.horizon_s = reader.number("horizonS");
  forecast.requests_per_s = reader.number("requestsPerS");
  forecast.relative_error = reader.number("relativeError");
  forecast.judged = reader.int32("judged", 0);
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return forecast;
}

Result<Considered> read_considered(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Considered considered;
  considered.accelerator = reader.string("accelerator");
  considered.gpus_per_worker = reader.int32("gpusPerWorker", 0);
  considered.workers = reader.int32("workers", 0);
  considered.cost_per_hour = reader.number("costPerHour");
  considered.tpot_s = reader.number("tpotS");
  considered.ttft_s = reader.number("ttftS");
  considered.rejected = reader.string("rejected");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return considered;
}

Result<PoolPlan> read_pool(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  PoolPlan pool;
  pool.name = reader.string("name");
  pool.role = read_enum(reader, "role", {dispatch::Role::kUnified, dispatch::Role::kPrefill, dispatch::Role::kDecode});
  pool.accelerator = reader.string("accelerator");
  pool.gpus_per_worker = reader.int32("gpusPerWorker", 0);
  pool.workers = reader.int32("workers", 0);
  pool.max_concurrency = reader.int32("maxConcurrency", 0);
  pool.slots = reader.int32("slots", 0);
  pool.service_rate_per_s = reader.number("serviceRatePerS");
  pool.kv_cache_tokens = reader.integer("kvCacheTokens", 0, INT64_MAX);
  if (reader.has("packing")) {
    pool.packing = reader.unwrap(dispatch::packing_model_from_json(reader.require("packing"), path + ".packing"));
  }
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return pool;
}

Result<Predicted> read_predicted(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Predicted predicted;
  predicted.ttft_s = reader.number("ttftS");
  predicted.tpot_s = reader.number("tpotS");
  predicted.requests_per_s = reader.number("requestsPerS");
  predicted.utilisation = reader.number("utilisation");
  predicted.cost_per_hour = reader.number("costPerHour");
  predicted.gpus = reader.int32("gpus", 0);
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return predicted;
}

Result<Reason> read_reason(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Reason reason{reader.string("code"), reader.string("message"), {}};
  if (reader.given("pass")) reason.pass = reader.string("pass");
  const json& inputs = reader.require("inputs");
  JsonReader input_reader(inputs, reader.path_of("inputs"));
  if (inputs.is_object()) {
    for (const auto& item : inputs.items()) reason.inputs[item.key()] = input_reader.string(item.key().c_str());
  }
  reader.take(input_reader.finish());
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return reason;
}

Result<Hint> read_hint(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Hint hint;
  hint.status = read_enum(reader, "status", {Truth::kTrue, Truth::kFalse, Truth::kUnknown});
  hint.reason = reader.string("reason");
  hint.message = reader.string("message");
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return hint;
}

void read_pools(JsonReader& reader, const char* key, std::vector<PoolPlan>& pools) {
  reader.list(key, [&](const json& pool, const std::string& path) { pools.push_back(reader.unwrap(read_pool(pool, path))); });
}

Result<ServicePlan> read_service_plan(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  ServicePlan plan;
  plan.id = reader.unwrap(read_service_id(reader.require("id"), reader.path_of("id")));
  plan.generation = reader.integer("generation", 0, INT64_MAX);
  plan.strategy =
      read_enum(reader, "strategy", {Strategy::kAuto, Strategy::kReplicated, Strategy::kDisaggregated, Strategy::kChained});
  read_pools(reader, "pools", plan.pools);
  read_pools(reader, "recommendedPools", plan.recommended_pools);
  plan.predicted = reader.unwrap(read_predicted(reader.require("predicted"), reader.path_of("predicted")));
  if (reader.find("forecast") != nullptr) plan.forecast = child<DemandForecast>(reader, "forecast", read_forecast);
  if (reader.find("considered") != nullptr) {
    reader.list("considered", [&](const json& considered, const std::string& considered_path) {
      plan.considered.push_back(reader.unwrap(read_considered(considered, considered_path)));
    });
  }
  reader.list("reasons", [&](const json& reason, const std::string& reason_path) {
    plan.reasons.push_back(reader.unwrap(read_reason(reason, reason_path)));
  });
  const std::pair<const char*, Hint*> hints[] = {{"feasible", &plan.feasible},
                                                 {"ableToScale", &plan.able_to_scale},
                                                 {"metricsFresh", &plan.metrics_fresh},
                                                 {"sloMet", &plan.slo_met}};
  for (const auto& [key, hint] : hints) *hint = reader.unwrap(read_hint(reader.require(key), reader.path_of(key)));
  plan.memory = reader.unwrap(read_memory(reader.require("memory"), reader.path_of("memory")));
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return plan;
}

Result<Denied> read_denied(const json& value, const std::string& path) {
  JsonReader reader(value, path);
  Denied denied;
  denied.id = reader.unwrap(read_service_id(reader.require("id"), reader.path_of("id")));
  denied.code = reader.string("code");
  denied.message = reader.string("message");
  denied.accelerator = reader.string("accelerator");
  denied.wanted_workers = reader.int32("wantedWorkers", 0);
  denied.granted_workers = reader.int32("grantedWorkers", 0);
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return denied;
}

}  // namespace

Json fields_of(const ServicePlan& plan) {
  Json reasons = Json::array();
  for (const Reason& reason : plan.reasons) reasons.push_back(fields_of(reason));
  Json object{{"id", fields_of(plan.id)},
              {"generation", plan.generation},
              {"strategy", to_string(plan.strategy)},
              {"pools", fields_of(plan.pools)},
              {"recommendedPools", fields_of(plan.recommended_pools)},
              {"predicted", fields_of(plan.predicted)}};
  if (plan.forecast) object["forecast"] = fields_of(*plan.forecast);
  if (!plan.considered.empty()) {
    Json considered = Json::array();
    for (const Considered& entry : plan.considered) considered.push_back(fields_of(entry));
    object["considered"] = std::move(considered);
  }
  object["reasons"] = std::move(reasons);
  object["feasible"] = fields_of(plan.feasible);
  object["ableToScale"] = fields_of(plan.able_to_scale);
  object["metricsFresh"] = fields_of(plan.metrics_fresh);
  object["sloMet"] = fields_of(plan.slo_met);
  object["memory"] = fields_of(plan.memory);
  return object;
}

Json fields_of(const Plan& plan) {
  Json services = Json::array();
  for (const ServicePlan& service : plan.services) services.push_back(fields_of(service));
  Json denied = Json::array();
  for (const Denied& entry : plan.denied) {
    denied.push_back(Json{{"id", fields_of(entry.id)},
                          {"code", entry.code},
                          {"message", entry.message},
                          {"accelerator", entry.accelerator},
                          {"wantedWorkers", entry.wanted_workers},
                          {"grantedWorkers", entry.granted_workers}});
  }
  return Json{{"atS", number(plan.at_s)}, {"services", std::move(services)}, {"denied", std::move(denied)}};
}

Result<Plan> read_plan(const json& document) {
  JsonReader reader(document, "");
  Plan plan;
  plan.at_s = reader.number("atS");
  reader.list("services", [&](const json& service, const std::string& path) {
    plan.services.push_back(reader.unwrap(read_service_plan(service, path)));
  });
  reader.list("denied", [&](const json& denied, const std::string& path) {
    plan.denied.push_back(reader.unwrap(read_denied(denied, path)));
  });
  WINDLASS_RETURN_IF_ERROR(reader.finish());
  return plan;
}

}  // namespace windlass::planner
