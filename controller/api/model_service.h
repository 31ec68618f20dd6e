// ModelService as a C++ type: one model, its objectives, the resources it may use, and a status with decisions and
// measurements.
//
// Plain data with parsed numbers: durations, bytes and rates are numbers here, and strings only in crds/modelservices.yaml.
// That file is the source of truth for names, defaults and limits. An empty string or optional means that the field is absent.
// Enumerators have the names that the schema uses. Owned by the caller; usable on any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "controller/api/meta.h"
#include "planner/base/bound.h"
#include "planner/catalog/engine_type.h"

namespace windlass::api {

using planner::EngineType;
using planner::to_string;  // of EngineType
enum class Probe { kAuto, kOff };
enum class Strategy { kAuto, kReplicated, kDisaggregated, kChained };
enum class ScalingMode { kApply, kRecommend, kPaused };
enum class PoolRole { kUnified, kPrefill, kDecode };
enum class Dtype { kFP32, kBF16, kFP16, kFP8, kINT8 };

const char* to_string(Probe probe);        // "Auto", "Off"
const char* to_string(Strategy strategy);  // "Auto", "Replicated", "Disaggregated", "Chained"
const char* to_string(ScalingMode mode);   // "Apply", "Recommend", "Paused"
const char* to_string(PoolRole role);      // "Unified", "Prefill", "Decode"
const char* to_string(Dtype dtype);        // "FP32", "BF16", "FP16", "FP8", "INT8"

// One key of a ConfigMap or Secret in the service's own namespace.
struct KeyRef {
  std::string name;
  std::string key;

  bool operator==(const KeyRef&) const = default;
};

struct ModelSpec {
  std::string served_name;         // as given; ModelService::model_name() adds the default
  std::string uri;                 // hf://, file:// or pvc://
  std::string architecture;        // a name in the planner's catalog
  std::string config_inline_json;  // spec.model.config.inline as JSON text: a Hugging Face config.json
  std::optional<KeyRef> config_map_key_ref;
  std::optional<std::int64_t> max_context_tokens;
  std::optional<Dtype> dtype;  // absent: the dtype of the model's config

  bool operator==(const ModelSpec&) const = default;
};

struct EnvVar {
  std::string name;
  std::string value;
  std::optional<KeyRef> secret_key_ref;
  std::optional<KeyRef> config_map_key_ref;

  bool operator==(const EnvVar&) const = default;
};

struct EngineSpec {
  EngineType type = EngineType::kWindlass;
  std::string image;    // empty: the controller's --worker-image
  std::string program;  // for `windlass up`, on this machine; empty: found by engine type
  std::vector<std::string> args;
  std::vector<EnvVar> env;
  std::string pod_template_json;  // {metadata, spec} merged into the worker's pod; empty: none
  Probe probe = Probe::kAuto;     // whether a new worker's latency is measured with a few requests

  bool operator==(const EngineSpec&) const = default;
};

struct SloSpec {
  double time_to_first_token_s = 0;
  double time_per_output_token_s = 0;
  double percentile = 95;  // share of requests, in percent, that must attain both objectives; in (0, 100)
  double window_s = 300;

  bool operator==(const SloSpec&) const = default;
};

// The workload to assume until one has been observed.
struct WorkloadSpec {
  std::optional<double> requests_per_s;
  std::optional<std::int64_t> input_tokens;
  std::optional<std::int64_t> output_tokens;

  bool operator==(const WorkloadSpec&) const = default;
};

struct AcceleratorChoice {
  std::string accelerator_class;  // spec.accelerators[].class
  std::optional<std::int64_t> max_gpus;

  bool operator==(const AcceleratorChoice&) const = default;
};

struct ScalingSpec {
  Strategy strategy = Strategy::kAuto;
  std::int64_t min_workers = 1;
  std::optional<std::int64_t> max_workers;
  std::optional<double> max_cost_per_hour;
  std::optional<double> idle_to_zero_after_s;  // only with min_workers 0
  double drain_timeout_s = 1800;
  double scale_up_stabilization_s = 0;                    // behavior.scaleUp.stabilizationWindow
  double scale_down_stabilization_s = 300;                // behavior.scaleDown.stabilizationWindow
  std::optional<std::int64_t> scale_up_max_per_minute;    // behavior.scaleUp.maxWorkersPerMinute
  std::optional<std::int64_t> scale_down_max_per_minute;  // behavior.scaleDown.maxWorkersPerMinute
  double tolerance = 0.1;                                 // behavior.tolerance, in [0, 1)
  ScalingMode mode = ScalingMode::kApply;

  bool operator==(const ScalingSpec&) const = default;
};

struct ModelServiceSpec {
  ModelSpec model;
  EngineSpec engine;
  SloSpec slo;
  WorkloadSpec workload;
  std::vector<AcceleratorChoice> accelerators;  // empty: every AcceleratorClass
  ScalingSpec scaling;
  std::string priority_class_name;

