// Objects from JSON. Defaults are not repeated here: they stand in crds/ and have been filled in before.
#include "controller/api/json_read.h"

#include <fmt/format.h>

#include "controller/api/json.h"
#include "controller/api/quantity.h"
#include "planner/base/duration.h"
#include "planner/perf/profile_yaml.h"

namespace windlass::api {

using nlohmann::json;

FieldReader::FieldReader(const json& value, std::string path, std::optional<Error>* error)
    : value_(&value), path_(std::move(path)), error_(error) {
  if (!value.is_object() && !value.is_null() && !error_->has_value()) {
    *error_ = Error{ErrorCode::kInvalidArgument, fmt::format("{}: found {}, allowed is an object", path_, value.type_name())};
  }
}

const json* FieldReader::find(const char* key) const {
  if (!value_->is_object()) return nullptr;
  const auto found = value_->find(key);
  return found == value_->end() || found->is_null() ? nullptr : &*found;
}

void FieldReader::complain(const char* key, const std::string& what) const {
  if (error_->has_value()) return;
  *error_ = Error{ErrorCode::kInvalidArgument, fmt::format("{}{}{}: {}", path_, path_.empty() ? "" : ".", key, what)};
}

FieldReader FieldReader::child(const char* key) const {
  static const json kNothing = json::object();
  const json* found = find(key);
  return FieldReader(found == nullptr ? kNothing : *found, path_.empty() ? key : path_ + "." + key, error_);
}

std::vector<FieldReader> FieldReader::children(const char* key) const {
  std::vector<FieldReader> readers;
  const json* found = find(key);
  if (found == nullptr) return readers;
  if (!found->is_array()) {
    complain(key, fmt::format("found {}, allowed is a list", found->type_name()));
    return readers;
  }
  for (std::size_t i = 0; i < found->size(); ++i) {
    readers.emplace_back((*found)[i], fmt::format("{}{}{}[{}]", path_, path_.empty() ? "" : ".", key, i), error_);
  }
  return readers;
}

std::string FieldReader::text(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return "";
  if (found->is_string()) return found->get<std::string>();
  complain(key, fmt::format("found {}, allowed is text", found->type_name()));
  return "";
}

std::vector<std::string> FieldReader::texts(const char* key) const {
  std::vector<std::string> values;
  const json* found = find(key);
  if (found == nullptr) return values;
  bool fits = found->is_array();
  if (fits) {
    for (const json& item : *found) {
      fits = fits && item.is_string();
      if (item.is_string()) values.push_back(item.get<std::string>());
    }
  }
  if (!fits) complain(key, "allowed is a list of texts");
  return values;
}

std::map<std::string, std::string> FieldReader::text_map(const char* key) const {
  std::map<std::string, std::string> values;
  const json* found = find(key);
  if (found == nullptr) return values;
  bool fits = found->is_object();
  if (fits) {
    for (const auto& [name, item] : found->items()) {
      fits = fits && item.is_string();
      if (item.is_string()) values.emplace(name, item.get<std::string>());
    }
  }
  if (!fits) complain(key, "allowed is a map of texts");
  return values;
}

std::string FieldReader::json_text(const char* key) const {
  const json* found = find(key);
  return found == nullptr ? "" : found->dump();
}

bool FieldReader::boolean(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return false;
  if (found->is_boolean()) return found->get<bool>();
  complain(key, fmt::format("found {}, allowed are true and false", found->type_name()));
  return false;
}

std::optional<std::int64_t> FieldReader::integer(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_number_integer()) return found->get<std::int64_t>();
  complain(key, fmt::format("found {}, allowed is an integer", found->dump()));
  return std::nullopt;
}

std::optional<double> FieldReader::fraction(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  const auto parsed = parse_fraction(text(key));
  if (parsed.ok()) return *parsed;
  complain(key, parsed.error().message);
  return std::nullopt;
}

std::optional<double> FieldReader::coefficient(const char* key) const {
  if (!has(key)) return std::nullopt;
  const std::string found = text(key);
  if (const auto number = planner::parse_coefficient(found)) return number;
  complain(key, fmt::format("found \"{}\", allowed is a decimal number", found));
  return std::nullopt;
}

std::optional<double> FieldReader::duration_s(const char* key) const { return duration_s(key, 0); }

std::optional<double> FieldReader::measured_duration_s(const char* key) const {
  return duration_s(key, sign_of(bound(key)).size());
}

Bound FieldReader::bound(const char* key) const {
  const std::string found = has(key) ? text(key) : "";
  return found.starts_with('<') ? Bound::kBelow : found.starts_with('>') ? Bound::kAbove : Bound::kNone;
}

