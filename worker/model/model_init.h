// init_model: makes a seeded random model in Hugging Face's format, so that nothing has to be downloaded.
//
// Writes config.json, model.safetensors (BF16), tokenizer.json, tokenizer_config.json and generation_config.json. The bytes are
// a function of the shape alone: the same on every platform (no libm, no standard distributions, fixed order).
//
// The weights are random but for one thing: hidden dimension 0 carries a constant through all layers (for OPT: the bias of the
// last norm puts it there), and the output matrix's column 0 turns it into a bias against single bytes beyond ASCII, control
// characters and special tokens. So what such a model says is printable text, and how long it speaks is what the client asks
// for: it never ends a turn by itself.
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
  std::int64_t intermediate = 688;     // of each expert where there are experts
  std::int64_t experts = 8;            // where the architecture has them
  std::int64_t experts_per_token = 2;  // the same
  std::int64_t vocab = 512;
  std::int64_t max_context = 2048;
  std::uint64_t seed = 1;
};

// The names are those of the flags without dashes; an error (kInvalidArgument) names each that is out of range.
[[nodiscard]] Result<void> check_model_shape(const ModelShape& shape);

// Creates the folder where needed. Errors: kInvalidArgument for the shape, or a file that cannot be written.
[[nodiscard]] Result<void> init_model(const ModelShape& shape, const std::filesystem::path& folder);

// The tokenizer's part, as bytes of tokenizer.json; REQUIRES: a valid shape.
[[nodiscard]] std::string make_tokenizer_json(const ModelShape& shape);

// Special tokens of every made model, in the order of their ids, which are the vocabulary's last.
[[nodiscard]] const std::vector<std::string>& init_special_tokens();

}  // namespace windlass::worker
