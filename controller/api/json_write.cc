// Objects to JSON. What is absent or empty is left out, so that a patch or an applied object says only what is meant.
#include <cmath>

#include <nlohmann/json.hpp>

#include "controller/api/json.h"
#include "controller/api/quantity.h"
#include "planner/base/duration.h"

namespace windlass::api {
namespace {

using nlohmann::json;

// An integer where it is whole, else a decimal string: never a float.
json fraction(const std::string& text) {
  if (text.find('.') != std::string::npos || text.size() > 15) return text;
  return std::stoll(text);
}

void put(json& out, const char* key, const std::string& value) {
  if (!value.empty()) out[key] = value;
}
template <class T>
void put(json& out, const char* key, const std::optional<T>& value) {
  if (value.has_value()) out[key] = *value;
}
void put_fraction(json& out, const char* key, const std::optional<double>& value) {
  if (value.has_value()) out[key] = fraction(print_fraction(*value));
}
// A measurement may be NaN or infinite; it is then unknown, and left out.
void put_rounded(json& out, const char* key, const std::optional<double>& value) {
  if (value.has_value() && std::isfinite(*value)) out[key] = fraction(print_fraction_rounded(*value));
}
void put_rounded_duration(json& out, const char* key, const std::optional<double>& seconds, Bound bound = Bound::kNone) {
  if (seconds.has_value() && std::isfinite(*seconds)) out[key] = std::string(sign_of(bound)) + print_duration_rounded(*seconds);
}
void put_object(json& out, const char* key, json value) {
  if (!value.empty()) out[key] = std::move(value);
}
// JSON text that came from an object; one that no longer parses is a bug of ours and is left out.
void put_json(json& out, const char* key, const std::string& text) {
  if (text.empty()) return;
  json value = json::parse(text, nullptr, false);
  if (!value.is_discarded()) out[key] = std::move(value);
}
void put_key_ref(json& out, const char* key, const std::optional<KeyRef>& ref) {
  if (ref.has_value()) out[key] = {{"name", ref->name}, {"key", ref->key}};
}
void put_conditions(json& out, const std::vector<Condition>& conditions) {
  for (const Condition& condition : conditions) out["conditions"].push_back(to_json(condition));
}
void put_link(json& out, const char* key, const std::optional<LinkSpec>& link) {
  if (!link.has_value()) return;
  out[key] = {{"bandwidthBytesPerSecond", print_quantity(link->bandwidth_bytes_per_s)},
              {"latencyMicroseconds", fraction(print_fraction(std::round(link->latency_s * 1e12) / 1e6))}};
}

const char* flops_key(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFP32: return "fp32";
    case Dtype::kBF16: return "bf16";
    case Dtype::kFP16: return "fp16";
    case Dtype::kFP8: return "fp8";
    case Dtype::kINT8: return "int8";
  }
  return "fp32";
}

json engine_json(const EngineSpec& engine) {
  json out = {{"type", to_string(engine.type)}};
  put(out, "image", engine.image);
  put(out, "program", engine.program);
  if (!engine.args.empty()) out["args"] = engine.args;
  for (const EnvVar& variable : engine.env) {
    json item = {{"name", variable.name}};
    put(item, "value", variable.value);
    json from = json::object();
    put_key_ref(from, "secretKeyRef", variable.secret_key_ref);
    put_key_ref(from, "configMapKeyRef", variable.config_map_key_ref);
    put_object(item, "valueFrom", std::move(from));
    out["env"].push_back(std::move(item));
  }
  put_json(out, "podTemplate", engine.pod_template_json);
  if (engine.probe != Probe::kAuto) out["probe"] = to_string(engine.probe);
  return out;
}

json scaling_json(const ScalingSpec& scaling) {
  json out = {{"strategy", to_string(scaling.strategy)},
              {"minWorkers", scaling.min_workers},
              {"drainTimeout", print_duration(scaling.drain_timeout_s)},
              {"mode", to_string(scaling.mode)}};
  put(out, "maxWorkers", scaling.max_workers);
  put_fraction(out, "maxCostPerHour", scaling.max_cost_per_hour);
  if (scaling.idle_to_zero_after_s.has_value()) out["idleToZeroAfter"] = print_duration(*scaling.idle_to_zero_after_s);
  out["behavior"]["scaleUp"]["stabilizationWindow"] = print_duration(scaling.scale_up_stabilization_s);
  out["behavior"]["scaleDown"]["stabilizationWindow"] = print_duration(scaling.scale_down_stabilization_s);
  put(out["behavior"]["scaleUp"], "maxWorkersPerMinute", scaling.scale_up_max_per_minute);
  put(out["behavior"]["scaleDown"], "maxWorkersPerMinute", scaling.scale_down_max_per_minute);
  out["behavior"]["tolerance"] = fraction(print_fraction(scaling.tolerance));
  return out;
}

json plan_json(const PlanStatus& plan) {
  json out = json::object();
  if (plan.strategy.has_value()) out["strategy"] = to_string(*plan.strategy);
  for (const PoolStatus& pool : plan.pools) {
    json item = {{"name", pool.name},
                 {"role", to_string(pool.role)},
                 {"accelerator", pool.accelerator},
                 {"gpusPerWorker", pool.gpus_per_worker},
                 {"workers", pool.workers}};
    put(item, "blocks", pool.blocks);
    out["pools"].push_back(std::move(item));
  }
  json predicted = json::object();
  put_rounded_duration(predicted, "timeToFirstToken", plan.predicted.time_to_first_token_s);
  put_rounded_duration(predicted, "timePerOutputToken", plan.predicted.time_per_output_token_s);
  put_rounded(predicted, "requestsPerSecond", plan.predicted.requests_per_s);
  put_rounded(predicted, "attainment", plan.predicted.attainment);
  put_object(out, "predicted", std::move(predicted));
  for (const Reason& reason : plan.reasons) {
    json item = {{"code", reason.code}, {"message", reason.message}};
    if (!reason.inputs.empty()) item["inputs"] = reason.inputs;
    out["reasons"].push_back(std::move(item));
  }
  return out;
}

template <class T>
json whole_object(const T& object) {
  json out = {
      {"apiVersion", kApiVersion}, {"kind", T::kKind}, {"metadata", to_json(object.metadata)}, {"spec", to_json(object.spec)}};
  if (!(object.status == decltype(object.status){})) out["status"] = to_json(object.status);
  return out;
}

}  // namespace

