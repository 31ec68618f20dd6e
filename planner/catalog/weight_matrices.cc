// The list of matrices, part by part.
#include "planner/catalog/weight_matrices.h"

namespace windlass::planner {
namespace {

using Matrices = std::vector<WeightMatrix>;

void add_attention(const ModelShape& shape, Matrices& out) {
  const std::int64_t hidden = shape.hidden;
  const std::int64_t layers = shape.layers;
  const std::int64_t heads = shape.heads;
  const auto add = [&](const char* name, std::int64_t rows, std::int64_t columns) {
    out.push_back({name, MatrixRole::kAttention, rows, columns, layers});
  };
  if (!shape.latent_attention) {
    add("qkv", (heads + 2 * static_cast<std::int64_t>(shape.kv_heads)) * shape.head_dim, hidden);
    add("attention_output", hidden, heads * shape.head_dim);
    return;
  }
  const LatentAttention& latent = *shape.latent_attention;
  if (latent.query_rank == 0) {
    add("query", heads * shape.head_dim, hidden);
  } else {
    add("query_down", latent.query_rank, hidden);
    add("query_up", heads * shape.head_dim, latent.query_rank);
  }
  add("kv_down", latent.kv_rank + latent.rope_head_dim, hidden);
  add("kv_up", heads * (latent.nope_head_dim + latent.value_head_dim), latent.kv_rank);
  add("attention_output", hidden, heads * latent.value_head_dim);
}

void add_mlp(const ModelShape& shape, Matrices& out) {
  const std::int64_t hidden = shape.hidden;
  const std::int64_t dense_layers = shape.layers - (shape.experts ? shape.experts->layers : 0);
  if (dense_layers > 0) {
    const std::int64_t width = shape.intermediate;
    out.push_back(
        {shape.gated_mlp ? "gate_up" : "up", MatrixRole::kMlp, (shape.gated_mlp ? 2 : 1) * width, hidden, dense_layers});
    out.push_back({"down", MatrixRole::kMlp, hidden, width, dense_layers});
  }
  if (!shape.experts) return;
  const MixtureOfExperts& moe = *shape.experts;
  const std::int64_t copies = static_cast<std::int64_t>(moe.layers) * moe.experts;
  out.push_back({"router", MatrixRole::kRouter, moe.experts, hidden, moe.layers});
  out.push_back({"expert_gate_up", MatrixRole::kExpert, 2 * static_cast<std::int64_t>(moe.intermediate), hidden, copies});
  out.push_back({"expert_down", MatrixRole::kExpert, hidden, moe.intermediate, copies});
  if (moe.shared_intermediate == 0) return;
  out.push_back(
      {"shared_gate_up", MatrixRole::kMlp, 2 * static_cast<std::int64_t>(moe.shared_intermediate), hidden, moe.layers});
  out.push_back({"shared_down", MatrixRole::kMlp, hidden, moe.shared_intermediate, moe.layers});
}

void add_ends(const ModelShape& shape, Matrices& out) {
  const std::int64_t hidden = shape.hidden;
  const std::int64_t width = shape.embedding_dim == 0 ? hidden : shape.embedding_dim;
  out.push_back({"embedding", MatrixRole::kLookup, shape.vocab, width, 1});
  if (shape.position_rows > 0) out.push_back({"positions", MatrixRole::kLookup, shape.position_rows, hidden, 1});
  if (width != hidden) {
    out.push_back({"project_in", MatrixRole::kProjection, hidden, width, 1});
    out.push_back({"project_out", MatrixRole::kProjection, width, hidden, 1});
  }
  out.push_back({"output", MatrixRole::kOutput, shape.vocab, width, 1, !shape.tied_embeddings});
}

}  // namespace

std::vector<WeightMatrix> weight_matrices(const ModelShape& shape) {
  Matrices out;
  add_attention(shape, out);
  add_mlp(shape, out);
  add_ends(shape, out);
  return out;
}

std::int64_t vector_parameter_count(const ModelShape& shape) {
  const std::int64_t hidden = shape.hidden;
  const std::int64_t layers = shape.layers;
  const std::int64_t norm = hidden * (shape.norm_bias ? 2 : 1);
  std::int64_t a_layer = shape.norms_per_layer * norm;
  if (shape.qk_norm) a_layer += 2 * static_cast<std::int64_t>(shape.head_dim);
  if (shape.latent_attention) a_layer += shape.latent_attention->kv_rank + shape.latent_attention->query_rank;  // a norm each
  if (shape.qkv_bias) a_layer += (shape.heads + 2 * static_cast<std::int64_t>(shape.kv_heads)) * shape.head_dim;
  if (shape.attention_output_bias) a_layer += hidden;
  std::int64_t count = shape.outer_norms * norm + layers * a_layer;
  const std::int64_t moe_layers = shape.experts ? shape.experts->layers : 0;
  if (shape.mlp_bias) {
    count += (layers - moe_layers) * ((shape.gated_mlp ? 2 : 1) * static_cast<std::int64_t>(shape.intermediate) + hidden);
  }
  if (shape.experts && shape.experts->selection_bias) count += moe_layers * shape.experts->experts;
  return count;
}

}  // namespace windlass::planner
