// Bpe: the byte-pair encoding of one piece of text, as Hugging Face's tokenizers does it.
//
// A piece becomes symbols, one a character (or, with `raw_bytes`, one a byte, as its character in GPT-2's alphabet), then the
// pair of the best rank is merged, again and again. A character without a token is the tokens of its bytes ("<0x41>") where
// byte_fallback allows that, otherwise the unknown token, otherwise left out. Immutable after construction; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

struct BpeSpec {
  std::vector<std::pair<std::string, std::int32_t>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // best first
  bool ignore_merges = false;                               // a piece that is a token is that token
  bool byte_fallback = false;
  std::string unknown;         // empty: none
  bool fuse_unknown = false;   // of several in a row there is one
  std::string subword_prefix;  // of symbols that do not begin a piece
  std::string word_suffix;     // of the symbol that ends it
};

class Bpe {
 public:
  // is_marker(text): whether this token stands for no text; none comes out, not even where a piece looks like it.
  // REQUIRES: with raw_bytes, no byte_fallback, prefix or suffix.
  [[nodiscard]] static Result<Bpe> make(const BpeSpec& spec, bool raw_bytes,
                                        const std::function<bool(const std::string&)>& is_marker);

  void encode(std::string_view piece, std::vector<std::int32_t>& out) const;
  // Whether every character has tokens of its own, so that none is left out or fused.
  [[nodiscard]] bool complete() const { return complete_; }

 private:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
  };
  using Ids = std::unordered_map<std::string, std::int32_t, Hash, std::equal_to<>>;
  struct Merge {
    std::int32_t rank;
    std::int32_t result;
  };

  [[nodiscard]] std::vector<std::int32_t> symbols_of(std::string_view piece) const;
  [[nodiscard]] std::vector<std::int32_t> symbols_of_bytes(std::string_view piece) const;
  [[nodiscard]] Result<void> take_merges(const BpeSpec& spec, const std::function<bool(const std::string&)>& is_marker);

  bool raw_bytes_ = false;
  bool complete_ = false;
  bool byte_fallback_ = false;
  bool fuse_unknown_ = false;
  std::int32_t unknown_ = -1;
  std::string subword_prefix_, word_suffix_;
  std::array<std::int32_t, 256> byte_ids_{};  // -1: none
  Ids symbols_;                               // tokens of one character, with prefix and suffix
  Ids whole_;                                 // as pieces are; filled when ignore_merges
  std::unordered_map<std::uint64_t, Merge> merges_;
};

// Maps text in the byte alphabet back to bytes; false where a character is outside it.
[[nodiscard]] bool append_alphabet_bytes(std::string_view text, std::string& out);
// Bytes of the character that a text, not empty, begins with; 1 where they are no UTF-8.
[[nodiscard]] std::size_t character_bytes(std::string_view text);

}  // namespace windlass::worker
