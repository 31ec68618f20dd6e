// ChatTemplate: from a list of messages to the prompt's token ids.
//
// The model's own Jinja template (chat_template.jinja, or tokenizer_config.json's chat_template) is rendered as transformers'
// apply_chat_template does (worker/jinja). A model without one gets one by the special tokens that its tokenizer.json holds:
//   Llama 3   <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|> ..., after <|begin_of_text|>
//   ChatML    <|im_start|>role\ncontent<|im_end|>\n ...
//   plain     "role: content\n" ... "assistant:"
// What a user wrote is encoded as literal text: "<|eot_id|>" inside a message is no control token, whatever the template does
// with it (transformers would make it one). Immutable; any thread.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "planner/base/result.h"
#include "worker/jinja/template.h"
#include "worker/model/tokenizer.h"

namespace windlass::worker {

struct ChatMessage {
  std::string role;  // of those that the API knows: templates build control tokens of it
  std::string content;
};

class ChatTemplate {
 public:
  // Of a model folder or a GGUF file, or the template in `file` where it is not empty. Errors name the file, the line, found
  // and allowed. REQUIRES, for this and all below: the tokenizer outlives the template.
  [[nodiscard]] static Result<ChatTemplate> load(const Tokenizer& tokenizer, const std::filesystem::path& model,
                                                 const std::string& file);
  // `name`: of the file, for messages. `special_tokens`: bos_token and the like, as text.
  [[nodiscard]] static Result<ChatTemplate> parse(const Tokenizer& tokenizer, std::string_view source, const std::string& name,
                                                  jinja::Variables special_tokens);
  // The one that the special tokens speak for.
  [[nodiscard]] static ChatTemplate of_tokens(const Tokenizer& tokenizer);

  // The prompt, closed by the opening of the assistant's turn. `more`: variables of this request, an object or null; they do
  // not hide the template's own. unix_s: now. Error: kInvalidArgument, the template refuses these messages or variables.
  [[nodiscard]] Result<std::vector<std::int32_t>> render(const std::vector<ChatMessage>& messages,
                                                         const nlohmann::ordered_json& more, std::int64_t unix_s) const;

  // Where it comes from: a file's name, or "Llama 3", "ChatML", "plain lines".
  [[nodiscard]] const std::string& name() const { return name_; }
  // Tokens that end an assistant's turn, beyond the model's own end-of-sequence tokens.
  [[nodiscard]] const std::vector<std::int32_t>& stop_tokens() const { return stop_tokens_; }

 private:
  ChatTemplate(const Tokenizer& tokenizer, jinja::Template source, std::string name);

  const Tokenizer& tokenizer_;
  jinja::Template template_;
  std::string name_;
  jinja::Variables special_tokens_;
  std::vector<std::int32_t> prefix_;  // before what the template says; models' own say it themselves
  std::vector<std::int32_t> stop_tokens_;
};

}  // namespace windlass::worker
