// init_model: generates a seeded random model in Hugging Face's format, so that no download is needed.
//
// Writes config.json, model.safetensors (BF16), tokenizer.json, tokenizer_config.json and generation_config.json. The bytes
// depend only on the shape and are the same on every platform (no libm, no standard distributions, fixed order).
//
// The weights are random with one exception: hidden dimension 0 carries a constant through all layers (in OPT, the bias of the
// last norm sets it), and column 0 of the output matrix turns it into a bias against non-ASCII single bytes, control characters
// and special tokens. So the model outputs printable text and never ends a turn; the client decides the length.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "worker/model/config.h"

namespace windlass::worker {

struct ModelShape {
  Architecture architecture = Architecture::kLlama;
  std::int64_t layers = 4;
  std::int64_t hidden = 256;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 4;
  std::int64_t intermediate = 688;     // of each expert, if there are experts
  std::int64_t experts = 8;            // if the architecture has them
  std::int64_t experts_per_token = 2;  // likewise
  std::int64_t vocab = 512;
  std::int64_t max_context = 2048;
  std::uint64_t seed = 1;
};

// Error: kInvalidArgument naming each value out of range by its flag, without dashes.
[[nodiscard]] Result<void> check_model_shape(const ModelShape& shape);

// Creates the folder if needed. Error: kInvalidArgument for a bad shape or a file that cannot be written.
[[nodiscard]] Result<void> init_model(const ModelShape& shape, const std::filesystem::path& folder);

// The bytes of tokenizer.json. REQUIRES: a valid shape.
[[nodiscard]] std::string make_tokenizer_json(const ModelShape& shape);

// Special tokens of every generated model, in the order of their ids, which are the last of the vocabulary.
[[nodiscard]] const std::vector<std::string>& init_special_tokens();

}  // namespace windlass::worker