json to_json(const ObjectMeta& metadata) {
  json out = {{"name", metadata.name}};
  put(out, "namespace", metadata.name_space);
  put(out, "uid", metadata.uid);
  put(out, "resourceVersion", metadata.resource_version);
  if (metadata.generation != 0) out["generation"] = metadata.generation;
  put(out, "creationTimestamp", metadata.creation_timestamp);
  put(out, "deletionTimestamp", metadata.deletion_timestamp);
  if (!metadata.labels.empty()) out["labels"] = metadata.labels;
  if (!metadata.annotations.empty()) out["annotations"] = metadata.annotations;
  if (!metadata.finalizers.empty()) out["finalizers"] = metadata.finalizers;
  for (const OwnerReference& owner : metadata.owner_references) {
    json item = {{"apiVersion", owner.api_version}, {"kind", owner.kind}, {"name", owner.name}, {"uid", owner.uid}};
    if (owner.controller) item["controller"] = true;
    if (owner.block_owner_deletion) item["blockOwnerDeletion"] = true;
    out["ownerReferences"].push_back(std::move(item));
  }
  return out;
}

json to_json(const Condition& condition) {
  json out = {{"type", condition.type},
              {"status", to_string(condition.status)},
              {"lastTransitionTime", condition.last_transition_time},
              {"reason", condition.reason},
              {"message", condition.message}};
  if (condition.observed_generation != 0) out["observedGeneration"] = condition.observed_generation;
  return out;
}

