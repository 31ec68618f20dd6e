// The three templates, each a few lines.
#include "worker/model/chat_template.h"

namespace windlass::worker {

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {
  const auto eot = tokenizer.added_token("<|eot_id|>");
  const auto im_end = tokenizer.added_token("<|im_end|>");
  if (eot && tokenizer.added_token("<|start_header_id|>") && tokenizer.added_token("<|end_header_id|>")) {
    kind_ = Kind::kLlama3;
    stop_tokens_.push_back(*eot);
  } else if (im_end && tokenizer.added_token("<|im_start|>")) {
    kind_ = Kind::kChatMl;
    stop_tokens_.push_back(*im_end);
  }
}

std::vector<std::int32_t> ChatTemplate::render(const std::vector<ChatMessage>& messages) const {
  std::vector<std::int32_t> ids = tokenizer_.prefix();
  const auto control = [&](const char* content) { ids.push_back(*tokenizer_.added_token(content)); };
  const auto text = [&](const std::string& literal) {
    const auto more = tokenizer_.encode(literal, SpecialText::kLiteral, kind_ != Kind::kPlain);
    ids.insert(ids.end(), more.begin(), more.end());
  };
  const auto open_turn = [&](const std::string& role) {
    if (kind_ == Kind::kLlama3) {
      control("<|start_header_id|>");
      text(role);
      control("<|end_header_id|>");
    } else {
      control("<|im_start|>");
      text(role + "\n");
    }
  };
  if (kind_ == Kind::kPlain) {
    std::string all;
    for (const ChatMessage& message : messages) all += message.role + ": " + message.content + "\n";
    text(all + "assistant:");
    return ids;
  }
  if (kind_ == Kind::kLlama3 && ids.empty() && tokenizer_.added_token("<|begin_of_text|>")) control("<|begin_of_text|>");
  for (const ChatMessage& message : messages) {
    open_turn(message.role);
    if (kind_ == Kind::kLlama3) {
      text("\n\n" + message.content);
      control("<|eot_id|>");
    } else {
      text(message.content);
      control("<|im_end|>");
      text("\n");
    }
  }
  open_turn("assistant");
  if (kind_ == Kind::kLlama3) text("\n\n");
  return ids;
}

}  // namespace windlass::worker
