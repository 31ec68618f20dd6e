// WeightQuantisation describes how a quantised checkpoint stores its weights. It is read from quantization_config in
// config.json.
//
// Only the matrices inside the transformer blocks are quantised; embeddings, output projection, norms, biases and MoE routers
// keep the model's data type. All methods read here do that by default, except GGUF, which also quantises the embeddings and
// the output projection. A checkpoint that excludes other matrices (modules_to_not_convert, ignore) is refused by name, because
// its size would be unknown. GPTQ's column order (g_idx, 0.1% of the weights) is not counted. Plain data; pure functions.
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
  // The group of weights under one scale, in rows (outputs) and columns (inputs) of a matrix. 0: all of them.
  int group_rows = 1;
  int group_columns = 0;
  double scale_bits = 0;  // per group, including its zero point
  std::optional<DType>
      compute;                // type of the matrix products; absent: weights are first converted to the type of the activations
  double embedding_bits = 0;  // bits per number of the embedding and the output projection; 0: as in the model's type

  bool operator==(const WeightQuantisation&) const = default;
};

// `value` is the object under quantization_config; `path` names it in errors.
[[nodiscard]] Result<WeightQuantisation> weight_quantisation_from_json(const nlohmann::json& value, const std::string& path);

[[nodiscard]] Result<void> validate(const WeightQuantisation& quantisation);

// Bytes of a matrix, including its scales.
[[nodiscard]] double quantised_bytes(const WeightQuantisation& quantisation, std::int64_t rows, std::int64_t columns);

}  // namespace windlass::planner
