// Quantises matrices row by row.
#include "worker/model/weight_matrix.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>

#include <fmt/core.h>

#include "worker/model/ggml_blocks.h"

namespace windlass::worker {
namespace {

constexpr float kInt8Largest = 127;
constexpr float kFp8Largest = 448;
constexpr int kFp8Bias = 7;
constexpr std::uint8_t kFp8LargestCode = 0x7E;

constexpr WeightFormat kFormats[] = {WeightFormat::kFp32, WeightFormat::kBf16, WeightFormat::kInt8, WeightFormat::kFp8,
                                     WeightFormat::kBlocks};

std::uint8_t int8_from_float(float value) {
  const float whole = std::clamp(std::nearbyint(value), -kInt8Largest, kInt8Largest);
  return static_cast<std::uint8_t>(static_cast<std::int8_t>(whole));
}

bool finite(std::uint16_t half) { return (half & 0x7F80U) != 0x7F80U; }

// Numbers above BF16's largest round to infinity.
bool finite_as_bf16(float value) { return std::isfinite(value) && finite(bf16_from_float(value)); }

}  // namespace

const char* to_string(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFp32: return "fp32";
    case WeightFormat::kBf16: return "bf16";
    case WeightFormat::kInt8: return "int8";
    case WeightFormat::kFp8: return "fp8";
    case WeightFormat::kBlocks: return "blocks";
  }
  return "";
}

Result<WeightFormat> weight_format_from_string(std::string_view name) {
  std::string allowed;
  for (const WeightFormat format : kFormats) {
    if (name == to_string(format)) return format;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", to_string(format));
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("must be one of {} (got '{}')", allowed, name)};
}

std::int64_t WeightMatrix::bytes() const {
  return static_cast<std::int64_t>((values.size() + scales.size()) * sizeof(float) + halves.size() * sizeof(std::uint16_t) +
                                   codes.size()) +
         blocks.bytes();
}

bool append_row(WeightMatrix& to, std::span<const float> row, std::int64_t first, std::int64_t end) {
  assert(to.format != WeightFormat::kBlocks);
  const auto part = row.subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(end - first));
  if (to.format == WeightFormat::kFp32) {
    to.values.insert(to.values.end(), part.begin(), part.end());
    return true;
  }
  if (to.format == WeightFormat::kBf16) {
    if (!std::all_of(row.begin(), row.end(), finite_as_bf16)) return false;
    std::transform(part.begin(), part.end(), std::back_inserter(to.halves), bf16_from_float);
    return true;
  }
  float largest = 0;
  for (const float value : row) {
    if (!std::isfinite(value)) return false;
    largest = std::max(largest, std::fabs(value));
  }
  const bool int8 = to.format == WeightFormat::kInt8;
  const float scale = largest / (int8 ? kInt8Largest : kFp8Largest);
  // Below FP32's normal numbers it counts as 0.
  const bool zero = scale < std::numeric_limits<float>::min();
  to.scales.push_back(zero ? 0 : scale);
  for (const float value : part) {
    to.codes.push_back(zero ? std::uint8_t{0} : int8 ? int8_from_float(value / scale) : fp8_from_float(value / scale));
  }
  return true;
}

bool append_row(WeightMatrix& to, std::span<const std::uint16_t> row, std::int64_t first, std::int64_t end) {
  assert(to.format == WeightFormat::kBf16);
  if (!std::all_of(row.begin(), row.end(), finite)) return false;
  to.halves.insert(to.halves.end(), row.begin() + first, row.begin() + end);
  return true;
}

void floats_of_row(const WeightMatrix& matrix, std::int64_t row, std::int64_t columns, float* to) {
  if (matrix.format == WeightFormat::kBlocks) return floats_of_row(matrix.blocks, row, to);
  assert(matrix.format == WeightFormat::kFp32);
  std::copy_n(matrix.values.data() + row * columns, columns, to);
}

std::uint8_t fp8_from_float(float value) {
  const float magnitude = std::fabs(value);
  int code = 0;
  if (magnitude > 0) {
    // Below the smallest normal number, 2^-6, the step size stays the same.
    const int exponent = std::max(std::ilogb(magnitude), 1 - kFp8Bias);
    const auto eighths = static_cast<int>(std::nearbyint(std::ldexp(magnitude, 3 - exponent)));  // 8 to 16 if normal
    code = std::min((exponent + kFp8Bias) * 8 + eighths - 8, static_cast<int>(kFp8LargestCode));
  }
  return static_cast<std::uint8_t>(code | (std::signbit(value) ? 0x80 : 0));
}

}  // namespace windlass::worker
