// Derives parameters, bytes and FLOPs from a model's shape, as sums over its matrices.
#include <algorithm>
#include <cmath>

#include "planner/catalog/model_shape.h"
#include "planner/catalog/weight_matrices.h"

namespace windlass::planner {
namespace {

bool multiplied(const WeightMatrix& matrix) { return matrix.role != MatrixRole::kLookup; }

bool in_blocks(const WeightMatrix& matrix) {
  return matrix.role == MatrixRole::kAttention || matrix.role == MatrixRole::kMlp || matrix.role == MatrixRole::kExpert;
}

double bytes(const ModelShape& shape, const WeightMatrix& matrix) {
  if (shape.quantisation && in_blocks(matrix)) {
    return quantised_bytes(*shape.quantisation, matrix.rows, matrix.columns) * static_cast<double>(matrix.copies);
  }
  const bool of_vocabulary = matrix.role == MatrixRole::kOutput || matrix.role == MatrixRole::kLookup;
  if (shape.quantisation && shape.quantisation->embedding_bits > 0 && of_vocabulary) {
    return static_cast<double>(matrix.parameters()) * shape.quantisation->embedding_bits / 8;
  }
  return static_cast<double>(matrix.parameters()) * bytes_of(shape.dtype);
}

// Weights of the experts that a token does not use.
std::int64_t idle_expert_parameters(const ModelShape& shape) {
  if (!shape.experts) return 0;
  std::int64_t count = 0;
  for (const WeightMatrix& matrix : weight_matrices(shape)) {
    if (matrix.role == MatrixRole::kExpert) count += matrix.rows * matrix.columns * shape.experts->layers;
  }
  return count * (shape.experts->experts - shape.experts->experts_per_token);
}

// Number of context tokens, summed over layers, that attention reads or the cache keeps.
double tokens_over_layers(const ModelShape& shape, double context_tokens) {
  const int windowed = shape.sliding_window ? shape.sliding_window->layers : 0;
  double tokens = (shape.layers - windowed) * context_tokens;
  if (windowed > 0) tokens += windowed * std::min(context_tokens, static_cast<double>(shape.sliding_window->tokens));
  return tokens;
}

double kv_bytes_per_token_and_layer(const ModelShape& shape) {
  if (shape.latent_attention) {
    return (static_cast<double>(shape.latent_attention->kv_rank) + shape.latent_attention->rope_head_dim) *
           bytes_of(shape.dtype);
  }
  return 2.0 * shape.kv_heads * shape.head_dim * bytes_of(shape.dtype);
}

}  // namespace

std::int64_t parameter_count(const ModelShape& shape) {
  std::int64_t count = vector_parameter_count(shape);
  for (const WeightMatrix& matrix : weight_matrices(shape)) count += matrix.stored ? matrix.parameters() : 0;
  return count;
}

std::int64_t active_parameter_count(const ModelShape& shape) { return parameter_count(shape) - idle_expert_parameters(shape); }

std::int64_t matmul_parameter_count(const ModelShape& shape) {
  std::int64_t count = 0;
  for (const WeightMatrix& matrix : weight_matrices(shape)) count += multiplied(matrix) ? matrix.parameters() : 0;
  return count;
}

std::int64_t active_matmul_parameter_count(const ModelShape& shape) {
  return matmul_parameter_count(shape) - idle_expert_parameters(shape);
}

double expected_distinct_experts(const ModelShape& shape, double tokens) {
  if (!shape.experts || tokens <= 0) return 0;
  const double experts = shape.experts->experts;
  // An expert is idle if no token chooses it: probability (1 - k / E)^tokens.
  const double passed_by = 1 - shape.experts->experts_per_token / experts;
  return experts * (1 - std::pow(passed_by, tokens));
}

double weight_bytes(const ModelShape& shape) {
  double sum = static_cast<double>(vector_parameter_count(shape)) * bytes_of(shape.dtype);
  for (const WeightMatrix& matrix : weight_matrices(shape)) sum += matrix.stored ? bytes(shape, matrix) : 0;
  return sum;
}

double server_weight_bytes(const ModelShape& shape, double layers) {
  double lookup = 0, output = 0, outside = 0;
  for (const WeightMatrix& matrix : weight_matrices(shape)) {
    if (matrix.role == MatrixRole::kLookup) lookup += bytes(shape, matrix);
    if (matrix.role == MatrixRole::kOutput) output += bytes(shape, matrix);
    const bool at_an_end = matrix.role == MatrixRole::kLookup || matrix.role == MatrixRole::kOutput;
    if (matrix.stored && at_an_end) outside += bytes(shape, matrix);
  }
  return layers / shape.layers * (weight_bytes(shape) - outside) + std::max(lookup, output);
}

double matmul_weight_bytes(const ModelShape& shape) {
  double sum = 0;
  for (const WeightMatrix& matrix : weight_matrices(shape)) sum += multiplied(matrix) ? bytes(shape, matrix) : 0;
  return sum;
}

double matmul_weight_bytes_read(const ModelShape& shape, double tokens) {
  const double used = shape.experts ? expected_distinct_experts(shape, tokens) / shape.experts->experts : 1;
  double sum = 0;
  for (const WeightMatrix& matrix : weight_matrices(shape)) {
    if (multiplied(matrix)) sum += bytes(shape, matrix) * (matrix.role == MatrixRole::kExpert ? used : 1);
  }
  return sum;
}

DType compute_dtype(const ModelShape& shape) {
  return shape.quantisation && shape.quantisation->compute ? *shape.quantisation->compute : shape.dtype;
}

double kv_bytes_per_token(const ModelShape& shape) { return shape.layers * kv_bytes_per_token_and_layer(shape); }

double kv_bytes(const ModelShape& shape, double context_tokens) {
  return kv_bytes_per_token_and_layer(shape) * tokens_over_layers(shape, context_tokens);
}

int kv_shards(const ModelShape& shape) {
  // All heads share the compressed vector, so every GPU needs a full copy.
  return shape.latent_attention ? 1 : shape.kv_heads;
}

double flops_per_token(const ModelShape& shape) { return 2.0 * static_cast<double>(active_matmul_parameter_count(shape)); }

double attention_flops_per_token(const ModelShape& shape, double context_tokens) {
  const int value_dim = shape.latent_attention ? shape.latent_attention->value_head_dim : shape.head_dim;
  return 2.0 * shape.heads * (static_cast<double>(shape.head_dim) + value_dim) * tokens_over_layers(shape, context_tokens);
}

double decode_attention_flops_per_token(const ModelShape& shape, double context_tokens) {
  if (!shape.latent_attention) return attention_flops_per_token(shape, context_tokens);
  const LatentAttention& latent = *shape.latent_attention;
  // Scores use the compressed vector and the rotary key; values use the compressed vector.
  return 2.0 * shape.heads * (2.0 * latent.kv_rank + latent.rope_head_dim) * tokens_over_layers(shape, context_tokens);
}

}  // namespace windlass::planner
