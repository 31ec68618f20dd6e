// WeightMatrix lists the matrices of a model, each kind once with its number of copies. Parameter counts, bytes and FLOPs are
// sums over this list; latency models find the sizes of matrix products here. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "planner/catalog/model_shape.h"

namespace windlass::planner {

enum class MatrixRole {
  kAttention,
  kMlp,         // dense MLP, or shared experts
  kExpert,      // one routed expert
  kRouter,      // chooses the experts
  kProjection,  // between the width of the embedding and that of the model
  kOutput,      // to the vocabulary
  kLookup,      // embedding and position tables: rows are read, nothing is multiplied
};

struct WeightMatrix {
  const char* name = "";  // "qkv", "gate_up", ...; matrices that engines fuse are one entry
  MatrixRole role = MatrixRole::kAttention;
  std::int64_t rows = 0;     // outputs
  std::int64_t columns = 0;  // inputs
  std::int64_t copies = 0;   // in the whole model
  bool stored = true;        // false: reuses another matrix's weights (tied embeddings)

  [[nodiscard]] std::int64_t parameters() const { return rows * columns * copies; }
};

// REQUIRES: validate(shape).
[[nodiscard]] std::vector<WeightMatrix> weight_matrices(const ModelShape& shape);

// Norms and biases. REQUIRES: validate(shape).
[[nodiscard]] std::int64_t vector_parameter_count(const ModelShape& shape);

}  // namespace windlass::planner
