// Converts the custom resources to and from JSON. One table per type describes its fields; reading, writing and errors use it.
//
// Fields are read in table order, and the first error is reported. The defaults are in crds/ and have been filled in before.
// Absent and empty values are not written, so that a patch or an applied object holds only what is set.
#include "controller/api/json.h"

#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/api/field_reader.h"
#include "controller/api/quantity.h"
#include "planner/base/duration.h"
#include "planner/base/json_table.h"
#include "planner/perf/profile_yaml.h"

namespace windlass::api {
namespace {

using nlohmann::json;

// ---- how a value is represented in JSON

// Returned by write() if there is nothing to write.
constexpr json::value_t kLeftOut = json::value_t::discarded;

// An integer, or a decimal string if it has a fraction; never a float.
json decimal(const std::string& text) {
  if (text.find('.') != std::string::npos || text.size() > 15) return text;
  return std::stoll(text);
}

// A number, or text that encodes one. write() returns kLeftOut for values that are not written.
template <class T>
struct Form {
  std::optional<T> (FieldReader::*reader)(const char* key) const;
  json (*write)(T value);

  template <class>
  [[nodiscard]] std::optional<T> read(const FieldReader& in, const char* key) const {
    return (in.*reader)(key);
  }
};

constexpr Form<double> kFraction = {&FieldReader::fraction, [](double value) { return decimal(print_fraction(value)); }};
// A NaN or infinite measurement is unknown, so it is left out.
constexpr Form<double> kMeasured = {&FieldReader::fraction, [](double value) {
                                      return std::isfinite(value) ? decimal(print_fraction_rounded(value)) : json(kLeftOut);
                                    }};
constexpr Form<double> kWhole = {&FieldReader::fraction, [](double value) { return json(std::llround(value)); }};
constexpr Form<double> kDuration = {&FieldReader::duration_s, [](double value) { return json(print_duration(value)); }};
constexpr Form<double> kMeasuredDuration = {
    &FieldReader::duration_s,
    [](double value) { return std::isfinite(value) ? json(print_duration_rounded(value)) : json(kLeftOut); }};
constexpr Form<double> kQuantity = {&FieldReader::quantity, [](double value) { return json(print_quantity(value)); }};
constexpr Form<double> kCoefficient = {&FieldReader::coefficient,
                                       [](double value) { return json(planner::print_coefficient(value)); }};
constexpr Form<std::int64_t> kBytes = {&FieldReader::bytes, [](std::int64_t value) { return json(print_bytes(value)); }};
// JSON text that came from an object. Text that does not parse would be our own bug; it is left out, like empty text.
constexpr Form<std::string> kJsonText = {&FieldReader::json_text,
                                         [](std::string text) { return json::parse(text, nullptr, false); }};

// The form follows from the type.
struct PlainForm {
  template <class T>
  [[nodiscard]] static std::optional<T> read(const FieldReader& in, const char* key) {
    if constexpr (std::is_same_v<T, std::string>) {
      std::string text = in.text(key);
      return text.empty() ? std::nullopt : std::optional(std::move(text));
    } else if constexpr (std::is_same_v<T, bool>) {
      return in.boolean(key);
    } else if constexpr (std::is_same_v<T, std::int64_t>) {
      return in.integer(key);
    } else if constexpr (std::is_enum_v<T>) {
      return in.one_of<T>(key);
    } else if constexpr (std::is_same_v<T, std::vector<std::string>>) {
      return in.texts(key);
    } else if constexpr (detail::kIsTextMap<T>) {
      return in.text_map(key);
    } else if constexpr (detail::kIsVector<T>) {
      T list;
      for (const FieldReader& item : in.children(key)) read_fields(item, list.emplace_back());
      return list;
    } else {
      if (!in.has(key)) return std::nullopt;
      T object;
      const FieldReader child = in.child(key);
      read_fields(child, object);
      return object;
    }
  }
  template <class T>
  [[nodiscard]] static json write(const T& value) {
    json written;
    write_value(written, value);
    if (written.empty()) return kLeftOut;
    return written;
  }
};

// ---- the parts of a table, in addition to hook()

template <class T>
T inner(JsonType<T>);
template <class T>
T inner(JsonType<std::optional<T>>);

template <class Object, class Value, class How>
struct FormedField {
  const char* key;
  Value Object::*member;
  How form;
  bool only_if_unusual;

