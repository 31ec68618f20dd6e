// EngineType: the programs that a worker can be. Plain data.
#pragma once

#include <array>

namespace windlass::planner {

enum class EngineType { kWindlass, kVLLM, kSGLang, kTensorRTLLM, kLlamaCpp };
inline constexpr std::array kAllEngineTypes = {EngineType::kWindlass, EngineType::kVLLM, EngineType::kSGLang,
                                               EngineType::kTensorRTLLM, EngineType::kLlamaCpp};
const char* to_string(EngineType type);  // "Windlass", "VLLM", "SGLang", "TensorRTLLM", "LlamaCpp"

}  // namespace windlass::planner
