// Pretokenizer: splits text into pieces before byte-pair encoding, according to tokenizer.json's "pre_tokenizer".
//
// A list of steps, each of which splits the pieces of the previous one: by a pattern (Split, Digits, Punctuation, Whitespace,
// WhitespaceSplit and CharDelimiterSplit), ByteLevel or Metaspace. Immutable after construction; any thread.
#pragma once

#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"
#include "worker/model/text_pattern.h"

namespace windlass::worker {

// The expressions of GPT-2's ByteLevel step and of Llama 3's Split step.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

// GPT-2's byte alphabet: every byte as one printable character, in UTF-8. Index: the byte.
[[nodiscard]] const std::vector<std::string>& byte_alphabet();

// Where Metaspace puts its symbol before a piece that has none.
enum class PrependScheme { kNever, kAlways, kFirst };  // kFirst: at the beginning of the whole text

struct PretokenizerStep {
  enum class Kind { kSplit, kByteLevel, kMetaspace };
  Kind kind = Kind::kSplit;
  std::string where;  // the field, for messages
  // For kSplit; for the others, `cuts` says whether they split at all.
  PatternSpec pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  bool invert = false;
  bool cuts = true;
  bool prefix_space = false;                      // for ByteLevel: adds a space before a piece that has none
  std::string symbol;                             // for Metaspace, replaces each space
  PrependScheme prepend = PrependScheme::kNever;  // for Metaspace
};

class Pretokenizer {
 public:
  // `raw_bytes`: a final ByteLevel step does not convert to the byte alphabet, because the caller reads bytes. Error:
  // kInvalidArgument if ICU rejects an expression; the message shows it.
  [[nodiscard]] static Result<Pretokenizer> make(std::vector<PretokenizerStep> steps, bool raw_bytes);

  // Pieces in order, views into the text or into `owned`.
  struct Pieces {
    std::vector<std::string_view> list;
    std::deque<std::string> owned;
  };
  // `first`: the text begins the whole.
  [[nodiscard]] Pieces split(std::string_view text, bool first) const;
  // Whether parts of a text may be dropped.
  [[nodiscard]] bool removes() const;

 private:
  struct Step {
    PretokenizerStep spec;
    std::optional<TextPattern> pattern;
  };
  std::vector<Step> steps_;
  bool raw_bytes_ = false;
};

}  // namespace windlass::worker
