// DType: number formats of weights, activations and the KV cache.
#pragma once

#include <string_view>

#include "planner/base/result.h"

namespace windlass::planner {

enum class DType { kFloat32, kFloat16, kBFloat16, kFloat8, kInt8 };

const char* to_string(DType dtype);  // "float32", "float16", "bfloat16", "float8", "int8"
[[nodiscard]] Result<DType> dtype_from_string(std::string_view text);
[[nodiscard]] int bytes_of(DType dtype);

}  // namespace windlass::planner
