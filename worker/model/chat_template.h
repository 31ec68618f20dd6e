// ChatTemplate: turns a list of messages into the prompt's token ids.
//
// Renders the model's own Jinja template (chat_template.jinja, or chat_template in tokenizer_config.json) as transformers'
// apply_chat_template does (worker/jinja). A model without one gets a built-in template, chosen by the special tokens in its
// tokenizer.json:
//   Llama 3   <|start_header_id|>role<|end_header_id|>\n\ncontent<|eot_id|> ..., after <|begin_of_text|>
//   ChatML    <|im_start|>role\ncontent<|im_end|>\n ...
//   plain     "role: content\n" ... "assistant:"
//
// Text written by a user is encoded literally: "<|eot_id|>" inside a message never becomes a control token, whatever the
// template does with it (in transformers it would). Immutable; any thread.
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
  std::string role;  // one of the API's roles: templates build control tokens from it
  std::string content;
};

class ChatTemplate {
 public:
  // Loads the template of a model folder or GGUF file, or the one in `file` if not empty. Errors name the file, the line, the
  // rule and the value. REQUIRES, for all constructors: the tokenizer outlives the template.
  [[nodiscard]] static Result<ChatTemplate> load(const Tokenizer& tokenizer, const std::filesystem::path& model,
                                                 const std::string& file);
  // `name`: the file's name, for messages. `special_tokens`: bos_token and the like, as text.
  [[nodiscard]] static Result<ChatTemplate> parse(const Tokenizer& tokenizer, std::string_view source, const std::string& name,
                                                  jinja::Variables special_tokens);
  // The built-in template that matches the special tokens.
  [[nodiscard]] static ChatTemplate of_tokens(const Tokenizer& tokenizer);

  // The prompt, ending with the opening of the assistant's turn. `more`: variables of this request, an object or null; the
  // template's own take precedence. `unix_s`: current time. Error: kInvalidArgument if the template rejects the messages or
  // variables.
  [[nodiscard]] Result<std::vector<std::int32_t>> render(const std::vector<ChatMessage>& messages,
                                                         const nlohmann::ordered_json& more, std::int64_t unix_s) const;

  // Its origin: a file's name, or "Llama 3", "ChatML", "plain lines".
  [[nodiscard]] const std::string& name() const { return name_; }
  // Tokens that end an assistant's turn, in addition to the model's end-of-sequence tokens.
  [[nodiscard]] const std::vector<std::int32_t>& stop_tokens() const { return stop_tokens_; }

 private:
  ChatTemplate(const Tokenizer& tokenizer, jinja::Template source, std::string name);

  const Tokenizer& tokenizer_;
  jinja::Template template_;
  std::string name_;
  jinja::Variables special_tokens_;
  std::vector<std::int32_t> prefix_;  // put before the template's output; a model's own template already includes it
  std::vector<std::int32_t> stop_tokens_;
};

}  // namespace windlass::worker
