// TokenDecoder: the text that a vocabulary token stands for, according to tokenizer.json's "decoder".
//
// Answers are sent token by token, so each step must work on one token alone; steps on the whole text may only affect its
// beginning. parse_tokenizer_json rejects all others. Immutable after construction; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "worker/model/text_pattern.h"

namespace windlass::worker {

struct DecoderStep {
  enum class Kind { kByteLevel, kByteFallback, kReplace, kStrip, kMetaspace, kWordSuffix, kStripText };
  Kind kind = Kind::kByteLevel;
  std::string where;         // the field, for messages
  PatternSpec pattern = {};  // what kReplace, kMetaspace and kWordSuffix search for
  std::string text = {};     // what kReplace inserts, and what kStrip and kStripText remove
  std::size_t start = 0;     // how often at most, at the beginning of each token or of the whole text (kStripText)
  std::size_t stop = 0;      // and at the end of each token
  bool first_space = false;  // for kMetaspace: the first token loses its spaces
};

class TokenDecoder {
 public:
  [[nodiscard]] static Result<TokenDecoder> make(std::vector<DecoderStep> steps);

  // The bytes of a token, in the middle of a text or as its first token. `added`: the token is plain text, not in a byte
  // alphabet. (The reference decodes it as if it were, and shows U+FFFD for "\u00e9".)
  [[nodiscard]] std::string bytes_of(std::string_view token, bool added, bool first = false) const;
  // Whether the first token of a text loses all spaces that came from the space symbol.
  [[nodiscard]] bool drops_first_spaces() const;
  // Removes surplus text from the beginning of a whole text.
  void finish(std::string& text) const;
  // Whether a token's text may be shorter than the text it was encoded from.
  [[nodiscard]] bool shortens() const;

 private:
  struct Step {
    DecoderStep spec;
    std::optional<TextPattern> pattern;
  };
  std::vector<Step> steps_;
};

}  // namespace windlass::worker
