// Lists the JSON fields of a Plan. See json_fields.h.
#include "planner/policy/json_fields.h"

namespace windlass::planner {
namespace {

void read_inputs(JsonReader& parent, Reason& reason) {
  const nlohmann::json& inputs = parent.require("inputs");
  JsonReader reader(inputs, parent.path_of("inputs"));
  if (inputs.is_object()) {
    for (const auto& item : inputs.items()) reason.inputs[item.key()] = reader.string(item.key().c_str());
  }
  parent.take(reader.finish());
}

}  // namespace

constexpr auto json_values(JsonType<Truth>) { return std::array{Truth::kTrue, Truth::kFalse, Truth::kUnknown}; }

constexpr auto json_fields(JsonType<Reason>) {
  using T = Reason;
  return json_object(field("code", &T::code), field("message", &T::message),
                     hook([](Json& json, const T& reason) { json["inputs"] = reason.inputs; }, read_inputs),
                     rare("pass", &T::pass));
}

constexpr auto json_fields(JsonType<Yield>) {
  using T = Yield;
  const auto write_packing = [](Json& json, const T& each) {
    if (each.packing != T{}.packing) write_value(json["packing"], each.packing);
  };
  const auto read_packing = [](JsonReader& reader, T& each) {
    if (reader.has("packing"))
      read_value(reader, "packing", each.packing);  // optional: not among the fields that errors list
                                                    // as missing
  };
  return json_object(field("maxConcurrency", &T::max_concurrency, 0), field("slots", &T::slots, 0),
                     field("serviceRatePerS", &T::service_rate_per_s), rare("requestsPerS", &T::requests_per_s),
                     field("kvCacheTokens", &T::kv_cache_tokens, 0), hook(write_packing, read_packing));
}

constexpr auto json_fields(JsonType<Pool>) {
  using T = Pool;
  return json_object(field("name", &T::name), field("role", &T::role), part(&T::spec), field("workers", &T::workers, 0),
                     part(&T::each));
}

constexpr auto json_values(JsonType<Provenance>) { return kAllProvenances; }

constexpr auto json_fields(JsonType<PredictedEnd>) {
  using T = PredictedEnd;
  return json_object(field("ttftS", &T::ttft_s), field("tpotS", &T::tpot_s), field("requestsPerS", &T::requests_per_s));
}

constexpr auto json_fields(JsonType<Predicted>) {
  using T = Predicted;
  return json_object(field("ttftS", &T::ttft_s), field("tpotS", &T::tpot_s), field("requestsPerS", &T::requests_per_s),
                     field("utilisation", &T::utilisation), field("costPerHour", &T::cost_per_hour), field("gpus", &T::gpus, 0),
                     rare("low", &T::low), rare("high", &T::high), rare("from", &T::from));
}

constexpr auto json_fields(JsonType<Hint>) {
  return json_object(field("status", &Hint::status), field("reason", &Hint::reason), field("message", &Hint::message));
}

constexpr auto json_fields(JsonType<DemandForecast>) {
  using T = DemandForecast;
  return json_object(field("method", &T::method), field("horizonS", &T::horizon_s), field("requestsPerS", &T::requests_per_s),
                     field("relativeError", &T::relative_error), field("judged", &T::judged, 0));
}

constexpr auto json_fields(JsonType<Considered>) {
  using T = Considered;
  return json_object(part(&T::spec), field("workers", &T::workers, 0), field("costPerHour", &T::cost_per_hour),
                     field("tpotS", &T::tpot_s), field("ttftS", &T::ttft_s), field("rejected", &T::rejected));
}

constexpr auto json_fields(JsonType<RoleChange>) {
  using T = RoleChange;
  return json_object(field("pool", &T::pool), field("from", &T::from), field("to", &T::to), field("workers", &T::workers, 0),
                     field("why", &T::why));
}

constexpr auto json_fields(JsonType<ServicePlan>) {
  using T = ServicePlan;
  return json_object(field("id", &T::id), field("generation", &T::generation, 0), field("strategy", &T::strategy),
                     field("pools", &T::pools), field("recommendedPools", &T::recommended_pools),
                     rare("roleChanges", &T::role_changes), rare("dispatch", &T::dispatch), field("predicted", &T::predicted),
                     field("forecast", &T::forecast), rare("considered", &T::considered), rare("strategies", &T::strategies),
                     field("reasons", &T::reasons), field("feasible", &T::feasible), field("ableToScale", &T::able_to_scale),
                     field("metricsFresh", &T::metrics_fresh), field("sloMet", &T::slo_met),
                     added("timesKnown", &T::times_known), field("memory", &T::memory));
}

constexpr auto json_fields(JsonType<Denied>) {
  using T = Denied;
  return json_object(field("id", &T::id), field("code", &T::code), field("message", &T::message),
                     field("accelerator", &T::accelerator), field("wantedWorkers", &T::wanted_workers, 0),
                     field("grantedWorkers", &T::granted_workers, 0));
}

constexpr auto json_fields(JsonType<Plan>) {
  return json_object(field("atS", &Plan::at_s), field("services", &Plan::services), field("denied", &Plan::denied));
}

}  // namespace windlass::planner

namespace windlass {

template void write_fields(planner::Json&, const planner::ServicePlan&);
template void write_fields(planner::Json&, const planner::Plan&);
template Result<planner::Plan> read_json(const nlohmann::json&, const std::string&);

}  // namespace windlass
