// Tokenizer: BPE from a Hugging Face tokenizer.json, with the same ids as their tokenizers library.
//
// Steps: split the text at added tokens (added_tokens.h), normalize it (normalizer.h), split it into pieces (pretokenizer.h),
// and encode each piece (bpe.h). A TemplateProcessing post-processor puts special tokens in front. A file with an unsupported
// feature is rejected with the field's name, so ids are never silently wrong. One known difference: a special token marked
// "normalized" together with a Prepend normalizer (early Llama 2 files) is split off before the normalizer, like all others;
// Hugging Face's library misses the second token of "</s><s>". Immutable after loading; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "planner/base/result.h"

namespace windlass::worker {

// Whether the text of a special token ("<|eot_id|>") becomes that token, or is encoded as ordinary text.
enum class SpecialText { kParse, kLiteral };

class Tokenizer {
 public:
  // `file`: name for messages.
  [[nodiscard]] static Result<Tokenizer> parse(std::string_view json, const std::string& file);
  // Loads from a model folder or a GGUF file.
  [[nodiscard]] static Result<Tokenizer> load(const std::filesystem::path& model);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Encodes without prefix(). Accepts any bytes. decode(encode(x)) == x holds for text without special tokens in most
  // byte-level models, but depends on the file's steps. `continues`: the text continues an earlier one, so no prefix for the
  // beginning of a text is added.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, SpecialText special, bool continues = false) const;
  // Encodes text of mixed origin. Special tokens, and added tokens that look like tags ("<|User|>", which some models do not
  // mark as special), are recognised only if none of their bytes was typed by a user; `typed` is asked by byte position.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, const std::function<bool(std::size_t)>& typed) const;

  // The bytes of one token, possibly part of a UTF-8 sequence; empty for special tokens and unknown ids.
  [[nodiscard]] std::string_view token_bytes(std::int32_t id) const;
  // The text of a special token ("<|eot_id|>"); empty for all others.
  [[nodiscard]] std::string_view special_text(std::int32_t id) const;
  // The text of a whole sequence, without the space that encoding put in front; with or without the text of special tokens.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, bool with_special = false) const;

  // The id of the added token with exactly this text.
  [[nodiscard]] std::optional<std::int32_t> added_token(std::string_view content) const;

  // The tokens that the post-processor puts before a text: usually beginning-of-text.
  [[nodiscard]] const std::vector<std::int32_t>& prefix() const;

  // Lower bound of the number of tokens in a text of this many bytes.
  [[nodiscard]] std::int64_t least_tokens(std::size_t bytes) const;

  // The largest id plus one.
  [[nodiscard]] std::int64_t size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace windlass::worker
