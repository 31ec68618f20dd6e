// TokenDecoder: what a token of the vocabulary stands for, as tokenizer.json's "decoder" says.
//
// Answers go out token by token, so that each step has to work on one token alone; what works on the whole text is limited to
// its beginning. parse_tokenizer_json refuses the rest. Immutable after construction; any thread.
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
  PatternSpec pattern = {};  // what kReplace, kMetaspace and kWordSuffix look for
  std::string text = {};     // what kReplace puts, and what kStrip and kStripText take away
  std::size_t start = 0;     // at most this often at the beginning of each token, or of the whole text (kStripText)
  std::size_t stop = 0;      // and at the end of each token
  bool first_space = false;  // of kMetaspace: the first token loses its spaces
};

class TokenDecoder {
 public:
  [[nodiscard]] static Result<TokenDecoder> make(std::vector<DecoderStep> steps);

  // The bytes that a token stands for, within a text or as its first token. `added`: it is in no byte alphabet, where the
  // reference would take it for one and show U+FFFD for "\u00e9".
  [[nodiscard]] std::string bytes_of(std::string_view token, bool added, bool first = false) const;
  // Whether the first token of a text loses all its spaces that are symbols.
  [[nodiscard]] bool drops_first_spaces() const;
  // Takes away from a whole text what its beginning and end have too much.
  void finish(std::string& text) const;
  // Whether what a token stands for may be shorter than what it was made of.
  [[nodiscard]] bool shortens() const;

 private:
  struct Step {
    DecoderStep spec;
    std::optional<TextPattern> pattern;
  };
  std::vector<Step> steps_;
};

}  // namespace windlass::worker
