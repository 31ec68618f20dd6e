// Converts the shape of a GGUF model to Hugging Face's config.json, so that the worker and the planner read both formats with
// the same code.
//
// Architectures: llama (as Mixtral if it has experts), qwen2, qwen3, qwen3moe. Anything that config.json cannot express is an
// error that names the file and the field. Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "planner/base/gguf.h"
#include "planner/base/result.h"

namespace windlass {

// Returns an object for parse_model_config() and model_shape_from_config_json().
[[nodiscard]] Result<nlohmann::json> config_json_of(const Gguf& gguf);

// Average bits per number, scales included.
struct GgufBits {
  double blocks = 0;     // in the matrices of the transformer blocks
  double embedding = 0;  // in the embedding and the output matrix
  bool quantised = false;
};
// Error: an unknown type.
[[nodiscard]] Result<GgufBits> bits_of(const Gguf& gguf);

// Tokens that end a turn or a text, without repeats. The ids are not checked against the vocabulary.
[[nodiscard]] Result<std::vector<std::int64_t>> end_tokens_of(const Gguf& gguf);

}  // namespace windlass
