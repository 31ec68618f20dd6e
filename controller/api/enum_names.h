// The names of enumerators in the schema: kEnumNames<Enum>[i] is the name of enumerator i. Errors list the names in this order.
// Private to controller/api; other code uses to_string().
#pragma once

#include <array>

#include "controller/api/accelerator_class.h"
#include "controller/api/meta.h"
#include "controller/api/model_service.h"

namespace windlass::api {

template <class Enum>
inline constexpr std::array<const char*, 0> kEnumNames{};
template <>
inline constexpr std::array kEnumNames<ConditionStatus>{"True", "False", "Unknown"};
template <>
inline constexpr std::array kEnumNames<EngineType>{"Windlass", "VLLM", "SGLang", "TensorRTLLM", "LlamaCpp"};
template <>
inline constexpr std::array kEnumNames<Probe>{"Auto", "Off"};
template <>
inline constexpr std::array kEnumNames<Strategy>{"Auto", "Replicated", "Disaggregated", "Chained"};
template <>
inline constexpr std::array kEnumNames<ScalingMode>{"Apply", "Recommend", "Paused"};
template <>
inline constexpr std::array kEnumNames<PoolRole>{"Unified", "Prefill", "Decode"};
template <>
inline constexpr std::array kEnumNames<Dtype>{"FP32", "BF16", "FP16", "FP8", "INT8"};
template <>
inline constexpr std::array kEnumNames<CapacityMode>{"Observed", "Elastic"};

}  // namespace windlass::api
