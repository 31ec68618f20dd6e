// Kernels: what our own CUDA kernels compute, as the backend calls them. Their bodies stand in kernels/*.cuh.
//
// Each call puts one kernel on a stream and returns at once; all pointers are device memory that stays until it has run. A
// pointer to void is an array of the precision's storage type (float, or Bf16); sums are FP32 in both. Two compilers make an
// implementation each: nvcc for a GPU, the C++ compiler for the emulation (emulation/execution.h) in which tests run them.
//
// Two numbers pass for one thing throughout: head_dim is the model's, padded_dim the next multiple of kDimAlignment, to which
// queries and cache are padded with zeros so that every row can be read 16 bytes at a time.
#pragma once

#include <cstdint>

#include "worker/backend/logit_summary.h"

namespace windlass::worker::cuda {

inline constexpr int kCacheBlockTokens = 16;
inline constexpr int kDimAlignment = 8;
inline constexpr int kMaxHeadDim = 256;
inline constexpr int kDecodeHeads = 4;       // query heads of one thread block of decode attention
inline constexpr int kPrefillTileRows = 64;  // queries of one tile of prefill attention
inline constexpr int kMaxFewRows = 64;       // of x, in a product that turns codes into numbers on its way
inline constexpr int kMaxExperts = 4096;
inline constexpr int kMaxExpertsPerToken = 32;
inline constexpr int kSummarySegment = 4096;     // logits of one thread block of a summary
inline constexpr int kMaxSummarySegments = 256;  // of one row

[[nodiscard]] constexpr std::int64_t padded_dim_of(std::int64_t head_dim) {
  return (head_dim + kDimAlignment - 1) / kDimAlignment * kDimAlignment;
}

// A brain float: the upper half of a float.
struct Bf16 {
  std::uint16_t bits;
};

// cudaStream_t, or the emulation's queue.
using StreamHandle = void*;

// residual (count, hidden) = embedding (end - first, hidden) at tokens (count): the rows of the ids from `first` to before
// `end`, which are all of the vocabulary or one rank's; tokens with other ids become zeros. To
// each comes, where there are learned positions, its position's row of them.
struct EmbedTokens {
  const std::int32_t* tokens;
  const void* embedding;
  float* residual;
  int count;
  int hidden;
  int first;
  int end;
  const std::int32_t* positions;  // (count); unused without:
  const float* learned;           // (positions, hidden), or null
};

// out (count, hidden) = x / rms(x) * weight, row by row; or with a shift LayerNorm: (x - mean(x)) / deviation(x) * weight +
// shift. x is residual plus bias, where there is one, and then takes residual's place; with `in_place` what is normed takes it.
// With `rows` (count) it is residual at those rows and stays what it was; neither bias nor in_place then.
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

// Of qkv (tokens, heads + 2 kv_heads, head_dim) plus bias: the heads of queries and keys are normed (where there are norms) and
// rotated to their positions; queries go to q (tokens, heads, padded_dim), keys and values into their cache slots. A slot is
// block * kCacheBlockTokens + offset; tokens with a negative one leave nothing. Dimension i pairs with i + head_dim / 2.
struct RopeStore {
  const void* qkv;
  const float* bias;    // (heads + 2 kv_heads, head_dim), or null
  const float* q_norm;  // (head_dim), or null, like k_norm
  const float* k_norm;
  const float* cos;  // (positions, head_dim / 2); null, like sin, where nothing is rotated
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
  std::int32_t position;  // it sees up to this one; -1: nothing, its row becomes zeros
  std::int32_t table;     // where its sequence's blocks begin in `tables`
};

// Up to kPrefillTileRows consecutive tokens of one sequence.
struct PrefillTile {
  std::int32_t row;  // of the first
  std::int32_t rows;
  std::int32_t position;  // of the first
  std::int32_t table;
};

// Causal grouped-query attention over the paged cache: out (tokens, heads, head_dim), of q (tokens, heads, padded_dim).
struct Attention {
  const void* q;
  const void* keys;  // as RopeStore's
  const void* values;
  const std::int32_t* tables;  // block ids, sequence after sequence
  void* out;
  int heads;
  int kv_heads;
  int head_dim;
  int padded_dim;
  int window;   // a token sees so many positions, its own included; 0: all
  float scale;  // of the scores
};

// Decode: the context of each row is cut into `splits` parts that are computed beside each other and then combined.
struct DecodeAttention {
  Attention attention;
  const DecodeRow* rows;
  float* partial;        // (count, heads, splits, head_dim): sums not yet divided; unused with one split, like `stats`
  float* partial_stats;  // (count, heads, splits, 2): greatest score and sum of weights
  int count;
  int splits;
};

struct PrefillAttention {
  Attention attention;
  const PrefillTile* tiles;
  int count;
};

// out (rows, width) = silu(gate) * up, of in (rows, 2 width) plus bias: gate, then up, in each row; or relu(in) of in (rows,
// width) plus bias.
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

// Between a layer's cache and plain (tokens, 2, kv_heads, head_dim): keys, then values; token t stands at slots[t].
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

// to (rows, in) = codes (rows, in) as numbers of the storage type, each times its row's scale (model/weight_matrix.h).
struct UnpackRows {
  const std::uint8_t* codes;
  const float* scales;  // (rows)
  void* to;
  int rows;
  int in;
  bool fp8;  // else INT8
};

// codes (rows, in) and scales (rows) = x (rows, in) as FP8, each row's largest number at e4m3's largest
// (model/weight_matrix.h). What is no number stays so. REQUIRES: in is a multiple of 16.
struct QuantiseRows {
  const void* x;
  std::uint8_t* codes;
  float* scales;
  int rows;
  int in;
};

// y (rows, out), of rows that are `stride` apart, = products (rows, out) of FP8 numbers by their row's and their channel's
// scale; or y += that. REQUIRES: out and stride are multiples of 16.
struct ScaleProducts {
  const float* products;
  const float* row_scales;
  const float* channel_scales;
  void* y;  // of the storage type, or float
  int rows;
  int out;
  int stride;
  bool float_out;
  bool accumulate;  // with float_out alone
};

// y (rows, out) = x (rows, in) * w^T, or y += that, with w (out, in) as codes and scales. x is of the storage type; y is, or is
// float.
struct MultiplyFew {
  const void* x;
  const std::uint8_t* codes;
  const float* scales;  // (out)
  void* y;
  int rows;
  int in;
  int out;
  bool fp8;  // else INT8
  bool float_out;
  bool accumulate;  // with float_out alone
};

// Where the tokens of a batch went in a layer with experts: an entry for each token and each of its experts, those of one
// expert together and in the order of tokens.
struct ExpertEntries {
  std::int32_t* begins;  // (experts + 1): the first of each expert; the last number is how many entries there are
  std::int32_t* rows;    // (tokens * each): the token of each entry
  std::int32_t* places;  // (tokens, each): the entry of each of a token's experts, by their numbers; -1: none
  float* weights;        // (tokens, each)
};

// Chooses the experts of the largest router logits of x (tokens, hidden), the lower number where they are alike; NaN comes
// last. Weights are the softmax over the chosen ones' logits, or over all. Tokens with a negative slot get no entries. A
// logit's sum has an order of its own: what is chosen does not depend on the batch.
struct RouteTokens {
  const void* x;
  const float* router;        // (experts, hidden)
  const std::int32_t* slots;  // (tokens)
  float* logits;              // (tokens, experts): between the halves, like `chosen`
  std::int32_t* chosen;       // (tokens, each)
  ExpertEntries entries;
  int tokens;
  int hidden;
  int experts;     // at most kMaxExperts
  int each;        // experts of a token, at most kMaxExpertsPerToken
  bool normalise;  // over the chosen ones
};

// y (entries, out) = each entry's row of x times its expert's w^T; w (experts, out, in) of the storage type, or codes with
// scales. y is of the storage type, or float.
struct MultiplyExperts {
  const void* x;
  const std::int32_t* rows;  // of x, by entry; null: an entry's row is its own number
  const void* w;
  const float* scales;  // (experts, out); null: w is of the storage type
  void* y;
  const std::int32_t* begins;  // as ExpertEntries'
  int tokens;                  // that an expert has at most
  int each;
  int experts;
  int in;
  int out;
  bool fp8;  // else INT8, with scales
  bool float_out;
};

// residual (tokens, hidden) = the sum of a token's entries' rows (entries, hidden) by their weights, in the order of experts'
// numbers; or += that.
struct AddExperts {
  const float* rows;
  const std::int32_t* places;  // as ExpertEntries'
  const float* weights;
  float* residual;
  int tokens;
  int each;
  int hidden;
  bool accumulate;
};

// out (rows): of each row of logits (rows, width) the summary that is needed, where one is; token first_id is the first.
// REQUIRES: width <= kMaxSummarySegments * kSummarySegment.
struct SummariseLogits {
  const float* logits;
  const RowNeed* needs;    // (rows)
  LogitSummary* segments;  // (rows, width / kSummarySegment, rounded up): between the kernel's two halves
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
  // The combining included.
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
  // False, and nothing is started, where the product is not one for this: more rows than kMaxFewRows, a width that is no
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
