// Decodes each type of block, following ggml's dequantize_row_* functions.
#include "worker/model/ggml_blocks.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cstring>

namespace windlass::worker {
namespace {

static_assert(std::endian::native == std::endian::little, "the formats and our reads are little-endian");

constexpr int kSmallBlock = 32;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float half(const std::byte* at) { return float_from_f16(load<std::uint16_t>(at)); }
int byte(const std::byte* at, int i) { return std::to_integer<int>(at[i]); }

// 32 4-bit codes: the low halves of 16 bytes, then the high halves; `high` has a fifth bit for each.
void four_bits(const std::byte* codes, std::uint32_t high, std::uint8_t* out) {
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    const int low = byte(codes, i) & 0xF, up = byte(codes, i) >> 4;
    out[i] = static_cast<std::uint8_t>(low | static_cast<int>(((high >> i) & 1U) << 4U));
    out[i + kSmallBlock / 2] = static_cast<std::uint8_t>(up | static_cast<int>(((high >> (i + kSmallBlock / 2)) & 1U) << 4U));
  }
}

// Scale and minimum of the j-th of eight groups, six bits each, packed into twelve bytes.
struct GroupScale {
  int scale, least;
};
GroupScale scale_of_group(const std::byte* packed, int j) {
  if (j < 4) return {byte(packed, j) & 63, byte(packed, j + 4) & 63};
  return {(byte(packed, j + 4) & 0xF) | ((byte(packed, j - 4) >> 6) << 4),
          (byte(packed, j + 4) >> 4) | ((byte(packed, j) >> 6) << 4)};
}

// Q4_K, and Q5_K with a fifth bit for each number.
void k_of_four(const std::byte* block, const std::byte* fifth_bits, const std::byte* codes, CodedBlock& to) {
  const float scale = half(block), least = half(block + 2);
  std::uint8_t* out = to.codes.data();
  for (int group = 0; group < 8; ++group) {
    const GroupScale of_group = scale_of_group(block + 4, group);
    to.scales[static_cast<std::size_t>(group)] = scale * static_cast<float>(of_group.scale);
    to.minima[static_cast<std::size_t>(group)] = -(least * static_cast<float>(of_group.least));
    for (int i = 0; i < 32; ++i) {
      int code = (byte(codes, 32 * (group / 2) + i) >> (4 * (group % 2))) & 0xF;
      if (fifth_bits != nullptr) code |= ((byte(fifth_bits, i) >> group) & 1) << 4;
      *out++ = static_cast<std::uint8_t>(code);
    }
  }
}

void q6_k(const std::byte* block, CodedBlock& to) {
  const std::byte *low = block, *high = block + 128, *scales = block + 192;
  const float d = half(block + 208);
  for (int i = 0; i < kMaxNumbersOfBlock / kLeastGroup; ++i) {
    const float scale = d * static_cast<float>(load<std::int8_t>(scales + i));
    to.scales[static_cast<std::size_t>(i)] = scale;
    to.minima[static_cast<std::size_t>(i)] = -32 * scale;
  }
  std::uint8_t* out = to.codes.data();
  for (int part = 0; part < 2; ++part) {
    for (int i = 0; i < 32; ++i) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int four = byte(low, i + 32 * (quarter % 2)) >> (quarter < 2 ? 0 : 4) & 0xF;
        out[i + 32 * quarter] = static_cast<std::uint8_t>(four | ((byte(high, i) >> (2 * quarter)) & 3) << 4);
      }
    }
    out += 128;
    low += 64;
    high += 32;
  }
}

}  // namespace

const GgmlTypeInfo& info_of(GgmlType type) { return *ggml_type_info(static_cast<std::uint32_t>(type)); }

GgmlCoding coding_of(GgmlType type) {
  switch (type) {
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBf16: return {};
    case GgmlType::kQ4_0:
    case GgmlType::kQ4_1:
    case GgmlType::kQ4K: return {4, 32};
    case GgmlType::kQ5_0:
    case GgmlType::kQ5_1:
    case GgmlType::kQ8_0:
    case GgmlType::kQ5K: return {8, 32};
    case GgmlType::kQ6K: return {8, 16};
  }
  return {};
}

