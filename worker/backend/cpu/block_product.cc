// A tile of the matrix has one row per vector lane. Its codes are multiplied with four columns of a token, broadcast to all
// lanes. Several tokens are processed together, so that codes are unpacked once for all of them.
#include "worker/backend/cpu/block_product.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
// gcc 12 reports the header's intentionally undefined values as ours (its bug 105593).
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#include <immintrin.h>
#pragma GCC diagnostic pop
#endif

namespace windlass::worker::cpu {
namespace {

constexpr std::int64_t kRows = BlockMatrix::kTileRows;
constexpr std::int64_t kColumns = BlockMatrix::kTileColumns;
constexpr int kQuads = kColumns / 4;
constexpr float kLargestCode = 127;
// Adding it to a small number rounds that to an integer in the lowest bits.
constexpr float kRound = 0x1.8p23F;
constexpr std::int32_t kRoundBits = 0x4B400000;

// One tile's codes of activations.
struct CodeTile {
  template <int kLanes>
  static inline __attribute__((always_inline)) void run(const float* x, std::int8_t* codes, float* scale, std::int32_t* sums) {
    Vector<kLanes> largest = {}, not_finite = {};
    for (int i = 0; i < kColumns; i += kLanes) {
      const Vector<kLanes> value = at<kLanes>(x + i), other = -value;
      const Vector<kLanes> magnitude = value < other ? other : value;
      largest = largest < magnitude ? magnitude : largest;
      not_finite += value * 0;
    }
    float most = 0, nothing = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      most = std::max(most, largest[lane]);
      nothing += not_finite[lane];
    }
    *scale = most / kLargestCode + nothing;  // NaN if an activation is NaN, and so are the products
    const float inverse = most > 0 ? kLargestCode / most : 0;
    std::int32_t whole[kColumns];
    for (int i = 0; i < kColumns; i += kLanes) {
      const Vector<kLanes> shifted = at<kLanes>(x + i) * inverse + kRound;
      Words<kLanes> bits;
      std::memcpy(&bits, &shifted, sizeof(bits));
      *reinterpret_cast<Words<kLanes>*>(whole + i) = bits - kRoundBits;
    }
    sums[0] = sums[1] = 0;
    for (int i = 0; i < kColumns / 2; ++i) {
      codes[i] = static_cast<std::int8_t>(whole[i]);
      codes[i + kColumns / 2] = static_cast<std::int8_t>(whole[i + kColumns / 2]);
      sums[0] += whole[i];
      sums[1] += whole[i + kColumns / 2];
    }
  }
};
using CodeTileOf = Compiled<CodeTile, void(const float*, std::int8_t*, float*, std::int32_t*)>;

// The loop of all kernels: for each tile of rows and a few tokens, calls `Tile::run<kTokens>`.
template <template <int kBits, int kGroup> class Tile, int kTokens, int kBits, int kGroup>
inline __attribute__((always_inline)) void tiles_of_coding(const BlockRows& job, std::int64_t first, std::int64_t end) {
  const BlockMatrix& w = *job.w;
  const CodedTokens& x = *job.x;
  const std::int64_t lines = w.tiles_of_row() * BlockMatrix::lines_of_tile(w.coding);
  for (std::int64_t tile = first; tile < end; ++tile) {
    const std::uint8_t* const from = w.lines[static_cast<std::size_t>(tile * lines)].bytes;
    const std::int64_t row = tile * kRows, rows = std::min(kRows, w.rows - row);
    std::int64_t t = 0;
    for (; t + kTokens <= x.tokens; t += kTokens) Tile<kBits, kGroup>::template run<kTokens>(job, from, t, row, rows);
    for (; t < x.tokens; ++t) Tile<kBits, kGroup>::template run<1>(job, from, t, row, rows);
  }
}

template <template <int kBits, int kGroup> class Tile, int kTokens>
inline __attribute__((always_inline)) void tiles(const BlockRows& job, std::int64_t first, std::int64_t end) {
  const GgmlCoding coding = job.w->coding;
  if (coding.bits == 4) return tiles_of_coding<Tile, kTokens, 4, 32>(job, first, end);
  if (coding.group == 32) return tiles_of_coding<Tile, kTokens, 8, 32>(job, first, end);
  tiles_of_coding<Tile, kTokens, 8, 16>(job, first, end);
}

// Sets a token's rows of y to the lanes, or adds the lanes to them.
inline __attribute__((always_inline)) void put(const BlockRows& job, std::int64_t token, std::int64_t row, std::int64_t rows,
                                               const float* lanes) {
  float* const y = job.y + token * job.w->rows + row;
  for (std::int64_t i = 0; i < rows; ++i) y[i] = job.accumulate ? y[i] + lanes[i] : lanes[i];
}

// For any processor.
template <int kBits, int kGroup>
struct AnyTile {
  template <int kTokens>
  static void run(const BlockRows& job, const std::uint8_t* lines, std::int64_t token, std::int64_t row, std::int64_t rows) {
    static_assert(kTokens == 1);
    constexpr int kGroups = kColumns / kGroup;
    const CodedTokens& x = *job.x;
    float sums[kRows] = {};
    for (std::int64_t tile = 0; tile < x.tiles; ++tile, lines += (kGroups + kBits) * 64) {
      const std::int64_t at = token * x.tiles + tile;
      const std::int8_t* const codes = x.codes.data() + at * kColumns;
      const float scale = x.scales[static_cast<std::size_t>(at)];
      for (int group = 0; group < kGroups; ++group) {
        const std::int32_t* const halves = x.sums.data() + 2 * at;
        const std::int32_t sum = kGroups == 2 ? halves[group] : halves[0] + halves[1];
        for (int r = 0; r < kRows; ++r) {
          std::int32_t product = 0;
          for (int i = group * kGroup; i < (group + 1) * kGroup; ++i) {
            const int quad = i / 4;
            int code = lines[(kGroups + quad % kBits) * 64 + 4 * r + i % 4];
            if (kBits == 4) code = quad < kBits ? code & 0xF : code >> 4;
            product += code * codes[i];
          }
          std::uint16_t halves_of_row[2];
          std::memcpy(&halves_of_row[0], lines + group * 64 + 2 * r, 2);
          std::memcpy(&halves_of_row[1], lines + group * 64 + 32 + 2 * r, 2);
          sums[r] += scale * (float_from_f16(halves_of_row[0]) * static_cast<float>(product) +
                              float_from_f16(halves_of_row[1]) * static_cast<float>(sum));
        }
      }
    }
    put(job, token, row, rows, sums);
  }
};

void any(const BlockRows& job, std::int64_t first, std::int64_t end) { tiles<AnyTile, 1>(job, first, end); }

#if defined(__x86_64__)
#define WINDLASS_AVX2 __attribute__((target("avx2,fma,f16c")))
#define WINDLASS_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vnni,f16c,fma" WINDLASS_WIDE)))

// Processes a tile's rows in two halves: eight rows per vector. Products of two bytes are added in 16 bits, eight times at
// most: 8 * 2 * 15 * 127 is less than 2^15. 8-bit codes are split into two of 4 bits.
template <int kBits, int kGroup>
struct Avx2Tile {
  template <int kTokens>
  WINDLASS_AVX2 static void run(const BlockRows& job, const std::uint8_t* lines, std::int64_t token, std::int64_t row,
                                std::int64_t rows) {
    constexpr int kGroups = kColumns / kGroup, kQuadsOfGroup = kQuads / kGroups;
    const CodedTokens& x = *job.x;
    const __m256i low = _mm256_set1_epi8(0xF), one = _mm256_set1_epi16(1), sixteen = _mm256_set1_epi16(16);
    float lanes[kTokens][kRows];
#pragma GCC unroll 8
    for (int half = 0; half < 2; ++half) {
      const std::uint8_t* from = lines;
      __m256 sums[kTokens];
#pragma GCC unroll 8
      for (auto& sum : sums) sum = _mm256_setzero_ps();
      for (std::int64_t tile = 0; tile < x.tiles; ++tile, from += (kGroups + kBits) * 64) {
        const std::int64_t at = token * x.tiles + tile;
#pragma GCC unroll 8
        for (int group = 0; group < kGroups; ++group) {
          __m256i below[kTokens], above[kTokens];
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) below[t] = above[t] = _mm256_setzero_si256();
#pragma GCC unroll 8
          for (int q = 0; q < kQuadsOfGroup; ++q) {
            const int quad = group * kQuadsOfGroup + q;
            const std::uint8_t* const line = from + (kGroups + quad % kBits) * 64 + 32 * half;
            const __m256i both = _mm256_load_si256(reinterpret_cast<const __m256i*>(line));
            const __m256i upper = _mm256_and_si256(_mm256_srli_epi16(both, 4), low);
            const __m256i lower = kBits == 4 && quad >= kBits ? upper : _mm256_and_si256(both, low);
#pragma GCC unroll 8
            for (int t = 0; t < kTokens; ++t) {
              std::int32_t four;
              std::memcpy(&four, x.codes.data() + (at + t * x.tiles) * kColumns + 4 * quad, sizeof(four));
              const __m256i columns = _mm256_set1_epi32(four);
              below[t] = _mm256_add_epi16(below[t], _mm256_maddubs_epi16(lower, columns));
              if (kBits == 8) above[t] = _mm256_add_epi16(above[t], _mm256_maddubs_epi16(upper, columns));
            }
          }
          const auto* const scales = reinterpret_cast<const __m128i*>(from + group * 64 + 16 * half);
          const __m256 scale = _mm256_cvtph_ps(_mm_load_si128(scales)), least = _mm256_cvtph_ps(_mm_load_si128(scales + 2));
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            __m256i product = _mm256_madd_epi16(below[t], one);
            if (kBits == 8) product = _mm256_add_epi32(product, _mm256_madd_epi16(above[t], sixteen));
            const std::int64_t of_token = at + t * x.tiles;
            const std::int32_t* const sum = x.sums.data() + 2 * of_token;
            const auto of_codes = static_cast<float>(kGroups == 2 ? sum[group] : sum[0] + sum[1]);
            const __m256 scaled =
                _mm256_fmadd_ps(scale, _mm256_cvtepi32_ps(product), _mm256_mul_ps(least, _mm256_set1_ps(of_codes)));
            sums[t] = _mm256_fmadd_ps(_mm256_set1_ps(x.scales[static_cast<std::size_t>(of_token)]), scaled, sums[t]);
          }
        }
      }
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) _mm256_storeu_ps(lanes[t] + 8 * half, sums[t]);
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) put(job, token + t, row, rows, lanes[t]);
  }
};