json to_json(const ModelServiceSpec& spec) {
  json model = {{"uri", spec.model.uri}};
  put(model, "servedName", spec.model.served_name);
  put(model, "architecture", spec.model.architecture);
  json config = json::object();
  put_json(config, "inline", spec.model.config_inline_json);
  put_key_ref(config, "configMapKeyRef", spec.model.config_map_key_ref);
  put_object(model, "config", std::move(config));
  put(model, "maxContextTokens", spec.model.max_context_tokens);
  if (spec.model.dtype.has_value()) model["dtype"] = to_string(*spec.model.dtype);

  json workload = json::object();
  put_fraction(workload, "requestsPerSecond", spec.workload.requests_per_s);
  put(workload, "inputTokens", spec.workload.input_tokens);
  put(workload, "outputTokens", spec.workload.output_tokens);

  json out = {{"model", std::move(model)},
              {"engine", engine_json(spec.engine)},
              {"slo",
               {{"timeToFirstToken", print_duration(spec.slo.time_to_first_token_s)},
                {"timePerOutputToken", print_duration(spec.slo.time_per_output_token_s)},
                {"percentile", fraction(print_fraction(spec.slo.percentile))},
                {"window", print_duration(spec.slo.window_s)}}},
              {"scaling", scaling_json(spec.scaling)}};
  put_object(out, "workload", std::move(workload));
  for (const AcceleratorChoice& choice : spec.accelerators) {
    json item = {{"class", choice.accelerator_class}};
    put(item, "maxGPUs", choice.max_gpus);
    out["accelerators"].push_back(std::move(item));
  }
  put(out, "priorityClassName", spec.priority_class_name);
  return out;
}

json to_json(const ModelServiceStatus& status) {
  json out = {{"observedGeneration", status.observed_generation},
              {"workers",
               {{"current", status.workers.current},
                {"desired", status.workers.desired},
                {"ready", status.workers.ready},
                {"starting", status.workers.starting},
                {"draining", status.workers.draining}}},
              {"gpus", status.gpus}};
  put(out, "servedName", status.served_name);
  put(out, "selector", status.selector);
  put_object(out, "plan", plan_json(status.plan));
  put_rounded(out, "costPerHour", status.cost_per_hour);
  json load = json::object();
  put_rounded(load, "requestsPerSecond", status.load.requests_per_s);
  put_rounded(load, "inputTokens", status.load.input_tokens);
  put_rounded(load, "outputTokens", status.load.output_tokens);
  put(load, "queued", status.load.queued);
  put_object(out, "load", std::move(load));
  json slo = json::object();
  put_rounded(slo, "attainment", status.slo.attainment);
  put_rounded_duration(slo, "timeToFirstToken", status.slo.time_to_first_token_s, status.slo.ttft_bound);
  put_rounded_duration(slo, "timePerOutputToken", status.slo.time_per_output_token_s, status.slo.tpot_bound);
  put_object(out, "slo", std::move(slo));
  put_conditions(out, status.conditions);
  return out;
}

json to_json(const AcceleratorClassSpec& spec) {
  json capacity = {{"mode", to_string(spec.capacity.mode)}};
  put(capacity, "maxGPUs", spec.capacity.max_gpus);
  json out = {{"resourceName", spec.resource_name},
              {"memory", print_bytes(spec.memory_bytes)},
              {"memoryBandwidthBytesPerSecond", print_quantity(spec.memory_bandwidth_bytes_per_s)},
              {"gpusPerNode", spec.gpus_per_node},
              {"capacity", std::move(capacity)}};
  if (!spec.node_selector.empty()) out["nodeSelector"] = spec.node_selector;
  for (const auto& [dtype, flops] : spec.peak_flops_per_s) out["peakFlopsPerSecond"][flops_key(dtype)] = print_quantity(flops);
  put_link(out, "intraNodeLink", spec.intra_node_link);
  put_link(out, "interNodeLink", spec.inter_node_link);
  put_fraction(out, "pricePerHour", spec.price_per_hour);
  if (spec.power_watts.has_value()) out["powerWatts"] = std::llround(*spec.power_watts);
  return out;
}

json to_json(const AcceleratorClassStatus& status) {
  json out = {{"observedGeneration", status.observed_generation},
              {"nodes", status.nodes},
              {"allocatableGPUs", status.allocatable_gpus},
              {"usedGPUs", status.used_gpus},
              {"pendingGPUs", status.pending_gpus}};
  put_conditions(out, status.conditions);
  return out;
}

json to_json(const ModelService& object) { return whole_object(object); }
json to_json(const AcceleratorClass& object) { return whole_object(object); }

}  // namespace windlass::api
