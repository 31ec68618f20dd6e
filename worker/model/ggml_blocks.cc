// One function a kind of block, as ggml's dequantize_row_* have them.
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
constexpr int kLargeBlock = 256;

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float half(const std::byte* at) { return float_from_f16(load<std::uint16_t>(at)); }
int byte(const std::byte* at, int i) { return std::to_integer<int>(at[i]); }

// 32 numbers of four bits: the lower halves of 16 bytes, then the upper ones; `high` has a fifth bit for each.
template <class Value>
void four_bits(const std::byte* codes, std::uint32_t high, Value value, float* out) {
  for (int i = 0; i < kSmallBlock / 2; ++i) {
    const int low = byte(codes, i) & 0xF, up = byte(codes, i) >> 4;
    out[i] = value(low | static_cast<int>(((high >> i) & 1U) << 4U));
    out[i + kSmallBlock / 2] = value(up | static_cast<int>(((high >> (i + kSmallBlock / 2)) & 1U) << 4U));
  }
}

// The scale and the minimum of the j-th of eight parts, six bits each, packed into twelve bytes.
struct Part {
  int scale, least;
};
Part part_of(const std::byte* packed, int j) {
  if (j < 4) return {byte(packed, j) & 63, byte(packed, j + 4) & 63};
  return {(byte(packed, j + 4) & 0xF) | ((byte(packed, j - 4) >> 6) << 4),
          (byte(packed, j + 4) >> 4) | ((byte(packed, j) >> 6) << 4)};
}

// Q4_K, and Q5_K with a fifth bit for each number.
void k_of_four(const std::byte* block, const std::byte* fifth_bits, const std::byte* codes, float* out) {
  const float scale = half(block), least = half(block + 2);
  const std::byte* const packed = block + 4;
  for (int pair = 0; pair < 4; ++pair) {
    for (int upper = 0; upper < 2; ++upper) {
      const Part part = part_of(packed, 2 * pair + upper);
      const float d = scale * static_cast<float>(part.scale), m = least * static_cast<float>(part.least);
      for (int i = 0; i < 32; ++i) {
        int code = upper == 0 ? byte(codes, 32 * pair + i) & 0xF : byte(codes, 32 * pair + i) >> 4;
        if (fifth_bits != nullptr) code |= ((byte(fifth_bits, i) >> (2 * pair + upper)) & 1) << 4;
        *out++ = d * static_cast<float>(code) - m;
      }
    }
  }
}

void q6_k(const std::byte* block, float* out) {
  const std::byte *low = block, *high = block + 128, *scales = block + 192;
  const float d = half(block + 208);
  for (int part = 0; part < 2; ++part) {
    for (int i = 0; i < 32; ++i) {
      for (int quarter = 0; quarter < 4; ++quarter) {
        const int four = byte(low, i + 32 * (quarter % 2)) >> (quarter < 2 ? 0 : 4) & 0xF;
        const int code = (four | ((byte(high, i) >> (2 * quarter)) & 3) << 4) - 32;
        const auto scale = static_cast<float>(load<std::int8_t>(scales + i / 16 + 2 * quarter));
        out[i + 32 * quarter] = d * scale * static_cast<float>(code);
      }
    }
    out += 128;
    low += 64;
    high += 32;
    scales += 8;
  }
}

}  // namespace

const GgmlTypeInfo& info_of(GgmlType type) { return *ggml_type_info(static_cast<std::uint32_t>(type)); }

void floats_of_block(GgmlType type, const std::byte* block, float* out) {
  const auto times = [](float d, int offset) { return [=](int code) { return d * static_cast<float>(code - offset); }; };
  const auto plus = [](float d, float m) { return [=](int code) { return d * static_cast<float>(code) + m; }; };
  switch (type) {
    case GgmlType::kF32: *out = load<float>(block); return;
    case GgmlType::kF16: *out = half(block); return;
    case GgmlType::kBf16: *out = float_from_bf16(load<std::uint16_t>(block)); return;
    case GgmlType::kQ4_0: return four_bits(block + 2, 0, times(half(block), 8), out);
    case GgmlType::kQ4_1: return four_bits(block + 4, 0, plus(half(block), half(block + 2)), out);
    case GgmlType::kQ5_0: return four_bits(block + 6, load<std::uint32_t>(block + 2), times(half(block), 16), out);
    case GgmlType::kQ5_1: return four_bits(block + 8, load<std::uint32_t>(block + 4), plus(half(block), half(block + 2)), out);
    case GgmlType::kQ8_0: {
      const float d = half(block);
      for (int i = 0; i < kSmallBlock; ++i) out[i] = d * static_cast<float>(load<std::int8_t>(block + 2 + i));
      return;
    }
    case GgmlType::kQ4K: return k_of_four(block, nullptr, block + 16, out);
    case GgmlType::kQ5K: return k_of_four(block, block + 16, block + 48, out);
    case GgmlType::kQ6K: return q6_k(block, out);
  }
}

void floats_of_blocks(const GgmlTypeInfo& numbers, std::span<const std::byte> bytes, std::int64_t first, std::span<float> out) {
  if (numbers.type == GgmlType::kF32) {
    std::memcpy(out.data(), bytes.data() + first * 4, out.size() * sizeof(float));
    return;
  }
  std::array<float, kLargeBlock> whole{};
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

float float_from_bf16(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

std::uint16_t bf16_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > 0x7F800000U) return static_cast<std::uint16_t>((bits >> 16U) | 0x40U);  // keep a NaN a NaN
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16U) & 1U)) >> 16U);
}

}  // namespace windlass::worker