WINDLASS_AVX2 void avx2(const BlockRows& job, std::int64_t first, std::int64_t end) { tiles<Avx2Tile, 4>(job, first, end); }

template <int kBits, int kGroup>
struct VnniTile {
  template <int kTokens>
  WINDLASS_VNNI static void run(const BlockRows& job, const std::uint8_t* lines, std::int64_t token, std::int64_t row,
                                std::int64_t rows) {
    constexpr int kGroups = kColumns / kGroup, kQuadsOfGroup = kQuads / kGroups;
    const CodedTokens& x = *job.x;
    const __m512i low = _mm512_set1_epi8(0xF);
    __m512 sums[kTokens];
#pragma GCC unroll 8
    for (auto& sum : sums) sum = _mm512_setzero_ps();
    for (std::int64_t tile = 0; tile < x.tiles; ++tile, lines += (kGroups + kBits) * 64) {
      const std::int64_t at = token * x.tiles + tile;
#pragma GCC unroll 8
      for (int group = 0; group < kGroups; ++group) {
        __m512i products[kTokens];
#pragma GCC unroll 8
        for (auto& product : products) product = _mm512_setzero_si512();
#pragma GCC unroll 8
        for (int q = 0; q < kQuadsOfGroup; ++q) {
          const int quad = group * kQuadsOfGroup + q;
          __m512i codes = _mm512_load_si512(lines + (kGroups + quad % kBits) * 64);
          if (kBits == 4) codes = _mm512_and_si512(quad >= kBits ? _mm512_srli_epi16(codes, 4) : codes, low);
#pragma GCC unroll 8
          for (int t = 0; t < kTokens; ++t) {
            std::int32_t four;
            std::memcpy(&four, x.codes.data() + (at + t * x.tiles) * kColumns + 4 * quad, sizeof(four));
            products[t] = _mm512_dpbusd_epi32(products[t], codes, _mm512_set1_epi32(four));
          }
        }
        const __m512 scale = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(lines + group * 64)));
        const __m512 least = _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(lines + group * 64 + 32)));