void code_block(GgmlType type, const std::byte* block, CodedBlock& to) {
  const auto scaled = [&](float scale, float least) {
    to.scales[0] = scale;
    to.minima[0] = least;
  };
  std::uint8_t* const codes = to.codes.data();
  switch (type) {
    case GgmlType::kF32:
    case GgmlType::kF16:
    case GgmlType::kBf16: assert(false); return;
    case GgmlType::kQ4_0: scaled(half(block), -8 * half(block)); return four_bits(block + 2, 0, codes);
    case GgmlType::kQ4_1: scaled(half(block), half(block + 2)); return four_bits(block + 4, 0, codes);
    case GgmlType::kQ5_0:
      scaled(half(block), -16 * half(block));
      return four_bits(block + 6, load<std::uint32_t>(block + 2), codes);
    case GgmlType::kQ5_1:
      scaled(half(block), half(block + 2));
      return four_bits(block + 8, load<std::uint32_t>(block + 4), codes);
    case GgmlType::kQ8_0:
      scaled(half(block), -128 * half(block));
      for (int i = 0; i < kSmallBlock; ++i) codes[i] = static_cast<std::uint8_t>(byte(block + 2, i) ^ 0x80);
      return;
    case GgmlType::kQ4K: return k_of_four(block, nullptr, block + 16, to);
    case GgmlType::kQ5K: return k_of_four(block, block + 16, block + 48, to);
    case GgmlType::kQ6K: return q6_k(block, to);
  }
}

void floats_of_block(GgmlType type, const std::byte* block, float* out) {
  switch (type) {
    case GgmlType::kF32: *out = load<float>(block); return;
    case GgmlType::kF16: *out = half(block); return;
    case GgmlType::kBf16: *out = float_from_bf16(load<std::uint16_t>(block)); return;
    default: break;
  }
  CodedBlock coded;
  code_block(type, block, coded);
  const auto group = static_cast<std::size_t>(coding_of(type).group);
  const auto count = static_cast<std::size_t>(info_of(type).block_numbers);
  for (std::size_t i = 0; i < count; ++i)
    out[i] = coded.scales[i / group] * static_cast<float>(coded.codes[i]) + coded.minima[i / group];
}

void floats_of_blocks(const GgmlTypeInfo& numbers, std::span<const std::byte> bytes, std::int64_t first, std::span<float> out) {
  if (numbers.type == GgmlType::kF32) {
    std::memcpy(out.data(), bytes.data() + first * 4, out.size() * sizeof(float));
    return;
  }
  std::array<float, kMaxNumbersOfBlock> whole{};
  while (!out.empty()) {
    const std::int64_t block = first / numbers.block_numbers;
    const auto skipped = static_cast<std::size_t>(first % numbers.block_numbers);
    const std::size_t count = std::min(out.size(), static_cast<std::size_t>(numbers.block_numbers) - skipped);
    const std::byte* const at = bytes.data() + block * numbers.block_bytes;
    assert(at + numbers.block_bytes <= bytes.data() + bytes.size());
    if (count == static_cast<std::size_t>(numbers.block_numbers)) {
      floats_of_block(numbers.type, at, out.data());
    } else {
      floats_of_block(numbers.type, at, whole.data());
      std::copy_n(whole.begin() + static_cast<std::ptrdiff_t>(skipped), count, out.begin());
    }
    out = out.subspan(count);
    first += static_cast<std::int64_t>(count);
  }
}

float float_from_f16(std::uint16_t bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1FU;
  std::uint32_t mantissa = bits & 0x3FFU;
  if (exponent == 0x1F) return std::bit_cast<float>(sign | 0x7F800000U | (mantissa << 13U));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
  // Subnormal: mantissa * 2^-24, exact in a float.
  const float magnitude = static_cast<float>(mantissa) * 0x1.0p-24F;
  return sign != 0 ? -magnitude : magnitude;
}

std::uint16_t f16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((bits >> 16U) & 0x8000U);
  const std::uint32_t magnitude = bits & 0x7FFFFFFFU;
  if (magnitude > 0x7F800000U) return static_cast<std::uint16_t>(sign | 0x7E00U);  // a NaN stays a NaN
  if (magnitude >= 0x477FF000U) return static_cast<std::uint16_t>(sign | 0x7C00U);
  if (magnitude >= 0x38800000U) {  // normal: re-bias the exponent by 112
    const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13U) & 1U) - (112U << 23U);
    return static_cast<std::uint16_t>(sign | (rounded >> 13U));
  }
  // Subnormal: steps of 2^-24; adding 1/2 rounds and leaves them in the lowest bits.
  const float shifted = std::bit_cast<float>(magnitude) + 0.5F;
  return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(shifted) - std::bit_cast<std::uint32_t>(0.5F)));
}

float float_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);  // a NaN stays a NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

}  // namespace windlass::worker
