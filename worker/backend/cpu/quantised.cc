// Rows become floats in a loop that is compiled for what the processor has, as attention's tiles are.
#include "worker/backend/cpu/quantised.h"

#include <bit>

namespace windlass::worker::cpu {
namespace {

inline __attribute__((always_inline)) float float_from_int8(std::uint8_t code) {
  return static_cast<float>(static_cast<std::int8_t>(code));
}

// e4m3: the bits of a normal number, moved to where FP32 has them, have the wrong bias alone. The others, eighths of 2^-6
// without a leading one, come out as 2^-7 and half of them; twice that less 2^-6 is smaller for these alone. No branch, so that
// the loop is vectorised.
inline __attribute__((always_inline)) float float_from_fp8(std::uint8_t code) {
  const std::int32_t bits = code;
  const auto normal = std::bit_cast<float>(((bits & 0x7F) << 20) + ((127 - 7) << 23));
  const float small = 2 * normal - 0x1p-6F;
  const float magnitude = small < normal ? small : normal;
  return std::bit_cast<float>(std::bit_cast<std::int32_t>(magnitude) | ((bits & 0x80) << 24));
}

template <float (*FromCode)(std::uint8_t)>
inline __attribute__((always_inline)) void dequantise_row(const std::uint8_t* from, float scale, std::int64_t count,
                                                          float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = FromCode(from[i]) * scale;
}

// BF16 is the upper half of FP32.
inline __attribute__((always_inline)) void widen_row(const std::uint16_t* from, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = std::bit_cast<float>(static_cast<std::uint32_t>(from[i]) << 16U);
}

struct RowKernels {
  void (*bf16)(const std::uint16_t*, std::int64_t, float*);
  void (*int8)(const std::uint8_t*, float, std::int64_t, float*);
  void (*fp8)(const std::uint8_t*, float, std::int64_t, float*);
};

void bf16_row_any(const std::uint16_t* from, std::int64_t count, float* to) { widen_row(from, count, to); }
void int8_row_any(const std::uint8_t* from, float scale, std::int64_t count, float* to) {
  dequantise_row<float_from_int8>(from, scale, count, to);
}
void fp8_row_any(const std::uint8_t* from, float scale, std::int64_t count, float* to) {
  dequantise_row<float_from_fp8>(from, scale, count, to);
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void bf16_row_avx2(const std::uint16_t* from, std::int64_t count, float* to) {
  widen_row(from, count, to);
}
__attribute__((target("avx512f,prefer-vector-width=512"))) void bf16_row_avx512(const std::uint16_t* from, std::int64_t count,
                                                                                float* to) {
  widen_row(from, count, to);
}
__attribute__((target("avx2,fma"))) void int8_row_avx2(const std::uint8_t* from, float scale, std::int64_t count, float* to) {
  dequantise_row<float_from_int8>(from, scale, count, to);
}
__attribute__((target("avx2,fma"))) void fp8_row_avx2(const std::uint8_t* from, float scale, std::int64_t count, float* to) {
  dequantise_row<float_from_fp8>(from, scale, count, to);
}
__attribute__((target("avx512f,prefer-vector-width=512"))) void int8_row_avx512(const std::uint8_t* from, float scale,
                                                                                std::int64_t count, float* to) {
  dequantise_row<float_from_int8>(from, scale, count, to);
}
__attribute__((target("avx512f,prefer-vector-width=512"))) void fp8_row_avx512(const std::uint8_t* from, float scale,
                                                                               std::int64_t count, float* to) {
  dequantise_row<float_from_fp8>(from, scale, count, to);
}

RowKernels choose_row_kernels() {
  if (__builtin_cpu_supports("avx512f")) return {bf16_row_avx512, int8_row_avx512, fp8_row_avx512};
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) return {bf16_row_avx2, int8_row_avx2, fp8_row_avx2};
  return {bf16_row_any, int8_row_any, fp8_row_any};
}
#else
RowKernels choose_row_kernels() { return {bf16_row_any, int8_row_any, fp8_row_any}; }
#endif

}  // namespace

void dequantise(const WeightMatrix& w, std::int64_t in, std::int64_t row, std::int64_t first, std::int64_t count, float* to) {
  static const RowKernels kChosen = choose_row_kernels();
  if (w.format == WeightFormat::kBf16) return kChosen.bf16(w.halves.data() + row * in + first, count, to);
  const auto row_kernel = w.format == WeightFormat::kInt8 ? kChosen.int8 : kChosen.fp8;
  row_kernel(w.codes.data() + row * in + first, w.scales[static_cast<std::size_t>(row)], count, to);
}

}  // namespace windlass::worker::cpu