#pragma GCC unroll 8
        for (int t = 0; t < kTokens; ++t) {
          const std::int64_t of_token = at + t * x.tiles;
          const std::int32_t* const sum = x.sums.data() + 2 * of_token;
          const auto of_codes = static_cast<float>(kGroups == 2 ? sum[group] : sum[0] + sum[1]);
          const __m512 scaled =
              _mm512_fmadd_ps(scale, _mm512_cvtepi32_ps(products[t]), _mm512_mul_ps(least, _mm512_set1_ps(of_codes)));
          sums[t] = _mm512_fmadd_ps(_mm512_set1_ps(x.scales[static_cast<std::size_t>(of_token)]), scaled, sums[t]);
        }
      }
    }
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      alignas(64) float lanes[kRows];
      _mm512_store_ps(lanes, sums[t]);
      put(job, token + t, row, rows, lanes);
    }
  }
};

WINDLASS_VNNI void vnni(const BlockRows& job, std::int64_t first, std::int64_t end) { tiles<VnniTile, 8>(job, first, end); }
#endif

}  // namespace

void code_tokens(const float* x, std::int64_t tokens, std::int64_t columns, ThreadTeam& team, CodedTokens& to) {
  assert(columns % kColumns == 0);
  to.tokens = tokens;
  to.tiles = columns / kColumns;
  const auto tiles = static_cast<std::size_t>(tokens * to.tiles);
  to.codes.resize(std::max(to.codes.size(), tiles * kColumns));
  to.scales.resize(std::max(to.scales.size(), tiles));
  to.sums.resize(std::max(to.sums.size(), 2 * tiles));
  const auto code_tile = CodeTileOf::for_this_processor();
  const auto code = [&](std::int64_t t, int /*member*/) {
    for (std::int64_t tile = t * to.tiles; tile < (t + 1) * to.tiles; ++tile)
      code_tile(x + tile * kColumns, to.codes.data() + tile * kColumns, to.scales.data() + tile, to.sums.data() + 2 * tile);
  };
  if (tokens * columns >= kWorthSharing) return team.run(tokens, code);
  for (std::int64_t t = 0; t < tokens; ++t) code(t, 0);
}

#if defined(__x86_64__)
// F16C converts half floats. clang 16, which builds the fuzzers, cannot query it with __builtin_cpu_supports().
bool has_f16c() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
}
#endif

BlockKernel block_kernel(VectorSet vectors) {
#if defined(__x86_64__)
  if (vectors == VectorSet::kAvx512 && __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw")) return vnni;
  if (vectors != VectorSet::kAny && has_f16c()) return avx2;
#endif
  return any;
}

}  // namespace windlass::worker::cpu
