// See engine_type.h.
#include "planner/catalog/engine_type.h"

namespace windlass::planner {

const char* to_string(EngineType type) {
  switch (type) {
    case EngineType::kWindlass: return "Windlass";
    case EngineType::kVLLM: return "VLLM";
    case EngineType::kSGLang: return "SGLang";
    case EngineType::kTensorRTLLM: return "TensorRTLLM";
    case EngineType::kLlamaCpp: return "LlamaCpp";
  }
  return "";
}

}  // namespace windlass::planner
