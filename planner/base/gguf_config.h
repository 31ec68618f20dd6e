// A GGUF file's shape in the words of Hugging Face's config.json, so that one reader of these (the worker's, the planner's)
// serves both formats.
//
// Architectures: llama (Mixtral's where it has experts), qwen2, qwen3, qwen3moe. What the file asks for and these words cannot
// say is an error that names file and field. Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "planner/base/gguf.h"
#include "planner/base/result.h"

namespace windlass {

// An object for parse_model_config() and model_shape_from_config_json().
[[nodiscard]] Result<nlohmann::json> config_json_of(const Gguf& gguf);

// Bits of a number on average, scales included; and whether any matrix has blocks of scales.
struct GgufBits {
  double blocks = 0;     // in the matrices of the transformer blocks
  double embedding = 0;  // in the embedding and the output matrix
  bool quantised = false;
};
// Error: a type that is not known.
[[nodiscard]] Result<GgufBits> bits_of(const Gguf& gguf);

// Ends of turns and of texts, without repeats; ids are not compared with the vocabulary.
[[nodiscard]] Result<std::vector<std::int64_t>> end_tokens_of(const Gguf& gguf);

}  // namespace windlass
