// Tokenizer: BPE from a Hugging Face tokenizer.json, with the ids that their tokenizers library gives.
//
// A text is cut at added tokens (added_tokens.h), normalized (normalizer.h), cut into pieces (pretokenizer.h), and each piece
// becomes tokens (bpe.h); a TemplateProcessing post-processor puts special tokens before it. What a file asks for and this
// cannot do is refused with the field's name rather than encoded to wrong ids. With one exception: a special token marked
// "normalized" next to a Prepend normalizer (early Llama 2 files) is cut out before the normalizer like all others; Hugging
// Face's library misses the second of "</s><s>". Immutable after load; any thread.
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

  // Without prefix(). Any bytes may come in; whether decode(encode(x)) == x is up to the file's steps: that of most byte-level
  // models is, for text without special tokens. `continues`: something stands before the text, so that a prefix of the whole
  // text's beginning is left out.
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

}  // namespace windlass::worker
