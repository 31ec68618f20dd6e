// What a tokenizer.json says, as plain data: read and checked here, used by Tokenizer. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

struct AddedToken {
  std::int32_t id = 0;
  std::string content;
  bool special = false;
};

struct TokenizerSpec {
  std::vector<std::pair<std::string, std::int32_t>> vocab;  // text in the byte alphabet, id
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  bool ignore_merges = false;                               // a piece that is a token is that token
  std::vector<AddedToken> added;
  bool nfc = false;
  std::vector<std::string> patterns;  // of the pretokenizer, in order
  bool add_prefix_space = false;
  std::vector<std::int32_t> prefix;
};

[[nodiscard]] Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, const std::string& file);

}  // namespace windlass::worker
