// Names and sizes of number formats.
#include "planner/catalog/dtype.h"

#include <fmt/format.h>

namespace windlass::planner {

const char* to_string(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return "float32";
    case DType::kFloat16: return "float16";
    case DType::kBFloat16: return "bfloat16";
    case DType::kFloat8: return "float8";
    case DType::kInt8: return "int8";
  }
  return "unknown";
}

Result<DType> dtype_from_string(std::string_view text) {
  for (DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat8, DType::kInt8}) {
    if (text == to_string(dtype)) return dtype;
  }
  return Error{ErrorCode::kInvalidArgument,
               fmt::format("data type: must be float32, float16, bfloat16, float8 or int8 (got '{}')", text)};
}

int bytes_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat32: return 4;
    case DType::kFloat16:
    case DType::kBFloat16: return 2;
    case DType::kFloat8:
    case DType::kInt8: return 1;
  }
  return 0;
}

}  // namespace windlass::planner
