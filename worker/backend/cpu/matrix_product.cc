// Few tokens: a tile of some matrix rows and four tokens stays in registers over a block of columns. Its inputs are in the
// first-level cache, except for the matrix, which streams from memory, or the tokens, which come from the second level.
#include "worker/backend/cpu/matrix_product.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <utility>

#include <cblas.h>

#include "worker/backend/cpu/quantised.h"
#include "worker/backend/vectors.h"

namespace windlass::worker::cpu {
namespace {

// Columns per block: sums go to y block by block, in this order for any number of tokens.
constexpr std::int64_t kDepth = 512;
constexpr std::int64_t kTokensOfTile = 4;
// If the tokens take more than this, process them block by block over many rows; otherwise row by row over all columns.
constexpr std::int64_t kNearFloats = 1 << 16;
// Prefetch distance of codes: they are unpacked row by row, with too few reads in flight to hide the memory's latency.
constexpr std::int64_t kBytesAhead = 1024;
// Most rows that a thread takes at a time: enough to read memory in long runs.
constexpr std::int64_t kMaxRowsOfPart = 96;
// FP32 numbers unpacked at a time for OpenBLAS: a megabyte, which stays in the second-level cache until the product reads it.
constexpr std::int64_t kDequantisedFloats = 1 << 18;

struct FewTokens {
  const float* x;             // (blocks of kDepth columns, tokens, kDepth), in the matrix's order
  const float* values;        // (out, in), or
  const WeightMatrix* codes;  // the same as codes
  float* y;                   // (tokens, out)
  std::int64_t tokens, in, out;
  bool accumulate;
};

// 16- and 8-bit numbers are converted to floats in an order that needs no shuffling: from a vector of 32-bit words, first the
// lowest number of every word, then the next. x is brought into the same order.
std::int64_t numbers_of_word(const WeightMatrix* codes) {
  if (codes == nullptr) return 1;
  return codes->format == WeightFormat::kBf16 ? 2 : 4;
}

// Reorders `count` numbers for vectors of this many words, and pads with zeros to whole vectors.
void put_in_order(const float* from, std::int64_t count, std::int64_t lanes, std::int64_t of_word, float* to) {
  const std::int64_t vectors = lanes * of_word;
  for (std::int64_t first = 0; first < count; first += vectors) {
    for (std::int64_t n = 0; n < of_word; ++n) {
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        const std::int64_t at = first + lane * of_word + n;
        *to++ = at < count ? from[at] : 0;
      }
    }
  }
}

template <int kLanes>
inline __attribute__((always_inline)) void put_bits(const Words<kLanes>& bits, float* to) {
  *reinterpret_cast<Words<kLanes>*>(to) = bits;
}

static_assert(std::endian::native == std::endian::little, "the first number of a word is its lowest bits");

// Converters from a vector of words to floats, in order.
struct FromBf16 {
  static constexpr int kOfWord = 2;
  template <int kLanes>
  static inline __attribute__((always_inline)) void put(const Words<kLanes>& words, float /*scale*/, float* to) {
    put_bits<kLanes>(words << 16, to);
    put_bits<kLanes>((words >> 16) << 16, to + kLanes);
  }
};
struct FromInt8 {
  static constexpr int kOfWord = 4;
  template <int kLanes>
  static inline __attribute__((always_inline)) void put(const Words<kLanes>& words, float scale, float* to) {
    for (int n = 0; n < kOfWord; ++n) {
      const Words<kLanes> whole = (words << (24 - 8 * n)) >> 24;
      at<kLanes>(to + n * kLanes) = __builtin_convertvector(whole, Vector<kLanes>) * scale;
    }
  }
};
// Same method as float_from_fp8 in quantised.cc.
struct FromFp8 {
  static constexpr int kOfWord = 4;
  template <int kLanes>
  static inline __attribute__((always_inline)) void put(const Words<kLanes>& words, float scale, float* to) {
    for (int n = 0; n < kOfWord; ++n) {
      const Words<kLanes> code = words >> (8 * n);
      const Words<kLanes> bits = ((code & 0x7F) << 20) + ((127 - 7) << 23);
      Vector<kLanes> normal;
      std::memcpy(&normal, &bits, sizeof(bits));
      const Vector<kLanes> small = 2 * normal - 0x1p-6F;
      const Vector<kLanes> magnitude = (small < normal ? small : normal) * scale;
      Words<kLanes> found;
      std::memcpy(&found, &magnitude, sizeof(found));
      put_bits<kLanes>(found | ((code & 0x80) << 24), to + n * kLanes);
    }
  }
};

// Converts `count` numbers from `codes` to floats, in order, padded with zeros to whole vectors.
template <class From, int kLanes, class Code>
inline __attribute__((always_inline)) void unpack(const Code* codes, std::int64_t count, float scale, float* to) {
  constexpr std::int64_t kNumbers = kLanes * From::kOfWord;
  std::int64_t i = 0;
  for (; i + kNumbers <= count; i += kNumbers) {
    __builtin_prefetch(reinterpret_cast<const void*>(reinterpret_cast<std::uintptr_t>(codes + i) + kBytesAhead));
    From::template put<kLanes>(*reinterpret_cast<const Words<kLanes>*>(codes + i), scale, to + i);
  }
  if (i == count) return;
  Words<kLanes> rest = {};
  std::memcpy(&rest, codes + i, static_cast<std::size_t>(count - i) * sizeof(Code));
  From::template put<kLanes>(rest, scale, to + i);
}

// A row's columns from `column` on, as floats.
template <int kLanes>
inline __attribute__((always_inline)) void unpack_row(const WeightMatrix& w, std::int64_t in, std::int64_t row,
                                                      std::int64_t column, std::int64_t count, float* to) {
  const std::int64_t first = row * in + column;
  if (w.format == WeightFormat::kBf16) return unpack<FromBf16, kLanes>(w.halves.data() + first, count, 1, to);
  const float scale = w.scales[static_cast<std::size_t>(row)];
  if (w.format == WeightFormat::kInt8) return unpack<FromInt8, kLanes>(w.codes.data() + first, count, scale, to);
  unpack<FromFp8, kLanes>(w.codes.data() + first, count, scale, to);
}

template <int kLanes, std::size_t... kLane>
inline __attribute__((always_inline)) void add_halves(const Vector<kLanes>& whole, Vector<kLanes / 2>& half,
                                                      std::index_sequence<kLane...> /*lanes*/) {
  half = __builtin_shufflevector(whole, whole, static_cast<int>(kLane)...) +
         __builtin_shufflevector(whole, whole, static_cast<int>(kLane) + kLanes / 2 ...);
}

template <int kLanes>
inline __attribute__((always_inline)) float sum_of_lanes(const Vector<kLanes>& lanes) {
  if constexpr (kLanes == 2) {
    return lanes[0] + lanes[1];
  } else {
    Vector<kLanes / 2> half;
    add_halves<kLanes>(lanes, half, std::make_index_sequence<kLanes / 2>());
    return sum_of_lanes<kLanes / 2>(half);
  }
}

// y[t * y_stride + r] = or += the sum over `count` columns of w[r * w_stride + column] * x[t * kDepth + column]. The remainder
// is padded with zeros to a full vector, so all columns are computed in the same way and a sum does not depend on the tile.
// REQUIRES: x's columns are padded with zeros to a multiple of kLanes.
template <int kLanes, int kRows, std::size_t... kSum>
inline __attribute__((always_inline)) void tile(const float* w, std::int64_t w_stride, const float* x, std::int64_t count,
                                                float* y, std::int64_t y_stride, bool add,
                                                std::index_sequence<kSum...> /*row by row of a token*/) {
  Vector<kLanes> lanes[sizeof...(kSum)] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    ((lanes[kSum] += at<kLanes>(w + (kSum % kRows) * w_stride + i) * at<kLanes>(x + (kSum / kRows) * kDepth + i)), ...);
  }
  if (i < count) {
    float rest[kRows * kLanes] = {};
    for (int r = 0; r < kRows; ++r) std::copy(w + r * w_stride + i, w + r * w_stride + count, rest + r * kLanes);
    ((lanes[kSum] += at<kLanes>(rest + (kSum % kRows) * kLanes) * at<kLanes>(x + (kSum / kRows) * kDepth + i)), ...);
  }
  const float sums[] = {sum_of_lanes<kLanes>(lanes[kSum])...};
  if (add) {
    ((y[(kSum / kRows) * y_stride + kSum % kRows] += sums[kSum]), ...);
  } else {
    ((y[(kSum / kRows) * y_stride + kSum % kRows] = sums[kSum]), ...);
  }
}

