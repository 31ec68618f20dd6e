// Kernels: the interface of our own CUDA kernels, as the backend calls them. Their code is in kernels/*.cuh.
//
// Each call queues one kernel on a stream and returns immediately. All pointers are device memory that must stay valid until it
// has run. A void pointer is an array of the precision's storage type (float or Bf16); sums are always FP32. There are two
// implementations: by nvcc for a GPU, and by the C++ compiler for the emulation used in tests (emulation/execution.h).
//
// head_dim is the model's; padded_dim is the next multiple of kDimAlignment, to which queries and cache are padded with zeros
// so that rows can be read 16 bytes at a time.
#pragma once

#include <cstdint>

#include "worker/backend/logit_summary.h"

namespace windlass::worker::cuda {

inline constexpr int kCacheBlockTokens = 16;
inline constexpr int kDimAlignment = 8;
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kDecodeHeads = 4;       // query heads per thread block of decode attention
inline constexpr int kPrefillTileRows = 64;  // queries per tile of prefill attention
inline constexpr int kMaxFewRows = 64;       // rows of x in a product that converts codes on the fly
inline constexpr int kMaxExperts = 4096;
inline constexpr int kMaxExpertsPerToken = 32;
inline constexpr int kSummarySegment = 4096;     // logits per thread block of a summary
inline constexpr int kMaxSummarySegments = 256;  // per row

[[nodiscard]] constexpr std::int64_t padded_dim_of(std::int64_t head_dim) {
  return (head_dim + kDimAlignment - 1) / kDimAlignment * kDimAlignment;
}

// A brain float: the upper half of a float.
struct Bf16 {
  std::uint16_t bits;
};

// cudaStream_t, or the emulation's queue.
using StreamHandle = void*;

// residual (count, hidden) = rows of embedding (end - first, hidden) for tokens (count). The embedding has the ids `first` to
// `end` - 1, either the whole vocabulary or one rank's; tokens with other ids become zeros. With learned positions, adds the
// row of each token's position.
struct EmbedTokens {
  const std::int32_t* tokens;
  const void* embedding;
  float* residual;
  int count;
  int hidden;
  int first;
  int end;
  const std::int32_t* positions;  // (count); only used with:
  const float* learned;           // (positions, hidden), or null
};

// out (count, hidden) = x / rms(x) * weight, row by row; with a shift, LayerNorm: (x - mean(x)) / deviation(x) * weight +
// shift. x is residual plus bias, if any, and then replaces residual; with `in_place`, the normalised rows replace it. With
// `rows` (count), x is residual at these rows and residual does not change; bias and in_place are then not allowed.
struct NormRows {
  float* residual;           // (any, hidden)
  const float* bias;         // (hidden), or null
  const float* weight;       // (hidden)
  const float* shift;        // (hidden), or null
  const std::int32_t* rows;  // or null
  void* out;
  int count;
  int hidden;
  float eps;
  bool in_place = false;
};

// out (count, width) = x (any, width), or x at `rows` (count).
struct RoundRows {
  const float* x;
  const std::int32_t* rows;  // or null
  void* out;
  int count;
  int width;
};

// Takes qkv (tokens, heads + 2 kv_heads, head_dim) plus bias, normalises the heads of queries and keys (if there are norms) and
// rotates them to their positions. Writes queries to q (tokens, heads, padded_dim), keys and values to their cache slots. A
// slot is block * kCacheBlockTokens + offset; tokens with a negative slot are not stored. Dimension i pairs with i + head_dim /
// 2.
struct RopeStore {
  const void* qkv;
  const float* bias;    // (heads + 2 kv_heads, head_dim), or null
  const float* q_norm;  // (head_dim), or null, like k_norm
  const float* k_norm;
  const float* cos;  // (positions, head_dim / 2); null, like sin, without rotation
  const float* sin;
  const std::int32_t* positions;  // (tokens)
  const std::int32_t* slots;      // (tokens)
  void* q;
  void* keys;  // (blocks, kv_heads, kCacheBlockTokens, padded_dim)
  void* values;
  int tokens;
  int heads;
  int kv_heads;
  int head_dim;
  int padded_dim;
  float eps;
};

// One token's query over its sequence's cache.
struct DecodeRow {
  std::int32_t row;       // of q and out
  std::int32_t position;  // last visible position; -1: none, and the row becomes zeros
  std::int32_t table;     // start of the sequence's blocks in `tables`
};

// Up to kPrefillTileRows consecutive tokens of one sequence.
struct PrefillTile {
  std::int32_t row;  // of the first
  std::int32_t rows;
  std::int32_t position;  // of the first
  std::int32_t table;
};

// Causal grouped-query attention over the paged cache: out (tokens, heads, head_dim) from q (tokens, heads, padded_dim).
struct Attention {
  const void* q;
  const void* keys;  // as in RopeStore
  const void* values;
  const std::int32_t* tables;  // block ids, sequence after sequence
  void* out;
  int heads;
  int kv_heads;
  int head_dim;
  int padded_dim;
  int window;   // number of positions a token sees, including its own; 0: all
  float scale;  // of the scores
};

// Decode: each row's context is divided into `splits` parts that are computed in parallel and then combined.
struct DecodeAttention {
  Attention attention;
  const DecodeRow* rows;
  float* partial;        // (count, heads, splits, head_dim): sums before division; unused with one split, like `stats`
  float* partial_stats;  // (count, heads, splits, 2): largest score and sum of weights
  int count;
  int splits;
};

struct PrefillAttention {
  Attention attention;
  const PrefillTile* tiles;
  int count;
};

// out (rows, width) = silu(gate) * up, from in (rows, 2 width) plus bias, with gate before up in each row; or relu(in) from in
// (rows, width) plus bias.
struct Activate {
  const void* in;
  void* out;
  int rows;
  int width;
  const float* bias;  // as wide as a row of `in`, or null
};

// residual (rows, hidden) += bias (hidden), in each row.
struct AddBias {
  float* residual;
  const float* bias;
  int rows;
  int hidden;
};

// Copies between a layer's cache and plain (tokens, 2, kv_heads, head_dim): keys, then values; token t is at slots[t].
struct CopyKv {
  const std::int32_t* slots;
  void* keys;
  void* values;
  float* plain;
  int tokens;
  int kv_heads;
  int head_dim;
  int padded_dim;
};

// to (rows, in) = codes (rows, in) as numbers of the storage type, multiplied by their row's scale (model/weight_matrix.h).
struct UnpackRows {
  const std::uint8_t* codes;
  const float* scales;  // (rows)
  void* to;
  int rows;
  int in;
  bool fp8;  // otherwise INT8
};

// codes (rows, in) and scales (rows) = x (rows, in) in FP8, scaling each row's largest number to e4m3's largest
// (model/weight_matrix.h). NaN stays NaN. REQUIRES: in is a multiple of 16.
struct QuantiseRows {
  const void* x;
  std::uint8_t* codes;
  float* scales;
  int rows;
  int in;
};

// y (rows, out), with rows `stride` apart, = products (rows, out) of FP8 numbers times their row's and channel's scale; or y +=
// that. REQUIRES: out and stride are multiples of 16.
struct ScaleProducts {
  const float* products;
  const float* row_scales;
  const float* channel_scales;
  void* y;  // of the storage type, or float
  int rows;
  int out;
  int stride;
  bool float_out;
  bool accumulate;  // requires float_out
};

// y (rows, out) = x (rows, in) * w^T, or y += that, with w (out, in) as codes and scales. x has the storage type; y has it too,
// or is float.
struct MultiplyFew {
  const void* x;
  const std::uint8_t* codes;
  const float* scales;  // (out)
  void* y;
  int rows;
  int in;
  int out;
  bool fp8;  // otherwise INT8
  bool float_out;
  bool accumulate;  // requires float_out
};

// The assignment of a batch's tokens to experts: one entry per token and chosen expert, grouped by expert, in the order of
// tokens.
struct ExpertEntries {
  std::int32_t* begins;  // (experts + 1): the first entry of each expert; the last number is the total
  std::int32_t* rows;    // (tokens * each): the token of each entry
  std::int32_t* places;  // (tokens, each): a token's entries, in the order of its experts' numbers; -1: none
  float* weights;        // (tokens, each)
};

// Chooses the experts with the largest router logits of x (tokens, hidden); ties go to the lower number, and NaN comes last.
// Weights are a softmax over the chosen logits, or over all. Tokens with a negative slot get no entries. A logit's sum has a
// fixed order, so the choice does not depend on the batch.
struct RouteTokens {
  const void* x;
  const float* router;        // (experts, hidden)
  const std::int32_t* slots;  // (tokens)
  float* logits;              // (tokens, experts): passed between the two kernels, like `chosen`
  std::int32_t* chosen;       // (tokens, each)
  ExpertEntries entries;
  int tokens;
  int hidden;
  int experts;     // at most kMaxExperts
  int each;        // experts per token, at most kMaxExpertsPerToken
  bool normalise;  // over the chosen experts
};

// y (entries, out) = each entry's row of x times its expert's w^T; w (experts, out, in) has the storage type, or is codes with
// scales. y has the storage type, or is float.
struct MultiplyExperts {
  const void* x;
  const std::int32_t* rows;  // row of x per entry; null: the entry's own number
  const void* w;
  const float* scales;  // (experts, out); null: w has the storage type
  void* y;
  const std::int32_t* begins;  // as in ExpertEntries
  int tokens;                  // most tokens that an expert can have
  int each;
  int experts;
  int in;
  int out;
  bool fp8;  // otherwise INT8, if there are scales
  bool float_out;
};

// residual (tokens, hidden) = the weighted sum of the rows (entries, hidden) of each token's entries, in the order of experts'
// numbers; or += that.
struct AddExperts {
  const float* rows;
  const std::int32_t* places;  // as in ExpertEntries
  const float* weights;
  float* residual;
  int tokens;
  int each;
  int hidden;
  bool accumulate;
};

// out (rows): the summary of each row of logits (rows, width) that needs one; the first token has the id first_id. REQUIRES:
// width <= kMaxSummarySegments * kSummarySegment.
struct SummariseLogits {
  const float* logits;
  const RowNeed* needs;    // (rows)
  LogitSummary* segments;  // (rows, width / kSummarySegment, rounded up): passed between the two kernels
  LogitSummary* out;
  int rows;
  int width;
  int first_id;
};

class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual void embed_tokens(StreamHandle stream, const EmbedTokens& work) const = 0;
  virtual void norm_rows(StreamHandle stream, const NormRows& work) const = 0;
  virtual void round_rows(StreamHandle stream, const RoundRows& work) const = 0;
  virtual void rope_store(StreamHandle stream, const RopeStore& work) const = 0;
  // Includes combining the splits.
  virtual void decode_attention(StreamHandle stream, const DecodeAttention& work) const = 0;
  virtual void prefill_attention(StreamHandle stream, const PrefillAttention& work) const = 0;
  virtual void swiglu(StreamHandle stream, const Activate& work) const = 0;
  virtual void relu(StreamHandle stream, const Activate& work) const = 0;
  virtual void add_bias(StreamHandle stream, const AddBias& work) const = 0;
  virtual void summarise_logits(StreamHandle stream, const SummariseLogits& work) const = 0;
  virtual void read_kv(StreamHandle stream, const CopyKv& work) const = 0;
  virtual void write_kv(StreamHandle stream, const CopyKv& work) const = 0;
  virtual void unpack_rows(StreamHandle stream, const UnpackRows& work) const = 0;
  virtual void quantise_rows(StreamHandle stream, const QuantiseRows& work) const = 0;
  virtual void scale_products(StreamHandle stream, const ScaleProducts& work) const = 0;
  // Returns false and starts nothing if it does not support the product: more than kMaxFewRows rows, a width that is not a
  // multiple of 16, or FP32.
  [[nodiscard]] virtual bool multiply_few(StreamHandle stream, const MultiplyFew& work) const = 0;
  virtual void route_tokens(StreamHandle stream, const RouteTokens& work) const = 0;
  virtual void multiply_experts(StreamHandle stream, const MultiplyExperts& work) const = 0;
  virtual void add_experts(StreamHandle stream, const AddExperts& work) const = 0;
};

// Compiled by nvcc, in kernels/*.cu; the objects live as long as the program.
[[nodiscard]] const Kernels& bf16_kernels();
[[nodiscard]] const Kernels& fp32_kernels();

}  // namespace windlass::worker::cuda