std::optional<double> FieldReader::duration_s(const char* key, std::size_t from) const {
  if (!has(key)) return std::nullopt;
  const auto parsed = parse_duration_s(text(key).substr(from));
  if (parsed.ok()) return *parsed;
  complain(key, parsed.error().message);
  return std::nullopt;
}

std::optional<double> FieldReader::quantity(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (found->is_number()) return found->get<double>();
  const auto parsed = parse_quantity(text(key));
  if (parsed.ok()) return *parsed;
  complain(key, parsed.error().message);
  return std::nullopt;
}

std::optional<std::int64_t> FieldReader::bytes(const char* key) const {
  if (!has(key)) return std::nullopt;
  const auto parsed = parse_bytes(text(key));
  if (parsed.ok()) return *parsed;
  complain(key, parsed.error().message);
  return std::nullopt;
}

ObjectMeta read_meta(const FieldReader& in) {
  ObjectMeta meta;
  meta.name = in.text("name");
  meta.name_space = in.text("namespace");
  meta.uid = in.text("uid");
  meta.resource_version = in.text("resourceVersion");
  meta.generation = in.integer("generation").value_or(0);
  meta.creation_timestamp = in.text("creationTimestamp");
  meta.deletion_timestamp = in.text("deletionTimestamp");
  meta.labels = in.text_map("labels");
  meta.annotations = in.text_map("annotations");
  meta.finalizers = in.texts("finalizers");
  for (const FieldReader& owner : in.children("ownerReferences")) {
    meta.owner_references.push_back(OwnerReference{owner.text("apiVersion"), owner.text("kind"), owner.text("name"),
                                                   owner.text("uid"), owner.boolean("controller"),
                                                   owner.boolean("blockOwnerDeletion")});
  }
  return meta;
}

std::vector<Condition> read_conditions(const FieldReader& in) {
  std::vector<Condition> conditions;
  for (const FieldReader& item : in.children("conditions")) {
    Condition condition;
    condition.type = item.text("type");
    condition.status = item.one_of("status", {ConditionStatus::kTrue, ConditionStatus::kFalse, ConditionStatus::kUnknown})
                           .value_or(ConditionStatus::kUnknown);
    condition.observed_generation = item.integer("observedGeneration").value_or(0);
    condition.last_transition_time = item.text("lastTransitionTime");
    condition.reason = item.text("reason");
    condition.message = item.text("message");
    conditions.push_back(std::move(condition));
  }
  return conditions;
}

