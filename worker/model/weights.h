// ModelWeights: a model's parameters, checked against the config's shape.
//
// Everything is FP32 except layer matrices in another format (model/weight_matrix.h), and the embedding and output matrix if
// the file has them in blocks and blocks are requested. Routers are always FP32. Matrices are row-major (out, in), as in the
// files. Query, key and value projections form one matrix, gate and up another, so that a step needs fewer and larger products.
// Plain data, owned by the backend that uses it.
#pragma once

#include <vector>

#include "planner/base/result.h"
#include "worker/model/config.h"
#include "worker/model/load_progress.h"
#include "worker/model/tensor_slice.h"
#include "worker/model/tensor_store.h"
#include "worker/model/weight_matrix.h"

namespace windlass::worker {

struct NormWeights {
  std::vector<float> weight;  // (hidden)
  std::vector<float> bias;    // (hidden); empty if there is none
  bool operator==(const NormWeights&) const = default;
};

struct MlpWeights {
  WeightMatrix in;              // (2 intermediate, hidden): gate rows, then up; (intermediate, hidden) for kRelu
  std::vector<float> in_bias;   // one per row; empty if there is none
  WeightMatrix out;             // (hidden, intermediate)
  std::vector<float> out_bias;  // (hidden); empty if there is none
  bool operator==(const MlpWeights&) const = default;
};

struct LayerWeights {
  NormWeights attention_norm;
  WeightMatrix qkv;                   // (q + 2 kv, hidden): q rows, then k, then v
  std::vector<float> qkv_bias;        // (q + 2 kv); empty if there is none
  std::vector<float> q_norm, k_norm;  // (head_dim) each; empty if there is none
  WeightMatrix attention_out;         // (hidden, q)
  std::vector<float> out_bias;        // (hidden); empty if there is none
  NormWeights mlp_norm;
  MlpWeights mlp;                   // empty if there are experts
  std::vector<float> router;        // (experts, hidden); empty if there is none
  std::vector<MlpWeights> experts;  // of the experts' width, without biases
  bool operator==(const LayerWeights&) const = default;
};

// Weights of all blocks, or of a range. For a range: the embedding is present with block 0, and with the last block if the
// output matrix is tied to it; learned positions and project_in with block 0; final norm, project_out and lm_head with the last
// block. With several ranks, each has its slice of every matrix: q, kv, intermediate (also each expert's) and vocab are then
// its share. Norms, positions, routers and biases added to the residual stream are whole on every rank.
struct ModelWeights {
  WeightMatrix embedding;            // (vocab, embedding width)
  std::vector<float> project_in;     // (hidden, embedding width); empty if that is the hidden size
  std::vector<float> positions;      // (max_context + kLearnedPositionsOffset, hidden); empty if positions are not learned
  std::vector<LayerWeights> layers;  // of the blocks in the range
  NormWeights final_norm;            // empty if norms come after each part
  std::vector<float> project_out;    // (embedding width, hidden); empty if that is the hidden size
  WeightMatrix lm_head;              // (vocab, embedding width); empty if tied to the embedding

  [[nodiscard]] const WeightMatrix& output_matrix() const { return lm_head.empty() ? embedding : lm_head; }
  bool operator==(const ModelWeights&) const = default;
};

// The parts of a range's ModelWeights other than its layers.
struct WeightEnds {
  bool embedding = false;
  bool positions = false;
  bool project_in = false;
  bool final_norm = false;
  bool project_out = false;
  bool lm_head = false;
};
[[nodiscard]] WeightEnds ends_of(const ModelConfig& config, BlockRange blocks);

// Bytes of all numbers and scales, and their size in FP32 (on a GPU, in its precision).
struct WeightBytes {
  std::int64_t held = 0;
  std::int64_t as_plain = 0;
};
[[nodiscard]] WeightBytes bytes_of(const ModelWeights& weights);

// Loads the weights of `blocks`. Error: kInvalidArgument naming file, tensor, value and rule for each missing or wrong tensor
// (the first eight). When quantising, reads one row at a time, so no whole matrix is ever in memory as FP32. `progress` counts
// the bytes read. REQUIRES: `blocks` are blocks of the model, which can be split into slice.ranks (check_tensor_parallel).
[[nodiscard]] Result<ModelWeights> load_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                                TensorSlice slice = {}, WeightFormat format = WeightFormat::kFp32,
                                                LoadProgress* progress = nullptr);
[[nodiscard]] inline Result<ModelWeights> load_weights(const ModelConfig& config, const TensorStore& store) {
  return load_weights(config, store, config.all_blocks());
}

// Loads what load_weights(blocks) would give, without what `have` contains; the layers of `have` are those of `held`.
[[nodiscard]] Result<ModelWeights> load_missing_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                                        const ModelWeights& have, BlockRange held, TensorSlice slice,
                                                        WeightFormat format, LoadProgress* progress = nullptr);

// The size of some weights.
struct WeightSizes {
  std::int64_t matrix_numbers = 0;  // numbers in matrices that a format quantises
  std::int64_t matrix_rows = 0;     // rows of these matrices; each has a scale in formats with scales
  std::int64_t other_numbers = 0;   // FP32, except with kBlocks
  std::int64_t block_bytes = 0;     // size of all weights as kBlocks
  std::int64_t file_bytes = 0;      // checkpoint bytes read for them

  // Size in memory; equals bytes_of() of the loaded weights.
  [[nodiscard]] std::int64_t bytes(WeightFormat format) const;
  WeightSizes& operator+=(const WeightSizes& more);
  bool operator==(const WeightSizes&) const = default;
};

// Checks whether load_weights() would find every tensor as expected, and returns the size; reads no numbers. Error: as there.
[[nodiscard]] Result<WeightSizes> check_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                                TensorSlice slice);
// The same for load_missing_weights().
[[nodiscard]] Result<WeightSizes> check_missing_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                                        const ModelWeights& have, BlockRange held, TensorSlice slice);

}  // namespace windlass::worker
