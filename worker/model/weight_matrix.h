// WeightMatrix: a weight matrix (out, in) in FP32, in BF16, in 8 bits per number with one FP32 scale per row, or in the
// quantised blocks of a GGUF file.
//
// BF16 keeps a BF16 checkpoint bit for bit. A row produces one output channel; its scale comes from its largest number, so no
// number is clipped. INT8 has steps of 1/127 of that number. FP8 (e4m3; Micikevicius et al. 2022) has a 3-bit mantissa for
// numbers down to 1/28672 of it. Activations stay FP32, except with blocks. Plain data; pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "worker/model/block_matrix.h"

namespace windlass::worker {

// With kBlocks, matrices that are not in blocks in the file are kFp32.
enum class WeightFormat { kFp32, kBf16, kInt8, kFp8, kBlocks };
// The flag's value: "fp32", ...
[[nodiscard]] const char* to_string(WeightFormat format);
// Error: names the value and the allowed ones.
[[nodiscard]] Result<WeightFormat> weight_format_from_string(std::string_view name);

struct WeightMatrix {
  WeightFormat format = WeightFormat::kFp32;
  std::vector<float> values = {};          // only kFp32: (out, in)
  std::vector<std::uint16_t> halves = {};  // only kBf16: (out, in)
  std::vector<std::uint8_t> codes = {};    // kInt8 (two's complement) and kFp8: (out, in)
  std::vector<float> scales = {};          // kInt8 and kFp8: (out)
  BlockMatrix blocks = {};                 // only kBlocks

  [[nodiscard]] std::int64_t elements() const {
    return static_cast<std::int64_t>(values.size() + halves.size() + codes.size()) + blocks.rows * blocks.columns;
  }
  [[nodiscard]] bool empty() const { return elements() == 0; }
  [[nodiscard]] std::int64_t bytes() const;
  bool operator==(const WeightMatrix&) const = default;
};

// Appends columns `first` to `end` - 1 of a row, with the scale of the whole row, so that a part of a matrix has the same
// numbers as the whole. Returns false and appends nothing if the row has a number that is not finite in the format, unless that
// is kFp32. REQUIRES: `to` is not kBlocks, whose rows come from the file's bytes (block_matrix.h).
[[nodiscard]] bool append_row(WeightMatrix& to, std::span<const float> row, std::int64_t first, std::int64_t end);
// Like the above, for a row in BF16, copied bit for bit. REQUIRES: `to` is kBf16.
[[nodiscard]] bool append_row(WeightMatrix& to, std::span<const std::uint16_t> row, std::int64_t first, std::int64_t end);

// Converts a row of this many columns to floats. REQUIRES: the matrix is kFp32 or kBlocks.
void floats_of_row(const WeightMatrix& matrix, std::int64_t row, std::int64_t columns, float* to);

// e4m3 of a number from -448 to 448: to nearest, ties to even.
[[nodiscard]] std::uint8_t fp8_from_float(float value);

}  // namespace windlass::worker
