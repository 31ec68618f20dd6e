// The tokenizer and the chat template of a GGUF file, as Hugging Face's tokenizer.json and tokenizer_config.json would have
// them, so that one reader serves both formats.
//
// tokenizer.ggml.model "gpt2": BPE by bytes, with the pre-tokenizer that tokenizer.ggml.pre names (llama.cpp's
// llama-vocab.cpp); "llama": SentencePiece's BPE with byte fallback, its merges made of the scores as transformers' converter
// makes them. Others are an error that names the field. Pure; any thread.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "planner/base/gguf.h"
#include "planner/base/result.h"

namespace windlass::worker {

[[nodiscard]] Result<nlohmann::json> tokenizer_json_of(const Gguf& gguf);

// With "chat_template" where the file has one, and "bos_token" and the like.
[[nodiscard]] Result<nlohmann::ordered_json> tokenizer_config_of(const Gguf& gguf);

}  // namespace windlass::worker
