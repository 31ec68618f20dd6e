// ChatTemplate: from a list of messages to the prompt's token ids.
//
// Jinja is not interpreted: tokenizer_config.json's chat_template is ignored. What is supported is chosen by the special tokens
// that tokenizer.json holds:
//   Llama 3   <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|> ..., after <|begin_of_text|>
//   ChatML    <|im_start|>role\ncontent<|im_end|>\n ...
//   plain     "role: content\n" ... "assistant:", after the tokenizer's prefix
// What a user wrote is encoded as literal text: "<|eot_id|>" inside a message is no control token. Immutable; any thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "worker/model/tokenizer.h"

namespace windlass::worker {

struct ChatMessage {
  std::string role;
  std::string content;
};

class ChatTemplate {
 public:
  enum class Kind { kLlama3, kChatMl, kPlain };

  // REQUIRES: the tokenizer outlives this.
  explicit ChatTemplate(const Tokenizer& tokenizer);

  // The prompt, closed by the opening of the assistant's turn.
  [[nodiscard]] std::vector<std::int32_t> render(const std::vector<ChatMessage>& messages) const;

  [[nodiscard]] Kind kind() const { return kind_; }
  // Tokens that end an assistant's turn, beyond the model's own end-of-sequence tokens.
  [[nodiscard]] const std::vector<std::int32_t>& stop_tokens() const { return stop_tokens_; }

 private:
  const Tokenizer& tokenizer_;
  Kind kind_ = Kind::kPlain;
  std::vector<std::int32_t> stop_tokens_;
};

}  // namespace windlass::worker