// Computes kRows rows from `row` on, for a block of columns and all tokens.
template <int kLanes, int kRows>
inline __attribute__((always_inline)) void block_of_rows(const FewTokens& job, std::int64_t row, std::int64_t column) {
  std::int64_t count = std::min(kDepth, job.in - column);
  float floats[kRows * kDepth];
  const float* w = floats;
  std::int64_t w_stride = kDepth;
  if (job.values != nullptr) {
    w = job.values + row * job.in + column;
    w_stride = job.in;
  } else {
    for (int r = 0; r < kRows; ++r) unpack_row<kLanes>(*job.codes, job.in, row + r, column, count, floats + r * kDepth);
    const std::int64_t whole = kLanes * numbers_of_word(job.codes);
    count = (count + whole - 1) / whole * whole;
  }
  const float* x = job.x + column * job.tokens;
  float* y = job.y + row;
  const bool add = job.accumulate || column > 0;
  std::int64_t t = 0;
  for (; t + kTokensOfTile <= job.tokens; t += kTokensOfTile) {
    tile<kLanes, kRows>(w, w_stride, x + t * kDepth, count, y + t * job.out, job.out, add,
                        std::make_index_sequence<kRows * kTokensOfTile>());
  }
  x += t * kDepth;
  y += t * job.out;
  switch (job.tokens - t) {
    case 3: return tile<kLanes, kRows>(w, w_stride, x, count, y, job.out, add, std::make_index_sequence<kRows * 3>());
    case 2: return tile<kLanes, kRows>(w, w_stride, x, count, y, job.out, add, std::make_index_sequence<kRows * 2>());
    case 1: return tile<kLanes, kRows>(w, w_stride, x, count, y, job.out, add, std::make_index_sequence<kRows>());
    default: return;
  }
}

