// Conditions, and the names of the enumerators of every kind.
#include "controller/api/meta.h"

#include <algorithm>

#include "controller/api/accelerator_class.h"
#include "controller/api/model_service.h"

namespace windlass::api {

bool set_condition(std::vector<Condition>& conditions, Condition condition, const std::string& now_rfc3339) {
  const auto place =
      std::find_if(conditions.begin(), conditions.end(), [&](const Condition& other) { return other.type == condition.type; });
  if (place == conditions.end()) {
    condition.last_transition_time = now_rfc3339;
    conditions.push_back(std::move(condition));
    return true;
  }
  const bool keep_time = place->status == condition.status && !place->last_transition_time.empty();
  const std::string before = place->last_transition_time;
  condition.last_transition_time = before;
  const bool changed = !(*place == condition);
  if (!keep_time) condition.last_transition_time = now_rfc3339;
  *place = std::move(condition);
  return changed;
}

const Condition* find_condition(const std::vector<Condition>& conditions, const std::string& type) {
  for (const Condition& condition : conditions) {
    if (condition.type == type) return &condition;
  }
  return nullptr;
}

const char* to_string(ConditionStatus status) {
  switch (status) {
    case ConditionStatus::kUnknown: return "Unknown";
    case ConditionStatus::kFalse: return "False";
    case ConditionStatus::kTrue: return "True";
  }
  return "Unknown";
}

const char* to_string(EngineType type) {
  switch (type) {
    case EngineType::kWindlass: return "Windlass";
    case EngineType::kVLLM: return "VLLM";
    case EngineType::kSGLang: return "SGLang";
    case EngineType::kTensorRTLLM: return "TensorRTLLM";
    case EngineType::kLlamaCpp: return "LlamaCpp";
  }
  return "Windlass";
}

const char* to_string(Probe probe) { return probe == Probe::kOff ? "Off" : "Auto"; }

const char* to_string(Strategy strategy) {
  switch (strategy) {
    case Strategy::kAuto: return "Auto";
    case Strategy::kReplicated: return "Replicated";
    case Strategy::kDisaggregated: return "Disaggregated";
    case Strategy::kChained: return "Chained";
  }
  return "Auto";
}

const char* to_string(ScalingMode mode) {
  switch (mode) {
    case ScalingMode::kApply: return "Apply";
    case ScalingMode::kRecommend: return "Recommend";
    case ScalingMode::kPaused: return "Paused";
  }
  return "Apply";
}

const char* to_string(PoolRole role) {
  switch (role) {
    case PoolRole::kUnified: return "Unified";
    case PoolRole::kPrefill: return "Prefill";
    case PoolRole::kDecode: return "Decode";
  }
  return "Unified";
}

const char* to_string(Dtype dtype) {
  switch (dtype) {
    case Dtype::kFP32: return "FP32";
    case Dtype::kBF16: return "BF16";
    case Dtype::kFP16: return "FP16";
    case Dtype::kFP8: return "FP8";
    case Dtype::kINT8: return "INT8";
  }
  return "FP32";
}

const char* to_string(CapacityMode mode) {
  switch (mode) {
    case CapacityMode::kObserved: return "Observed";
    case CapacityMode::kElastic: return "Elastic";
  }
  return "Observed";
}

}  // namespace windlass::api
