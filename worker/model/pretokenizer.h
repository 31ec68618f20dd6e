// Pretokenizer: cuts text into pieces before byte-pair encoding, as tokenizer.json's "pre_tokenizer" says.
//
// Supported steps: Split by a regular expression (behavior Isolated, not inverted) and ByteLevel (with GPT-2's expression
// unless use_regex is false), alone or in a Sequence. Expressions run on ICU; `\s` and `\S` are read as Unicode White_Space, as
// the Rust tokenizers do. Immutable after construction; any thread.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

// The expression of GPT-2's ByteLevel step, and that of Llama 3's Split step.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr std::string_view kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class Pretokenizer {
 public:
  // Error: kInvalidArgument when ICU does not take one of the expressions; the message shows it.
  [[nodiscard]] static Result<Pretokenizer> make(const std::vector<std::string>& patterns);

  Pretokenizer(Pretokenizer&&) noexcept;
  Pretokenizer& operator=(Pretokenizer&&) noexcept;
  ~Pretokenizer();

  // Pieces in order; together they are exactly `text`, whatever bytes it holds. Views into `text`.
  [[nodiscard]] std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Impl;
  explicit Pretokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// Unicode normal form C. Bytes that are not UTF-8 become U+FFFD.
[[nodiscard]] std::string normalize_nfc(std::string_view text);

}  // namespace windlass::worker
