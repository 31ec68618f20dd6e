// WeightMatrix: a matrix of a model's weights (out, in), as FP32, as BF16, with eight bits a number and one FP32 scale a row,
// or in a GGUF file's quantised blocks.
//
// BF16 keeps what a checkpoint in BF16 has, bit for bit. A row is what makes one output channel. Its scale is that of its
// largest number, so that none is cut off: INT8 has steps of 1/127 of it, FP8 (e4m3; Micikevicius et al. 2022) three bits of
// mantissa for numbers down to 1/28672 of it. Activations stay FP32, but with blocks. Plain data; pure functions; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "worker/model/block_matrix.h"

namespace windlass::worker {

// Where kBlocks is asked for, matrices that the file has not in blocks are kFp32.
enum class WeightFormat { kFp32, kBf16, kInt8, kFp8, kBlocks };
// As the flag has it: "fp32", ...
[[nodiscard]] const char* to_string(WeightFormat format);
// The error names what was found and what is allowed.
[[nodiscard]] Result<WeightFormat> weight_format_from_string(std::string_view name);

struct WeightMatrix {
  WeightFormat format = WeightFormat::kFp32;
  std::vector<float> values = {};          // kFp32 alone: (out, in)
  std::vector<std::uint16_t> halves = {};  // kBf16 alone: (out, in)
  std::vector<std::uint8_t> codes = {};    // kInt8, of two's complement, and kFp8: (out, in)
  std::vector<float> scales = {};          // of the same: (out)
  BlockMatrix blocks = {};                 // kBlocks alone

  [[nodiscard]] std::int64_t elements() const {
    return static_cast<std::int64_t>(values.size() + halves.size() + codes.size()) + blocks.rows * blocks.columns;
  }
  [[nodiscard]] bool empty() const { return elements() == 0; }
  [[nodiscard]] std::int64_t bytes() const;
  bool operator==(const WeightMatrix&) const = default;
};

// Appends a row's columns from `first` to before `end`, with the scale of the whole row: a part of a matrix holds the same
// numbers as the whole. False, and nothing is appended, where the row has a number that is not finite, in the format, and that
// is not kFp32. REQUIRES: `to` is not kBlocks, whose rows come from the file's bytes (block_matrix.h).
[[nodiscard]] bool append_row(WeightMatrix& to, std::span<const float> row, std::int64_t first, std::int64_t end);
// The same of a row in BF16, as it is. REQUIRES: `to` is kBf16.
[[nodiscard]] bool append_row(WeightMatrix& to, std::span<const std::uint16_t> row, std::int64_t first, std::int64_t end);

// A row of a matrix that is kFp32 or kBlocks, with so many columns.
void floats_of_row(const WeightMatrix& matrix, std::int64_t row, std::int64_t columns, float* to);

// e4m3 of a number from -448 to 448: to nearest, ties to even.
[[nodiscard]] std::uint8_t fp8_from_float(float value);

}  // namespace windlass::worker
