// Selects a model's template and converts its output to ids.
#include "worker/model/chat_template.h"

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/shown_json.h"
#include "worker/model/files.h"
#include "worker/model/gguf_model.h"
#include "worker/model/gguf_tokenizer.h"
#include "worker/model/json_input.h"

namespace windlass::worker {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kLlama3 =
    "{% for message in messages %}<|start_header_id|>{{ message.role }}<|end_header_id|>\n\n{{ message.content }}<|eot_id|>"
    "{% endfor %}<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}";
constexpr std::string_view kChatMl =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}<|im_start|>assistant{{ '\\n' }}";
constexpr std::string_view kPlain =
    "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}assistant:";

// The template in tokenizer_config.json: a string, or a list of named templates, of which "default" is for chats.
Result<std::string> template_of(const ordered_json& config, const std::string& file) {
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::string();
  const auto wrong = [&](const ordered_json& value) {
    return Error{
        ErrorCode::kInvalidArgument,
        fmt::format("{}: 'chat_template': must be a text or a list of {{\"name\", \"template\"}} with a \"default\" (got {})",
                    file, shown(value))};
  };
  if (found->is_string()) return found->get<std::string>();
  if (!found->is_array()) return wrong(*found);
  for (const ordered_json& entry : *found) {
    if (!entry.is_object() || !entry.contains("template") || !entry.at("template").is_string()) return wrong(entry);
    if (entry.value("name", ordered_json()) == "default") return entry.at("template").get<std::string>();
  }
  return wrong(*found);
}

// Fields whose name ends in _token: a string, or an object with the string as content.
jinja::Variables special_tokens_of(const ordered_json& config) {
  jinja::Variables tokens;
  for (const auto& [name, value] : config.items()) {
    if (!name.ends_with("_token")) continue;
    const ordered_json text = value.is_object() ? value.value("content", ordered_json()) : value;
    if (text.is_string()) tokens.emplace_back(name, jinja::Text::of_template(text.get_ref<const std::string&>()));
  }
  return tokens;
}

// The contents of tokenizer_config.json; an empty object if it does not exist.
Result<ordered_json> config_of_folder(const std::filesystem::path& path) {
  const auto text = read_text_file(path);
  if (!text.ok()) {
    return text.error().code == ErrorCode::kNotFound ? Result<ordered_json>(ordered_json::object()) : text.error();
  }
  auto parsed = parse_json<ordered_json>(*text);
  if (!parsed.ok()) return parsed.error().within(path.string());
  if (!parsed->is_object()) return Error{ErrorCode::kInvalidArgument, fmt::format("{}: must be a JSON object", path.string())};
  return parsed;
}

Result<ordered_json> config_of_gguf(const std::filesystem::path& path) {
  WINDLASS_ASSIGN_OR_RETURN(const GgufModel model, GgufModel::open({path}));
  return tokenizer_config_of(model.gguf);
}

}  // namespace

ChatTemplate::ChatTemplate(const Tokenizer& tokenizer, jinja::Template source, std::string name)
    : tokenizer_(tokenizer), template_(std::move(source)), name_(std::move(name)) {
  for (const char* end : {"<|eot_id|>", "<|im_end|>"}) {
    if (const auto id = tokenizer.added_token(end)) stop_tokens_.push_back(*id);
  }
}

Result<ChatTemplate> ChatTemplate::parse(const Tokenizer& tokenizer, std::string_view source, const std::string& name,
                                         jinja::Variables special_tokens) {
  WINDLASS_ASSIGN_OR_RETURN(jinja::Template parsed, jinja::Template::parse(source, name));
  ChatTemplate chat(tokenizer, std::move(parsed), name);
  chat.special_tokens_ = std::move(special_tokens);
  return chat;
}

ChatTemplate ChatTemplate::of_tokens(const Tokenizer& tokenizer) {
  const auto has = [&](const char* token) { return tokenizer.added_token(token).has_value(); };
  const bool llama3 = has("<|eot_id|>") && has("<|start_header_id|>") && has("<|end_header_id|>");
  const bool chat_ml = !llama3 && has("<|im_end|>") && has("<|im_start|>");
  const char* name = llama3 ? "Llama 3" : chat_ml ? "ChatML" : "plain lines";
  auto source = jinja::Template::parse(llama3 ? kLlama3 : chat_ml ? kChatMl : kPlain, name);
  ChatTemplate chat(tokenizer, std::move(source).value(), name);
  chat.prefix_ = tokenizer.prefix();
  if (const auto begin = tokenizer.added_token("<|begin_of_text|>"); llama3 && chat.prefix_.empty() && begin)
    chat.prefix_.push_back(*begin);
  return chat;
}

Result<ChatTemplate> ChatTemplate::load(const Tokenizer& tokenizer, const std::filesystem::path& model,
                                        const std::string& file) {
  WINDLASS_ASSIGN_OR_RETURN(const auto parts, gguf_files_of(model));
  const std::filesystem::path config_path = parts.empty() ? model / "tokenizer_config.json" : parts.front();
  WINDLASS_ASSIGN_OR_RETURN(const ordered_json config,
                            parts.empty() ? config_of_folder(config_path) : config_of_gguf(config_path));
  if (parts.empty() || !file.empty()) {
    const std::filesystem::path own = file.empty() ? model / "chat_template.jinja" : std::filesystem::path(file);
    const auto source = read_text_file(own);
    if (source.ok()) return parse(tokenizer, *source, own.string(), special_tokens_of(config));
    if (!file.empty()) return source.error().within("--chat-template");
    if (source.error().code != ErrorCode::kNotFound) return source.error();
  }
  WINDLASS_ASSIGN_OR_RETURN(const std::string in_config, template_of(config, config_path.string()));
  if (in_config.empty()) return of_tokens(tokenizer);
  return parse(tokenizer, in_config, config_path.string() + ": 'chat_template'", special_tokens_of(config));
}

Result<std::vector<std::int32_t>> ChatTemplate::render(const std::vector<ChatMessage>& messages, const ordered_json& more,
                                                       std::int64_t unix_s) const {
  const auto variables = [&] {
    jinja::List list;
    for (const ChatMessage& message : messages) {
      jinja::Dict dict;
      dict.set(jinja::Text::of_template("role"), jinja::Text::of_template(message.role));
      dict.set(jinja::Text::of_template("content"), jinja::Text::of_input(message.content));
      list.items.emplace_back(std::move(dict));
    }
    jinja::Variables made = {
        {"messages", std::move(list)}, {"add_generation_prompt", true}, {"tools", jinja::None{}}, {"documents", jinja::None{}}};
    made.insert(made.end(), special_tokens_.begin(), special_tokens_.end());
    for (const auto& [name, value] : more.items()) made.emplace_back(name, jinja::Value::of_input(value));
    return made;
  };
  WINDLASS_ASSIGN_OR_RETURN(const jinja::Text text, template_.render(variables, unix_s));
  std::vector<std::int32_t> ids = prefix_;
  const auto rest = tokenizer_.encode(text.bytes(), [&](std::size_t at) { return text.from_input(at); });
  ids.insert(ids.end(), rest.begin(), rest.end());
  return ids;
}

}  // namespace windlass::worker