  void write(json& out, const Object& object) const {
    const Value& value = object.*member;
    if (only_if_unusual) {
      static const Object usual{};
      if (value == usual.*member) return;
    }
    json written;
    if constexpr (detail::kIsOptional<Value>) {
      written = value ? form.write(*value) : json(kLeftOut);
    } else {
      written = form.write(value);
    }
    if (!written.is_discarded()) out[key] = std::move(written);
  }
  void read(const FieldReader& in, Object& object) const {
    if (auto found = form.template read<decltype(inner(JsonType<Value>{}))>(in, key)) object.*member = *std::move(found);
  }
};

// Always written, except an empty optional, list, map or object.
template <class Object, class Value, class How = PlainForm>
constexpr auto field(const char* key, Value Object::*member, How form = {}) {
  return FormedField<Object, Value, How>{key, member, form, false};
}

// Omitted if it equals its default.
template <class Object, class Value>
constexpr auto rare(const char* key, Value Object::*member) {
  return FormedField<Object, Value, PlainForm>{key, member, {}, true};
}

// Fields in a nested object under this key.
template <class... Fields>
constexpr auto inside(const char* key, Fields... fields) {
  const auto write = [=](json& out, const auto& object) {
    json group = json::object();
    (fields.write(group, object), ...);
    if (!group.empty()) out[key].update(group);
  };
  const auto read = [=](const FieldReader& in, auto& object) {
    const FieldReader group = in.child(key);
    (fields.read(group, object), ...);
  };
  return hook(write, read);
}

// A measured duration, and whether it is only a bound.
constexpr auto bounded(const char* key, std::optional<double> SloStatus::*seconds, Bound SloStatus::*bound) {
  const auto write = [=](json& out, const SloStatus& slo) {
    field(key, seconds, kMeasuredDuration).write(out, slo);
    if (out.contains(key)) out[key] = std::string(sign_of(slo.*bound)) + out[key].template get<std::string>();
  };
  const auto read = [=](const FieldReader& in, SloStatus& slo) {
    slo.*seconds = in.measured_duration_s(key);
    slo.*bound = in.bound(key);
  };
  return hook(write, read);
}

}  // namespace

// ---- the fields

constexpr auto json_fields(JsonType<OwnerReference>) {
  using T = OwnerReference;
  return json_object(field("apiVersion", &T::api_version), field("kind", &T::kind), field("name", &T::name),
                     field("uid", &T::uid), rare("controller", &T::controller),
                     rare("blockOwnerDeletion", &T::block_owner_deletion));
}

constexpr auto json_fields(JsonType<ObjectMeta>) {
  using T = ObjectMeta;
  return json_object(field("name", &T::name), rare("namespace", &T::name_space), rare("uid", &T::uid),
                     rare("resourceVersion", &T::resource_version), rare("generation", &T::generation),
                     rare("creationTimestamp", &T::creation_timestamp), rare("deletionTimestamp", &T::deletion_timestamp),
                     field("labels", &T::labels), field("annotations", &T::annotations), field("finalizers", &T::finalizers),
                     field("ownerReferences", &T::owner_references));
}

constexpr auto json_fields(JsonType<Condition>) {
  using T = Condition;
  return json_object(field("type", &T::type), field("status", &T::status), rare("observedGeneration", &T::observed_generation),
                     field("lastTransitionTime", &T::last_transition_time), field("reason", &T::reason),
                     field("message", &T::message));
}

constexpr auto json_fields(JsonType<KeyRef>) { return json_object(field("name", &KeyRef::name), field("key", &KeyRef::key)); }

constexpr auto json_fields(JsonType<ModelSpec>) {
  using T = ModelSpec;
  return json_object(
      rare("servedName", &T::served_name), field("uri", &T::uri), rare("architecture", &T::architecture),
      inside("config", field("inline", &T::config_inline_json, kJsonText), field("configMapKeyRef", &T::config_map_key_ref)),
      field("maxContextTokens", &T::max_context_tokens), field("dtype", &T::dtype));
}

constexpr auto json_fields(JsonType<EnvVar>) {
  using T = EnvVar;
  return json_object(
      inside("valueFrom"),  // first check that it is an object
      field("name", &T::name), rare("value", &T::value),
      inside("valueFrom", field("secretKeyRef", &T::secret_key_ref), field("configMapKeyRef", &T::config_map_key_ref)));
}

constexpr auto json_fields(JsonType<EngineSpec>) {
  using T = EngineSpec;
  return json_object(field("type", &T::type), rare("image", &T::image), rare("program", &T::program), field("args", &T::args),
                     field("env", &T::env), field("podTemplate", &T::pod_template_json, kJsonText), rare("probe", &T::probe));
}

constexpr auto json_fields(JsonType<SloSpec>) {
  using T = SloSpec;
  return json_object(field("timeToFirstToken", &T::time_to_first_token_s, kDuration),
                     field("timePerOutputToken", &T::time_per_output_token_s, kDuration),
                     field("percentile", &T::percentile, kFraction), field("window", &T::window_s, kDuration));
}

constexpr auto json_fields(JsonType<WorkloadSpec>) {
  using T = WorkloadSpec;
  return json_object(field("requestsPerSecond", &T::requests_per_s, kFraction), field("inputTokens", &T::input_tokens),
                     field("outputTokens", &T::output_tokens));
}

constexpr auto json_fields(JsonType<AcceleratorChoice>) {
  using T = AcceleratorChoice;
  return json_object(field("class", &T::accelerator_class), field("maxGPUs", &T::max_gpus));
}

constexpr auto json_fields(JsonType<ScalingSpec>) {
  using T = ScalingSpec;
  return json_object(
      field("strategy", &T::strategy), field("minWorkers", &T::min_workers), field("maxWorkers", &T::max_workers),
      field("maxCostPerHour", &T::max_cost_per_hour, kFraction), field("idleToZeroAfter", &T::idle_to_zero_after_s, kDuration),
      field("drainTimeout", &T::drain_timeout_s, kDuration),
      inside("behavior", inside("scaleUp", field("stabilizationWindow", &T::scale_up_stabilization_s, kDuration)),
             inside("scaleDown", field("stabilizationWindow", &T::scale_down_stabilization_s, kDuration)),
             inside("scaleUp", field("maxWorkersPerMinute", &T::scale_up_max_per_minute)),
             inside("scaleDown", field("maxWorkersPerMinute", &T::scale_down_max_per_minute)),
             field("tolerance", &T::tolerance, kFraction)),
      field("mode", &T::mode));
}

constexpr auto json_fields(JsonType<ModelServiceSpec>) {
  using T = ModelServiceSpec;
  return json_object(field("model", &T::model), field("engine", &T::engine), field("slo", &T::slo),
                     field("workload", &T::workload), field("accelerators", &T::accelerators), field("scaling", &T::scaling),
                     rare("priorityClassName", &T::priority_class_name));
}

constexpr auto json_fields(JsonType<PoolStatus>) {
  using T = PoolStatus;
  return json_object(field("name", &T::name), field("role", &T::role), field("accelerator", &T::accelerator),
                     field("gpusPerWorker", &T::gpus_per_worker), field("workers", &T::workers), rare("blocks", &T::blocks));
}

constexpr auto json_fields(JsonType<Reason>) {
  using T = Reason;
  return json_object(field("code", &T::code), field("message", &T::message), field("inputs", &T::inputs));
}

constexpr auto json_fields(JsonType<PredictedFigures>) {
  using T = PredictedFigures;
  return json_object(field("timeToFirstToken", &T::time_to_first_token_s, kMeasuredDuration),
                     field("timePerOutputToken", &T::time_per_output_token_s, kMeasuredDuration),
                     field("requestsPerSecond", &T::requests_per_s, kMeasured));
}

constexpr auto json_fields(JsonType<Prediction>) {
  using T = Prediction;
  return json_object(field("timeToFirstToken", &T::time_to_first_token_s, kMeasuredDuration),
                     field("timePerOutputToken", &T::time_per_output_token_s, kMeasuredDuration),
                     field("requestsPerSecond", &T::requests_per_s, kMeasured), field("attainment", &T::attainment, kMeasured),
                     rare("basis", &T::basis), rare("low", &T::low), rare("high", &T::high));
}

constexpr auto json_fields(JsonType<StrategyStatus>) {
  using T = StrategyStatus;
  return json_object(field("strategy", &T::strategy), rare("deployment", &T::deployment),
                     field("costPerHour", &T::cost_per_hour, kMeasured), rare("outcome", &T::outcome));
}

constexpr auto json_fields(JsonType<PlanStatus>) {
  using T = PlanStatus;
  return json_object(field("strategy", &T::strategy), field("pools", &T::pools), field("predicted", &T::predicted),
                     field("reasons", &T::reasons), rare("strategies", &T::strategies), rare("offer", &T::offer));
}

constexpr auto json_fields(JsonType<WorkersStatus>) {
  using T = WorkersStatus;
  return json_object(field("current", &T::current), field("desired", &T::desired), field("ready", &T::ready),
                     field("starting", &T::starting), field("draining", &T::draining));
}

constexpr auto json_fields(JsonType<LoadStatus>) {
  using T = LoadStatus;
  return json_object(field("requestsPerSecond", &T::requests_per_s, kMeasured),
                     field("inputTokens", &T::input_tokens, kMeasured), field("outputTokens", &T::output_tokens, kMeasured),
                     field("queued", &T::queued));
}

constexpr auto json_fields(JsonType<SloStatus>) {
  using T = SloStatus;
  return json_object(field("attainment", &T::attainment, kMeasured),
                     bounded("timeToFirstToken", &T::time_to_first_token_s, &T::ttft_bound),
                     bounded("timePerOutputToken", &T::time_per_output_token_s, &T::tpot_bound));
}

constexpr auto json_fields(JsonType<ModelServiceStatus>) {
  using T = ModelServiceStatus;
  return json_object(field("observedGeneration", &T::observed_generation), rare("servedName", &T::served_name),
                     rare("selector", &T::selector), field("plan", &T::plan), field("workers", &T::workers),
                     field("gpus", &T::gpus), field("costPerHour", &T::cost_per_hour, kMeasured), field("load", &T::load),
                     field("slo", &T::slo), field("conditions", &T::conditions));
}

constexpr auto json_fields(JsonType<LinkSpec>) {
  const auto write_latency = [](json& out, const LinkSpec& link) {
    out["latencyMicroseconds"] = decimal(print_fraction(std::round(link.latency_s * 1e12) / 1e6));
  };
  const auto read_latency = [](const FieldReader& in, LinkSpec& link) {
    link.latency_s = in.fraction("latencyMicroseconds").value_or(0) / 1e6;
  };
  return json_object(field("bandwidthBytesPerSecond", &LinkSpec::bandwidth_bytes_per_s, kQuantity),
                     hook(write_latency, read_latency));
}

constexpr auto json_fields(JsonType<CapacitySpec>) {
  return json_object(field("mode", &CapacitySpec::mode), field("maxGPUs", &CapacitySpec::max_gpus));
}

constexpr auto json_fields(JsonType<Toleration>) {
  return json_object(rare("key", &Toleration::key), field("operator", &Toleration::comparison),
                     rare("value", &Toleration::value), rare("effect", &Toleration::effect));
}

constexpr auto json_fields(JsonType<AcceleratorClassSpec>) {
  using T = AcceleratorClassSpec;
  constexpr std::array kDtypes = {"fp32", "bf16", "fp16", "fp8", "int8"};  // indexed by enumerator
  const auto write_flops = [=](json& out, const T& spec) {
    for (const auto& [dtype, flops] : spec.peak_flops_per_s) {
      out["peakFlopsPerSecond"][kDtypes[static_cast<std::size_t>(dtype)]] = print_quantity(flops);
    }
  };
  const auto read_flops = [=](const FieldReader& in, T& spec) {
    const FieldReader flops = in.child("peakFlopsPerSecond");
    for (std::size_t i = 0; i < kDtypes.size(); ++i) {
      if (const auto value = flops.quantity(kDtypes[i])) spec.peak_flops_per_s[static_cast<Dtype>(i)] = *value;
    }
  };
  return json_object(field("nodeSelector", &T::node_selector), rare("tolerations", &T::tolerations),
                     field("resourceName", &T::resource_name), field("memory", &T::memory_bytes, kBytes),
                     hook(write_flops, read_flops),
                     field("memoryBandwidthBytesPerSecond", &T::memory_bandwidth_bytes_per_s, kQuantity),
                     field("intraNodeLink", &T::intra_node_link), field("interNodeLink", &T::inter_node_link),
                     field("gpusPerNode", &T::gpus_per_node), field("pricePerHour", &T::price_per_hour, kFraction),
                     field("powerWatts", &T::power_watts, kWhole), field("capacity", &T::capacity));
}

constexpr auto json_fields(JsonType<AcceleratorClassStatus>) {
  using T = AcceleratorClassStatus;
  return json_object(field("observedGeneration", &T::observed_generation), field("nodes", &T::nodes),
                     field("allocatableGPUs", &T::allocatable_gpus), field("usedGPUs", &T::used_gpus),
                     field("pendingGPUs", &T::pending_gpus), field("conditions", &T::conditions));
}

constexpr auto json_fields(JsonType<PhaseCalibrationStatus>) {
  using T = PhaseCalibrationStatus;
  return json_object(field("scale", &T::scale, kCoefficient), field("error", &T::error, kCoefficient),
                     field("samples", &T::samples), field("outliers", &T::outliers), field("changes", &T::changes));
}

constexpr auto json_fields(JsonType<CalibrationStatus>) {
  using T = CalibrationStatus;
  return json_object(field("lastUpdateTime", &T::last_update_time), field("prefill", &T::prefill), field("decode", &T::decode));
}

constexpr auto json_fields(JsonType<PerformanceProfileStatus>) {
  using T = PerformanceProfileStatus;
  constexpr auto kCalibration = field("calibration", &T::calibration);
  const auto write_calibration = [=](json& out, const T& status) {
    if (!status.calibration.last_update_time.empty()) kCalibration.write(out, status);
  };
  const auto read_calibration = [=](const FieldReader& in, T& status) { kCalibration.read(in, status); };
  return json_object(field("observedGeneration", &T::observed_generation), hook(write_calibration, read_calibration),
                     field("conditions", &T::conditions));
}

template <class T>
requires requires { T::kKind; }
constexpr auto json_fields(JsonType<T>) {
  return json_object(field("metadata", &T::metadata), field("spec", &T::spec), rare("status", &T::status));
}

constexpr auto json_fields(JsonType<PerformanceProfile>) {
  using T = PerformanceProfile;
  const auto write_spec = [](json& out, const T& profile) { out["spec"] = planner::to_json(profile.spec); };
  const auto read_spec = [](const FieldReader& in, T& profile) {
    profile.spec = in.read_by(planner::performance_profile_from_json, "spec");
  };
  return json_object(field("metadata", &T::metadata), rare("status", &T::status), hook(write_spec, read_spec));
}

// ---- whole objects and parts

namespace {

template <class T>
Result<T> object_from_json(const json& object) {
  std::optional<Error> error;
  const FieldReader in(object, "", &error);
  T value;
  read_fields(in, value);
  if (!error.has_value()) return value;
  const ObjectMeta& meta = value.metadata;
  const std::string name = meta.name_space.empty() ? meta.name : meta.name_space + "/" + meta.name;
  return error->within(fmt::format("{} {}", T::kKind, name));
}

template <class T>
json part_json(const T& value) {
  json out = json::object();
  write_fields(out, value);
  return out;
}

template <class T>
json object_json(const T& object) {
  json out = {{"apiVersion", kApiVersion}, {"kind", T::kKind}};
  write_fields(out, object);
  return out;
}

}  // namespace

Result<ObjectMeta> object_meta_from_json(const json& metadata) {
  std::optional<Error> error;
  const FieldReader in(metadata, "metadata", &error);
  ObjectMeta meta;
  read_fields(in, meta);
  if (error.has_value()) return *error;
  return meta;
}

Result<ModelService> model_service_from_json(const json& object) { return object_from_json<ModelService>(object); }
Result<AcceleratorClass> accelerator_class_from_json(const json& object) { return object_from_json<AcceleratorClass>(object); }
Result<PerformanceProfile> performance_profile_from_json(const json& object) {
  return object_from_json<PerformanceProfile>(object);
}

json to_json(const ModelService& object) { return object_json(object); }
json to_json(const AcceleratorClass& object) { return object_json(object); }
json to_json(const PerformanceProfile& object) { return object_json(object); }

json to_json(const ObjectMeta& metadata) { return part_json(metadata); }
json to_json(const ModelServiceSpec& spec) { return part_json(spec); }
json to_json(const AcceleratorClassSpec& spec) { return part_json(spec); }
json to_json(const ModelServiceStatus& status) { return part_json(status); }
json to_json(const AcceleratorClassStatus& status) { return part_json(status); }
json to_json(const PerformanceProfileStatus& status) { return part_json(status); }
json to_json(const Condition& condition) { return part_json(condition); }

}  // namespace windlass::api
