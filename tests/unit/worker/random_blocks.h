// Random tensors in GGUF's quantised blocks.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "planner/base/rng.h"
#include "worker/model/block_matrix.h"
#include "worker/model/ggml_blocks.h"

namespace windlass::worker::testing {

inline constexpr GgmlType kBlockTypes[] = {GgmlType::kQ4_0, GgmlType::kQ4_1, GgmlType::kQ5_0, GgmlType::kQ5_1,
                                           GgmlType::kQ8_0, GgmlType::kQ4K,  GgmlType::kQ5K,  GgmlType::kQ6K};

inline bool has_minima(GgmlType type) {
  return type == GgmlType::kQ4_1 || type == GgmlType::kQ5_1 || type == GgmlType::kQ4K || type == GgmlType::kQ5K;
}

// Any codes, with scales of small numbers. REQUIRES: whole blocks.
inline std::vector<std::byte> random_blocks(Rng& rng, GgmlType type, std::int64_t numbers) {
  const GgmlTypeInfo& info = info_of(type);
  std::vector<std::byte> bytes(static_cast<std::size_t>(numbers / info.block_numbers * info.block_bytes));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.integer(0, 255));
  const auto put = [&](std::size_t at, double largest) {
    const std::uint16_t half = f16_from_float(static_cast<float>(rng.uniform(-largest, largest)));
    std::memcpy(bytes.data() + at, &half, sizeof(half));
  };
  for (std::size_t at = 0; at < bytes.size(); at += static_cast<std::size_t>(info.block_bytes)) {
    put(type == GgmlType::kQ6K ? at + 208 : at, 0.01);
    if (has_minima(type)) put(at + 2, 0.05);
  }
  return bytes;
}

// The matrix of these tensors' rows, concatenated; each tensor is one part of its rows.
inline BlockMatrix block_matrix(std::span<const GgmlType> types, std::span<const std::vector<std::byte>> tensors,
                                std::int64_t columns) {
  GgmlCoding coding = coding_of(types.front());
  for (const GgmlType type : types) coding = common_coding(coding, coding_of(type));
  BlockMatrix matrix = BlockMatrix::with_room(coding, 0, columns);
  for (std::size_t i = 0; i < types.size(); ++i) {
    const GgmlTypeInfo& info = info_of(types[i]);
    const auto numbers = static_cast<std::int64_t>(tensors[i].size()) / info.block_bytes * info.block_numbers;
    for (std::int64_t first = 0; first < numbers; first += columns) {
      if (!append_row(matrix, info, tensors[i], first)) return {};
    }
  }
  return matrix;
}

}  // namespace windlass::worker::testing