template <int kLanes, int kRows>
inline __attribute__((always_inline)) void rows(const FewTokens& job, std::int64_t first, std::int64_t end) {
  const std::int64_t end_of_tiles = first + (end - first) / kRows * kRows;
  const std::int64_t at_once = job.tokens * job.in > kNearFloats ? kDepth : job.in;
  for (std::int64_t from = 0; from < job.in; from += at_once) {
    const std::int64_t to = std::min(from + at_once, job.in);
    for (std::int64_t row = first; row < end_of_tiles; row += kRows) {
      for (std::int64_t column = from; column < to; column += kDepth) block_of_rows<kLanes, kRows>(job, row, column);
    }
    for (std::int64_t row = end_of_tiles; row < end; ++row) {
      for (std::int64_t column = from; column < to; column += kDepth) block_of_rows<kLanes, 1>(job, row, column);
    }
  }
}

// Rows of y are y_stride floats apart.
void many_tokens(const float* x, const float* w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out,
                 std::int64_t y_stride, bool accumulate) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(tokens), static_cast<int>(out), static_cast<int>(in),
              1.0F, x, static_cast<int>(in), w, static_cast<int>(in), accumulate ? 1.0F : 0.0F, y, static_cast<int>(y_stride));
}

// Register use with 8 lanes: 12 sums, 3 vectors of the matrix and 1 of the tokens, in total 16. AVX-512 has 32: with 16 lanes
// 24, 6 and 1. 4 lanes are for any processor.
constexpr int rows_of_tile(int lanes) { return lanes == 16 ? 6 : 3; }

// Calls rows(first, end) for parts made of whole tiles, several per thread.
template <class Rows>
void share_rows(ThreadTeam& team, std::int64_t count, std::int64_t rows_of_tile, const Rows& rows) {
  const std::int64_t tiles = count / (rows_of_tile * team.size() * 4);
  const std::int64_t part_rows = rows_of_tile * std::clamp<std::int64_t>(tiles, 1, kMaxRowsOfPart / rows_of_tile);
  team.run((count + part_rows - 1) / part_rows,
           [&](std::int64_t part, int /*member*/) { rows(part * part_rows, std::min((part + 1) * part_rows, count)); });
}

struct FewRows {
  template <int kLanes>
  static inline __attribute__((always_inline)) void run(const FewTokens& job, std::int64_t first, std::int64_t end) {
    rows<kLanes, rows_of_tile(kLanes)>(job, first, end);
  }
};
using FewRowsOf = Compiled<FewRows, void(const FewTokens&, std::int64_t, std::int64_t)>;

}  // namespace

struct FewTokensKernel {
  const char* name;
  VectorSet vectors;
  std::int64_t lanes;
  void (*rows)(const FewTokens& job, std::int64_t first, std::int64_t end) = FewRowsOf::for_vectors(vectors);
  std::int64_t rows_of_tile = cpu::rows_of_tile(static_cast<int>(lanes));
  BlockKernel blocks = block_kernel(vectors);
};

