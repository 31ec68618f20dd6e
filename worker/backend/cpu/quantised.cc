// Converts rows to floats in loops compiled for this processor, like attention's tiles.
#include "worker/backend/cpu/quantised.h"

#include <bit>

#include "worker/backend/vectors.h"

namespace windlass::worker::cpu {
namespace {

inline __attribute__((always_inline)) float float_from_int8(std::uint8_t code) {
  return static_cast<float>(static_cast<std::int8_t>(code));
}

// e4m3: moving the bits of a normal number to FP32's positions leaves only the exponent's bias wrong. Subnormals, multiples of
// 1/8 of 2^-6 without a leading one, come out as 2^-7 plus half of their value; twice that minus 2^-6 is smaller only for them.
// No branch, so that the loop can be vectorised.
inline __attribute__((always_inline)) float float_from_fp8(std::uint8_t code) {
  const std::int32_t bits = code;
  const auto normal = std::bit_cast<float>(((bits & 0x7F) << 20) + ((127 - 7) << 23));
  const float small = 2 * normal - 0x1p-6F;
  const float magnitude = small < normal ? small : normal;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(magnitude) | ((bits & 0x80) << 24));
}

template <float (*FromCode)(std::uint8_t)>
struct DequantiseRow {
  template <int kLanes>
  static inline __attribute__((always_inline)) void run(const std::uint8_t* from, float scale, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = FromCode(from[i]) * scale;
  }
};

// BF16 is the upper half of FP32.
struct WidenRow {
  template <int kLanes>
  static inline __attribute__((always_inline)) void run(const std::uint16_t* from, std::int64_t count, float* to) {
    for (std::int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16U);
  }
};

template <float (*FromCode)(std::uint8_t)>
using Dequantise = Compiled<DequantiseRow<FromCode>, void(const std::uint8_t*, float, std::int64_t, float*)>;
using Widen = Compiled<WidenRow, void(const std::uint16_t*, std::int64_t, float*)>;

}  // namespace

void dequantise(const WeightMatrix& w, std::int64_t in, std::int64_t row, std::int64_t first, std::int64_t count, float* to) {
  const std::int64_t at = row * in + first;
  if (w.format == WeightFormat::kBf16) return Widen::for_this_processor()(w.halves.data() + at, count, to);
  const float scale = w.scales[static_cast<std::size_t>(row)];
  const auto row_kernel = w.format == WeightFormat::kInt8 ? Dequantise<float_from_int8>::for_this_processor()
                                                          : Dequantise<float_from_fp8>::for_this_processor();
  row_kernel(w.codes.data() + at, scale, count, to);
}

}  // namespace windlass::worker::cpu