namespace {

std::optional<KeyRef> read_key_ref(const FieldReader& in, const char* key) {
  if (!in.has(key)) return std::nullopt;
  const FieldReader ref = in.child(key);
  return KeyRef{ref.text("name"), ref.text("key")};
}

std::optional<Strategy> read_strategy(const FieldReader& in) {
  return in.one_of("strategy", {Strategy::kAuto, Strategy::kReplicated, Strategy::kDisaggregated, Strategy::kChained});
}

ModelSpec read_model(const FieldReader& in) {
  ModelSpec model;
  model.served_name = in.text("servedName");
  model.uri = in.text("uri");
  model.architecture = in.text("architecture");
  model.config_inline_json = in.child("config").json_text("inline");
  model.config_map_key_ref = read_key_ref(in.child("config"), "configMapKeyRef");
  model.max_context_tokens = in.integer("maxContextTokens");
  model.dtype = in.one_of("dtype", {Dtype::kFP32, Dtype::kBF16, Dtype::kFP16, Dtype::kFP8, Dtype::kINT8});
  return model;
}

EngineSpec read_engine(const FieldReader& in) {
  EngineSpec engine;
  engine.type = in.one_of("type", {EngineType::kWindlass, EngineType::kVLLM, EngineType::kSGLang, EngineType::kTensorRTLLM,
                                   EngineType::kLlamaCpp})
                    .value_or(engine.type);
  engine.image = in.text("image");
  engine.program = in.text("program");
  engine.args = in.texts("args");
  for (const FieldReader& item : in.children("env")) {
    const FieldReader from = item.child("valueFrom");
    engine.env.push_back(EnvVar{item.text("name"), item.text("value"), read_key_ref(from, "secretKeyRef"),
                                read_key_ref(from, "configMapKeyRef")});
  }
  engine.pod_template_json = in.json_text("podTemplate");
  engine.probe = in.one_of("probe", {Probe::kAuto, Probe::kOff}).value_or(engine.probe);
  return engine;
}

ScalingSpec read_scaling(const FieldReader& in) {
  ScalingSpec scaling;
  scaling.strategy = read_strategy(in).value_or(scaling.strategy);
  scaling.min_workers = in.integer("minWorkers").value_or(scaling.min_workers);
  scaling.max_workers = in.integer("maxWorkers");
  scaling.max_cost_per_hour = in.fraction("maxCostPerHour");
  scaling.idle_to_zero_after_s = in.duration_s("idleToZeroAfter");
  scaling.drain_timeout_s = in.duration_s("drainTimeout").value_or(scaling.drain_timeout_s);
  const FieldReader behavior = in.child("behavior");
  scaling.scale_up_stabilization_s =
      behavior.child("scaleUp").duration_s("stabilizationWindow").value_or(scaling.scale_up_stabilization_s);
  scaling.scale_down_stabilization_s =
      behavior.child("scaleDown").duration_s("stabilizationWindow").value_or(scaling.scale_down_stabilization_s);
  scaling.scale_up_max_per_minute = behavior.child("scaleUp").integer("maxWorkersPerMinute");
  scaling.scale_down_max_per_minute = behavior.child("scaleDown").integer("maxWorkersPerMinute");
  scaling.tolerance = behavior.fraction("tolerance").value_or(scaling.tolerance);
  scaling.mode = in.one_of("mode", {ScalingMode::kApply, ScalingMode::kRecommend, ScalingMode::kPaused}).value_or(scaling.mode);
  return scaling;
}

ModelServiceSpec read_service_spec(const FieldReader& in) {
  ModelServiceSpec spec;
  spec.model = read_model(in.child("model"));
  spec.engine = read_engine(in.child("engine"));
  const FieldReader slo = in.child("slo");
  spec.slo.time_to_first_token_s = slo.duration_s("timeToFirstToken").value_or(0);
  spec.slo.time_per_output_token_s = slo.duration_s("timePerOutputToken").value_or(0);
  spec.slo.percentile = slo.fraction("percentile").value_or(spec.slo.percentile);
  spec.slo.window_s = slo.duration_s("window").value_or(spec.slo.window_s);
  const FieldReader workload = in.child("workload");
  spec.workload.requests_per_s = workload.fraction("requestsPerSecond");
  spec.workload.input_tokens = workload.integer("inputTokens");
  spec.workload.output_tokens = workload.integer("outputTokens");
  for (const FieldReader& item : in.children("accelerators")) {
    spec.accelerators.push_back(AcceleratorChoice{item.text("class"), item.integer("maxGPUs")});
  }
  spec.scaling = read_scaling(in.child("scaling"));
  spec.priority_class_name = in.text("priorityClassName");
  return spec;
}

PlanStatus read_plan(const FieldReader& in) {
  PlanStatus plan;
  plan.strategy = read_strategy(in);
  for (const FieldReader& item : in.children("pools")) {
    PoolStatus pool;
    pool.name = item.text("name");
    pool.role = item.one_of("role", {PoolRole::kUnified, PoolRole::kPrefill, PoolRole::kDecode}).value_or(pool.role);
    pool.accelerator = item.text("accelerator");
    pool.gpus_per_worker = item.integer("gpusPerWorker").value_or(0);
    pool.workers = item.integer("workers").value_or(0);
    pool.blocks = item.text("blocks");
    plan.pools.push_back(std::move(pool));
  }
  const FieldReader predicted = in.child("predicted");
  plan.predicted.time_to_first_token_s = predicted.duration_s("timeToFirstToken");
  plan.predicted.time_per_output_token_s = predicted.duration_s("timePerOutputToken");
  plan.predicted.requests_per_s = predicted.fraction("requestsPerSecond");
  plan.predicted.attainment = predicted.fraction("attainment");
  for (const FieldReader& item : in.children("reasons")) {
    plan.reasons.push_back(Reason{item.text("code"), item.text("message"), item.text_map("inputs")});
  }
  return plan;
}

ModelServiceStatus read_service_status(const FieldReader& in) {
  ModelServiceStatus status;
  status.observed_generation = in.integer("observedGeneration").value_or(0);
  status.served_name = in.text("servedName");
  status.selector = in.text("selector");
  status.plan = read_plan(in.child("plan"));
  const FieldReader workers = in.child("workers");
  status.workers.current = workers.integer("current").value_or(0);
  status.workers.desired = workers.integer("desired").value_or(0);
  status.workers.ready = workers.integer("ready").value_or(0);
  status.workers.starting = workers.integer("starting").value_or(0);
  status.workers.draining = workers.integer("draining").value_or(0);
  status.gpus = in.integer("gpus").value_or(0);
  status.cost_per_hour = in.fraction("costPerHour");
  const FieldReader load = in.child("load");
  status.load.requests_per_s = load.fraction("requestsPerSecond");
  status.load.input_tokens = load.fraction("inputTokens");
  status.load.output_tokens = load.fraction("outputTokens");
  status.load.queued = load.integer("queued");
  const FieldReader slo = in.child("slo");
  status.slo.attainment = slo.fraction("attainment");
  status.slo.time_to_first_token_s = slo.measured_duration_s("timeToFirstToken");
  status.slo.time_per_output_token_s = slo.measured_duration_s("timePerOutputToken");
  status.slo.ttft_bound = slo.bound("timeToFirstToken");
  status.slo.tpot_bound = slo.bound("timePerOutputToken");
  status.conditions = read_conditions(in);
  return status;
}

std::optional<LinkSpec> read_link(const FieldReader& in, const char* key) {
  if (!in.has(key)) return std::nullopt;
  const FieldReader link = in.child(key);
  return LinkSpec{link.quantity("bandwidthBytesPerSecond").value_or(0), link.fraction("latencyMicroseconds").value_or(0) / 1e6};
}

AcceleratorClassSpec read_class_spec(const FieldReader& in) {
  AcceleratorClassSpec spec;
  spec.node_selector = in.text_map("nodeSelector");
  if (const std::string name = in.text("resourceName"); !name.empty()) spec.resource_name = name;
  spec.memory_bytes = in.bytes("memory").value_or(0);
  const FieldReader flops = in.child("peakFlopsPerSecond");
  static constexpr std::pair<const char*, Dtype> kDtypes[] = {
      {"fp32", Dtype::kFP32}, {"bf16", Dtype::kBF16}, {"fp16", Dtype::kFP16}, {"fp8", Dtype::kFP8}, {"int8", Dtype::kINT8}};
  for (const auto& [key, dtype] : kDtypes) {
    if (const auto value = flops.quantity(key)) spec.peak_flops_per_s[dtype] = *value;
  }
  spec.memory_bandwidth_bytes_per_s = in.quantity("memoryBandwidthBytesPerSecond").value_or(0);
  spec.intra_node_link = read_link(in, "intraNodeLink");
  spec.inter_node_link = read_link(in, "interNodeLink");
  spec.gpus_per_node = in.integer("gpusPerNode").value_or(spec.gpus_per_node);
  spec.price_per_hour = in.fraction("pricePerHour");
  spec.power_watts = in.fraction("powerWatts");
  const FieldReader capacity = in.child("capacity");
  spec.capacity.mode = capacity.one_of("mode", {CapacityMode::kObserved, CapacityMode::kElastic}).value_or(spec.capacity.mode);
  spec.capacity.max_gpus = capacity.integer("maxGPUs");
  return spec;
}

Error of_object(const char* kind, const ObjectMeta& meta, const Error& error) {
  const std::string name = meta.name_space.empty() ? meta.name : meta.name_space + "/" + meta.name;
  return error.within(fmt::format("{} {}", kind, name));
}

}  // namespace