std::span<const FewTokensKernel* const> few_tokens_kernels() {
  static const FewTokensKernel kAvx512{"avx512", VectorSet::kAvx512, 16}, kAvx2{"avx2", VectorSet::kAvx2, 8},
      kAny{"any", VectorSet::kAny, 4};
  static const std::vector<const FewTokensKernel*> kUsable = [] {
    std::vector<const FewTokensKernel*> usable;
    for (const FewTokensKernel* kernel : {&kAvx512, &kAvx2, &kAny}) {
      if (kernel->vectors <= widest_vectors()) usable.push_back(kernel);
    }
    return usable;
  }();
  return kUsable;
}

const char* name_of(const FewTokensKernel& kernel) { return kernel.name; }

void MatrixProduct::few_tokens(const float* x, const float* values, const WeightMatrix* codes, float* y, std::int64_t tokens,
                               std::int64_t in, std::int64_t out, bool accumulate) {
  if (tokens == 0) return;
  const std::int64_t blocks = (in + kDepth - 1) / kDepth;
  x_.resize(std::max(x_.size(), static_cast<std::size_t>(blocks * tokens * kDepth)));
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t column = block * kDepth;
    const std::int64_t count = std::min(kDepth, in - column);
    for (std::int64_t t = 0; t < tokens; ++t) {
      put_in_order(x + t * in + column, count, kernel_->lanes, numbers_of_word(codes),
                   x_.data() + (block * tokens + t) * kDepth);
    }
  }
  const FewTokens job{x_.data(), values, codes, y, tokens, in, out, accumulate};
  if (tokens * in * out < kWorthSharing) return kernel_->rows(job, 0, out);
  share_rows(*team_, out, kernel_->rows_of_tile, [&](std::int64_t first, std::int64_t end) { kernel_->rows(job, first, end); });
}

void MatrixProduct::blocks(const float* x, const BlockMatrix& w, float* y, std::int64_t tokens, bool accumulate) {
  if (tokens == 0) return;
  code_tokens(x, tokens, w.columns, *team_, coded_);
  const BlockRows job{&coded_, &w, y, accumulate};
  constexpr std::int64_t kRows = BlockMatrix::kTileRows;
  const auto rows = [&](std::int64_t first, std::int64_t end) {
    kernel_->blocks(job, first / kRows, (end + kRows - 1) / kRows);
  };
  if (tokens * w.columns * w.rows < kWorthSharing) return rows(0, w.rows);
  share_rows(*team_, w.rows, kRows, rows);
}

void MatrixProduct::multiply(const float* x, const float* w, float* y, std::int64_t tokens, std::int64_t in, std::int64_t out,
                             bool accumulate) {
  if (tokens <= kFewTokens) return few_tokens(x, w, nullptr, y, tokens, in, out, accumulate);
  many_tokens(x, w, y, tokens, in, out, out, accumulate);
}

void MatrixProduct::multiply(const float* x, const WeightMatrix& w, float* y, std::int64_t tokens, std::int64_t in,
                             std::int64_t out, bool accumulate) {
  if (w.format == WeightFormat::kFp32) return multiply(x, w.values.data(), y, tokens, in, out, accumulate);
  if (w.format == WeightFormat::kBlocks) return blocks(x, w.blocks, y, tokens, accumulate);
  if (tokens <= kFewTokens) return few_tokens(x, nullptr, &w, y, tokens, in, out, accumulate);
  const std::int64_t at_once = std::clamp<std::int64_t>(kDequantisedFloats / in, 1, out);
  dequantised_.resize(std::max(dequantised_.size(), static_cast<std::size_t>(at_once * in)));
  for (std::int64_t first = 0; first < out; first += at_once) {
    const std::int64_t count = std::min(at_once, out - first);
    team_->run(count, [&](std::int64_t row, int /*member*/) {
      dequantise(w, in, first + row, 0, in, dequantised_.data() + row * in);
    });
    many_tokens(x, dequantised_.data(), y + first, tokens, in, count, out, accumulate);
  }
}

void set_blas_threads(int threads) {
#if defined(__SANITIZE_THREAD__)
  threads = 1;  // OpenBLAS is not instrumented: synchronisation between its threads would be reported as races
#endif
  openblas_set_num_threads(threads);
}

}  // namespace windlass::worker::cpu
