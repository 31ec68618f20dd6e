// ModelWeights: a model's parameters, checked against the config's shape.
//
// All are FP32, but for the layers' matrices where they are quantised (model/weight_matrix.h); the embedding and the output
// matrix, where the file has them in blocks and these are asked for. Routers are not. Matrices are row-major (out, in), as the
// files have them. Query, key and value projections stand in one matrix, gate and up in another, so that a step runs fewer and
// larger products. Plain data, owned by the backend that uses it.
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
  std::vector<float> bias;    // (hidden); empty without
  bool operator==(const NormWeights&) const = default;
};

struct MlpWeights {
  WeightMatrix in;              // (2 intermediate, hidden): gate rows, then up; (intermediate, hidden) for kRelu
  std::vector<float> in_bias;   // as many as rows; empty without
  WeightMatrix out;             // (hidden, intermediate)
  std::vector<float> out_bias;  // (hidden); empty without
  bool operator==(const MlpWeights&) const = default;
};

struct LayerWeights {
  NormWeights attention_norm;
  WeightMatrix qkv;                   // (q + 2 kv, hidden): q rows, then k, then v
  std::vector<float> qkv_bias;        // (q + 2 kv); empty without
  std::vector<float> q_norm, k_norm;  // (head_dim) each; empty without
  WeightMatrix attention_out;         // (hidden, q)
  std::vector<float> out_bias;        // (hidden); empty without
  NormWeights mlp_norm;
  MlpWeights mlp;                   // empty where there are experts
  std::vector<float> router;        // (experts, hidden); empty without
  std::vector<MlpWeights> experts;  // so wide as experts are, without biases
  bool operator==(const LayerWeights&) const = default;
};

// Of all blocks, or of some: then the embedding is there with block 0, or where the last block is and the output matrix is
// tied to it; learned positions and project_in with block 0; the final norm, project_out and lm_head with the last block. One
// of several ranks has its slice of each matrix: then the sizes q, kv, intermediate (each expert's too) and vocab are its
// share; norms, positions, routers and biases of what is added to the residual stream are whole.
struct ModelWeights {
  WeightMatrix embedding;            // (vocab, embedding width)
  std::vector<float> project_in;     // (hidden, embedding width); empty where that is the hidden size
  std::vector<float> positions;      // (max_context + kLearnedPositionsOffset, hidden); empty where they are not learned
  std::vector<LayerWeights> layers;  // of these blocks
  NormWeights final_norm;            // empty where norms come after
  std::vector<float> project_out;    // (embedding width, hidden); empty where that is the hidden size
  WeightMatrix lm_head;              // (vocab, embedding width); empty when tied to the embedding

  [[nodiscard]] const WeightMatrix& output_matrix() const { return lm_head.empty() ? embedding : lm_head; }
  bool operator==(const ModelWeights&) const = default;
};

// What ModelWeights of a range have beside its layers.
struct WeightEnds {
  bool embedding = false;
  bool positions = false;
  bool project_in = false;
  bool final_norm = false;
  bool project_out = false;
  bool lm_head = false;
};
[[nodiscard]] WeightEnds ends_of(const ModelConfig& config, BlockRange blocks);

// Bytes of all numbers and scales, and what they would be in FP32; on a GPU, in its precision.
struct WeightBytes {
  std::int64_t held = 0;
  std::int64_t as_plain = 0;
};
[[nodiscard]] WeightBytes bytes_of(const ModelWeights& weights);

// Error: kInvalidArgument naming file, tensor, found and expected for every tensor that is missing or wrong (the first eight);
// quantised, a row is read at a time, so that no matrix ever stands in memory as FP32. `progress` is told what is read.
// REQUIRES: `blocks` are blocks of the model, which can be cut into slice.ranks (check_tensor_parallel).
[[nodiscard]] Result<ModelWeights> load_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                                TensorSlice slice = {}, WeightFormat format = WeightFormat::kFp32,
                                                LoadProgress* progress = nullptr);
[[nodiscard]] inline Result<ModelWeights> load_weights(const ModelConfig& config, const TensorStore& store) {
  return load_weights(config, store, config.all_blocks());
}

// Of what load_weights() would give of `blocks`, that alone which `have` has not, whose layers are those of `held`.
[[nodiscard]] Result<ModelWeights> load_missing_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                                        const ModelWeights& have, BlockRange held, TensorSlice slice,
                                                        WeightFormat format, LoadProgress* progress = nullptr);

// How much some weights are.
struct WeightSizes {
  std::int64_t matrix_numbers = 0;  // of what a format quantises
  std::int64_t matrix_rows = 0;     // of these, each with a scale where there are scales
  std::int64_t other_numbers = 0;   // FP32, but for kBlocks
  std::int64_t block_bytes = 0;     // all of them as kBlocks
  std::int64_t file_bytes = 0;      // of the checkpoint, that are read for them

  // In memory; bytes_of() of the loaded ones.
  [[nodiscard]] std::int64_t bytes(WeightFormat format) const;
  WeightSizes& operator+=(const WeightSizes& more);
  bool operator==(const WeightSizes&) const = default;
};

// Whether load_weights() would find every tensor as it should be, and how much that is; no number is read. Error: as there.
[[nodiscard]] Result<WeightSizes> check_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                                TensorSlice slice);
// The same of load_missing_weights().
[[nodiscard]] Result<WeightSizes> check_missing_weights(const ModelConfig& config, const TensorStore& store, BlockRange blocks,
                                                        const ModelWeights& have, BlockRange held, TensorSlice slice);

}  // namespace windlass::worker
