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

inline constexpr std::string_view kSpaceSymbol = "\u2581";

// How text becomes the symbols that merges begin with.
enum class Symbols {
  kBytes,       // every byte, in GPT-2's alphabet
  kCharacters,  // SentencePiece: characters, spaces as U+2581; the bytes <0x..> of those that the vocabulary lacks
};

// Where SentencePiece puts a U+2581 before a text.
enum class SpacePrefix {
  kNever,
  kEvery,   // "Prepend": before every text between added tokens
  kAlways,  // Metaspace: the same, but where one is there already
  kFirst,   // Metaspace: the same, but at the beginning of the whole text only
};

struct TokenizerSpec {
  Symbols symbols = Symbols::kBytes;
  std::vector<std::pair<std::string, std::int32_t>> vocab;  // text in the byte alphabet or with U+2581, id
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  bool ignore_merges = false;                               // a piece that is a token is that token
  std::string unknown;        // the token of what the vocabulary lacks; empty: such text is left out
  bool fuse_unknown = false;  // of several in a row there is one
  std::vector<AddedToken> added;
  bool nfc = false;
  std::vector<std::string> patterns;  // of the pretokenizer, in order
  bool add_prefix_space = false;
  // Of SentencePiece:
  SpacePrefix space_prefix = SpacePrefix::kNever;
  bool split_words = false;  // merges do not cross a U+2581
  bool strip_space = false;  // decoding leaves out one space at the beginning
  std::vector<std::int32_t> prefix;
};

[[nodiscard]] Result<TokenizerSpec> parse_tokenizer_json(std::string_view json, const std::string& file);

}  // namespace windlass::worker
