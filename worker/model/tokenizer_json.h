// The contents of a tokenizer.json as plain data, read and validated here and used by Tokenizer. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "planner/base/result.h"
#include "worker/model/added_tokens.h"
#include "worker/model/bpe.h"
#include "worker/model/normalizer.h"
#include "worker/model/pretokenizer.h"
#include "worker/model/token_decoder.h"

namespace windlass::worker {

struct TokenizerSpec {
  BpeSpec model;
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PretokenizerStep> pretokenizer;
  std::vector<DecoderStep> decoder;
  std::vector<std::int32_t> prefix;  // what the post-processor puts before a text
};

[[nodiscard]] Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, const std::string& file);

// Parsers for "normalizer", "pre_tokenizer" and "decoder"; they throw tokenizer_fields::Complaint.
namespace tokenizer_fields {
void read_normalizer(const nlohmann::json& value, const std::string& where, std::vector<NormalizerStep>& steps);
void read_pretokenizer(const nlohmann::json& value, const std::string& where, std::vector<PretokenizerStep>& steps);
void read_decoder(const nlohmann::json& value, const std::string& where, std::vector<DecoderStep>& steps);
}  // namespace tokenizer_fields

}  // namespace windlass::worker