Result<ObjectMeta> object_meta_from_json(const json& metadata) {
  std::optional<Error> error;
  ObjectMeta meta = read_meta(FieldReader(metadata, "metadata", &error));
  if (error.has_value()) return *error;
  return meta;
}

Result<ModelService> model_service_from_json(const json& object) {
  std::optional<Error> error;
  const FieldReader in(object, "", &error);
  ModelService service;
  service.metadata = read_meta(in.child("metadata"));
  service.spec = read_service_spec(in.child("spec"));
  service.status = read_service_status(in.child("status"));
  if (error.has_value()) return of_object(ModelService::kKind, service.metadata, *error);
  return service;
}

Result<AcceleratorClass> accelerator_class_from_json(const json& object) {
  std::optional<Error> error;
  const FieldReader in(object, "", &error);
  AcceleratorClass accelerator;
  accelerator.metadata = read_meta(in.child("metadata"));
  accelerator.spec = read_class_spec(in.child("spec"));
  const FieldReader status = in.child("status");
  accelerator.status.observed_generation = status.integer("observedGeneration").value_or(0);
  accelerator.status.nodes = status.integer("nodes").value_or(0);
  accelerator.status.allocatable_gpus = status.integer("allocatableGPUs").value_or(0);
  accelerator.status.used_gpus = status.integer("usedGPUs").value_or(0);
  accelerator.status.pending_gpus = status.integer("pendingGPUs").value_or(0);
  accelerator.status.conditions = read_conditions(status);
  if (error.has_value()) return of_object(AcceleratorClass::kKind, accelerator.metadata, *error);
  return accelerator;
}

}  // namespace windlass::api
