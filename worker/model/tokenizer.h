// Tokenizer: BPE from a Hugging Face tokenizer.json, byte-level or as SentencePiece's with byte fallback.
//
// Byte-level (GPT-2, Llama 3, Qwen): symbols of the GPT-2 byte alphabet, normalizer none or NFC, the pretokenizers of
// pretokenizer.h. SentencePiece (Llama 2, Mistral): characters with U+2581 for spaces, put before a text by a Prepend
// normalizer or a Metaspace pretokenizer. Both: merges as "a b" or ["a","b"], ignore_merges, added tokens, and a
// TemplateProcessing post-processor that puts special tokens before the text. Anything else is refused with the field's name
// rather than encoded to wrong ids, with one exception: an added token marked "normalized" (early Llama 2 files) is cut out
// before the normalizer like all others, where Hugging Face's library does it after. Immutable after load; any thread.
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

// Whether the text of special tokens ("<|eot_id|>") stands for the token, or is ordinary text as a user typed it.
enum class SpecialText { kParse, kLiteral };

class Tokenizer {
 public:
  // `file` is only named in messages.
  [[nodiscard]] static Result<Tokenizer> parse(std::string_view json, const std::string& file);
  // Of a model folder or a GGUF file.
  [[nodiscard]] static Result<Tokenizer> load(const std::filesystem::path& model);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Without prefix(). Any bytes may come in; for text without special tokens and U+2581, decode(encode(x)) == x unless a
  // normalizer is set or Metaspace finds a space at the beginning. `continues`: something stands before the text, so that a
  // prefix of the whole text's beginning is left out.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, SpecialText special, bool continues = false) const;
  // The same for a text of mixed origin: special tokens, and others that look like tags ("<|User|>", which some models do not
  // call special), stand only where none of their bytes was typed by a user; by places in the text.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text, const std::function<bool(std::size_t)>& typed) const;

  // The bytes of one token, perhaps a part of a UTF-8 sequence; empty for special tokens and for ids that have no token.
  [[nodiscard]] std::string_view token_bytes(std::int32_t id) const;
  // What stands for a special token ("<|eot_id|>"); empty for all others.
  [[nodiscard]] std::string_view special_text(std::int32_t id) const;
  // The text of a whole sequence: without the space that encoding put before it, and with what stands for special tokens or
  // not.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids, bool with_special = false) const;

  // The id of an added token with this exact text.
  [[nodiscard]] std::optional<std::int32_t> added_token(std::string_view content) const;

  // What the post-processor puts before a text: usually the beginning-of-text token.
  [[nodiscard]] const std::vector<std::int32_t>& prefix() const;

  // A text of so many bytes has at least so many tokens.
  [[nodiscard]] std::int64_t least_tokens(std::size_t bytes) const;

  // One more than the largest id.
  [[nodiscard]] std::int64_t size() const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// GPT-2's alphabet: every byte as one printable character, in UTF-8. Index: the byte.
[[nodiscard]] const std::vector<std::string>& byte_alphabet();

}  // namespace windlass::worker
