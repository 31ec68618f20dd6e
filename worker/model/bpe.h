// Bpe: byte-pair encoding of one piece of text, as in Hugging Face's tokenizers.
//
// A piece is split into symbols: one per character, or with `raw_bytes` one per byte, written as its character in GPT-2's byte
// alphabet. Then the adjacent pair of the best rank is merged, repeatedly. A character without a token becomes its byte tokens
// ("<0x41>") if byte_fallback allows it, else the unknown token, else nothing. Immutable after construction; any thread.
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
  bool ignore_merges = false;                               // a piece that is itself a token becomes that token
  bool byte_fallback = false;
  std::string unknown;         // empty: none
  bool fuse_unknown = false;   // merge a run of unknown tokens into one
  std::string subword_prefix;  // for symbols that do not begin a piece
  std::string word_suffix;     // for the symbol that ends a piece
};

class Bpe {
 public:
  // `is_marker(text)`: whether this token stands for no text; such a token is never produced, even if a piece looks like it.
  // REQUIRES: with raw_bytes, no byte_fallback, prefix or suffix.
  [[nodiscard]] static Result<Bpe> make(const BpeSpec& spec, bool raw_bytes,
                                        const std::function<bool(const std::string&)>& is_marker);

  void encode(std::string_view piece, std::vector<std::int32_t>& out) const;
  // Whether every character has its own tokens, so that none is dropped or fused.
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
  Ids whole_;                                 // whole pieces; filled only with ignore_merges
  std::unordered_map<std::uint64_t, Merge> merges_;
};

// Converts text in the byte alphabet back to bytes; returns false if a character is outside it.
[[nodiscard]] bool append_alphabet_bytes(std::string_view text, std::string& out);
// Length in bytes of the first character of a non-empty text; 1 for invalid UTF-8.
[[nodiscard]] std::size_t character_bytes(std::string_view text);

}  // namespace windlass::worker
