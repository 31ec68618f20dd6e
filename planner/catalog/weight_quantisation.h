// WeightQuantisation: how the weights of a quantised checkpoint are stored, from the quantization_config of its config.json.
//
// Only the matrices inside the transformer blocks are quantised; embeddings, output projection, norms, biases and MoE routers
// keep the model's own data type. That is what all the methods read here do by default, but GGUF, which quantises embeddings
// and output projection, too; a checkpoint that leaves other matrices out (modules_to_not_convert, ignore) is refused by name,
// as its size would not follow. GPTQ's column order (g_idx, 0.1% of the weights) is not counted. Plain data; pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "planner/base/result.h"
#include "planner/catalog/dtype.h"

namespace windlass::planner {

struct WeightQuantisation {
  std::string method;  // quant_method: "fp8", "gptq", "awq", "bitsandbytes", "compressed-tensors", "gguf"
  int weight_bits = 8;
  // Weights under one scale, in rows (outputs) and columns (inputs) of a matrix. 0: all of them.
  int group_rows = 1;
  int group_columns = 0;
  double scale_bits = 0;         // of one group, its zero point included
  std::optional<DType> compute;  // type of the matrix products; absent: weights are widened to the activations' type first
  double embedding_bits = 0;     // of a number of the embedding and the output projection; 0: those of the model's own type

  bool operator==(const WeightQuantisation&) const = default;
};

// `value` is the object under quantization_config; `path` names it in errors.
[[nodiscard]] Result<WeightQuantisation> weight_quantisation_from_json(const nlohmann::json& value, const std::string& path);

[[nodiscard]] Result<void> validate(const WeightQuantisation& quantisation);

// Bytes of a matrix, its scales included.
[[nodiscard]] double quantised_bytes(const WeightQuantisation& quantisation, std::int64_t rows, std::int64_t columns);

}  // namespace windlass::planner