  bool operator==(const ModelServiceSpec&) const = default;
};

// ---- status. Durations are written with three significant digits and fractions with four, so that equal statuses have equal
// text.

struct PoolStatus {
  std::string name;
  PoolRole role = PoolRole::kUnified;
  std::string accelerator;
  std::int64_t gpus_per_worker = 0;
  std::int64_t workers = 0;
  std::string blocks;  // the range of model blocks that a worker of this pool holds, such as "0-31"; empty: all

  bool operator==(const PoolStatus&) const = default;
};

struct Reason {
  std::string code;  // CamelCase
  std::string message;
  std::map<std::string, std::string> inputs;  // the numbers behind the decision

  bool operator==(const Reason&) const = default;
};

struct PredictedFigures {
  std::optional<double> time_to_first_token_s;
  std::optional<double> time_per_output_token_s;
  std::optional<double> requests_per_s;  // that the plan can serve within the objectives

  bool operator==(const PredictedFigures&) const = default;
};

// The expectation, and the ends of the 90 % interval of each figure.
struct Prediction : PredictedFigures {
  std::optional<double> attainment;  // share of requests, in [0, 1]
  std::string basis;                 // a planner::Provenance; empty: no plan yet
  PredictedFigures low, high;

  bool operator==(const Prediction&) const = default;
};

// What a strategy offered, and why it lost.
struct StrategyStatus {
  std::string strategy;
  std::string deployment;  // empty: none
  std::optional<double> cost_per_hour;
  std::string outcome;

  bool operator==(const StrategyStatus&) const = default;
};

struct PlanStatus {
  std::optional<Strategy> strategy;
  std::vector<PoolStatus> pools;
  Prediction predicted;
  std::vector<Reason> reasons;
  std::vector<StrategyStatus> strategies;
  std::string offer;  // that runs, as JSON (planner/policy/json.h), for the next leader; empty: none

  bool operator==(const PlanStatus&) const = default;
};

struct WorkersStatus {
  std::int64_t current = 0;  // all existing workers: starting + ready + draining
  std::int64_t desired = 0;
  std::int64_t ready = 0;
  std::int64_t starting = 0;
  std::int64_t draining = 0;

  bool operator==(const WorkersStatus&) const = default;
};

struct LoadStatus {
  std::optional<double> requests_per_s;
  std::optional<double> input_tokens;
  std::optional<double> output_tokens;
  std::optional<std::int64_t> queued;

  bool operator==(const LoadStatus&) const = default;
};

struct SloStatus {
  std::optional<double> attainment;  // share of requests inside both objectives over spec.slo.window, in [0, 1]
  std::optional<double> time_to_first_token_s;
  std::optional<double> time_per_output_token_s;
  Bound ttft_bound = Bound::kNone;  // unless kNone, the latencies are only bounds, written as "<10ms"
  Bound tpot_bound = Bound::kNone;

  bool operator==(const SloStatus&) const = default;
};

// Condition types of a ModelService.
inline constexpr const char* kReady = "Ready";
inline constexpr const char* kFeasible = "Feasible";
inline constexpr const char* kSloMet = "SLOMet";
inline constexpr const char* kMetricsFresh = "MetricsFresh";
inline constexpr const char* kTimesKnown = "TimesKnown";
inline constexpr const char* kAbleToScale = "AbleToScale";

struct ModelServiceStatus {
  std::int64_t observed_generation = 0;
  std::string served_name;  // the value of "model" in client requests
  std::string selector;     // label selector of the workers, for the scale subresource
  PlanStatus plan;
  WorkersStatus workers;
  std::int64_t gpus = 0;
  std::optional<double> cost_per_hour;
  LoadStatus load;
  SloStatus slo;
  std::vector<Condition> conditions;

  bool operator==(const ModelServiceStatus&) const = default;
};

struct ModelService {
  static constexpr const char* kKind = "ModelService";
  static constexpr const char* kPlural = "modelservices";

  ObjectMeta metadata;
  ModelServiceSpec spec;
  ModelServiceStatus status;

  // Whether client requests use "namespace/name" as "model". Not part of the object; set by the store that reads it.
  bool name_with_namespace = false;

  // spec.model.servedName, or the object's name.
  [[nodiscard]] const std::string& model_name() const {
    return spec.model.served_name.empty() ? metadata.name : spec.model.served_name;
  }
  // The value of "model" in client requests.
  [[nodiscard]] std::string served_name() const {
    return name_with_namespace ? metadata.name_space + "/" + model_name() : model_name();
  }

  bool operator==(const ModelService&) const = default;
};

}  // namespace windlass::api
