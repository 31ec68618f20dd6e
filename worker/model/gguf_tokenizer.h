// Converts the tokenizer and chat template of a GGUF file to Hugging Face's tokenizer.json and tokenizer_config.json, so that
// one reader serves both formats.
//
// tokenizer.ggml.model "gpt2": byte-level BPE with the pre-tokenizer named by tokenizer.ggml.pre (llama.cpp's llama-vocab.cpp).
// "llama": SentencePiece's BPE with byte fallback, with merges derived from the scores as in transformers' converter. Others
// are an error that names the field. Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "planner/base/gguf.h"
#include "planner/base/result.h"

namespace windlass::worker {

[[nodiscard]] Result<nlohmann::json> tokenizer_json_of(const Gguf& gguf);

// Contains "chat_template" if the file has one, and "bos_token" and the like.
[[nodiscard]] Result<nlohmann::ordered_json> tokenizer_config_of(const Gguf& gguf);

}  // namespace windlass::worker
