// From messages to ids: which template a folder has, and what stays text.
#include "worker/model/chat_template.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/worker/model_files.h"
#include "worker/model/model_init.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

Tokenizer tiny_tokenizer() {
  auto parsed = Tokenizer::parse(make_tokenizer_json(testing::tiny_shape()), "tokenizer.json");
  EXPECT_TRUE(parsed.ok());
  return std::move(parsed).value();
}

std::vector<std::int32_t> ids_of(const ChatTemplate& chat, const std::vector<ChatMessage>& messages,
                                 const nlohmann::ordered_json& more = nullptr) {
  auto ids = chat.render(messages, more, 0);
  if (!ids.ok()) ADD_FAILURE() << ids.error().message;
  return ids.ok() ? *ids : std::vector<std::int32_t>();
}

// A folder with these files.
class Folder {
 public:
  explicit Folder(const std::vector<std::pair<std::string, std::string>>& files) {
    for (const auto& [name, text] : files) testing::write_bytes(folder_.path() / name, text);
  }
  [[nodiscard]] const std::filesystem::path& path() const { return folder_.path(); }

 private:
  testing::TemporaryFolder folder_;
};

// Given a generated model's tokenizer and no template; expects Llama 3's chat format with control tokens, and control text
// inside a message as text.
TEST(ChatTemplate, OfLlama3sTokens) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const ChatTemplate chat = ChatTemplate::of_tokens(tokenizer);
  EXPECT_EQ(chat.name(), "Llama 3");
  const auto id = [&](const char* content) { return *tokenizer.added_token(content); };
  const auto ids = ids_of(chat, {{"user", "hi <|eot_id|>"}});
  EXPECT_EQ(tokenizer.decode(ids), "user\n\nhi <|eot_id|>assistant\n\n");
  EXPECT_EQ(ids.front(), id("<|begin_of_text|>"));
  EXPECT_EQ(ids[1], id("<|start_header_id|>"));
  EXPECT_EQ(std::count(ids.begin(), ids.end(), id("<|eot_id|>")), 1);
  EXPECT_THAT(chat.stop_tokens(), ElementsAre(id("<|eot_id|>")));
}

// Given a folder made by model init, whose tokenizer_config.json has a template; expects the ids of the same turns without it.
TEST(ChatTemplate, OfTokenizerConfig) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const json config = {{"bos_token", {{"content", "<|begin_of_text|>"}}},
                       {"chat_template",
                        "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m['role'] }}<|end_header_id|>\n\n{{ "
                        "m['content'] }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant"
                        "<|end_header_id|>\n\n{% endif %}"}};
  const Folder folder({{"tokenizer_config.json", config.dump()}});
  const auto chat = ChatTemplate::load(tokenizer, folder.path(), "");
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  EXPECT_THAT(chat->name(), HasSubstr("tokenizer_config.json"));
  const std::vector<ChatMessage> messages = {{"system", "be brief"}, {"user", "<|start_header_id|>"}};
  EXPECT_EQ(ids_of(*chat, messages), ids_of(ChatTemplate::of_tokens(tokenizer), messages));
}

// Given several sources; expects the flag's file before chat_template.jinja, and that before tokenizer_config.json. Of a list,
// the template named default is used. A request's variables are visible but override nothing.
TEST(ChatTemplate, WhereItIsFound) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const json list = {{"chat_template", {{{"name", "rag"}, {"template", "no"}}, {{"name", "default"}, {"template", "listed"}}}}};
  const Folder both(
      {{"tokenizer_config.json", list.dump()}, {"chat_template.jinja", "own"}, {"other", "{{ x }}{{ messages|length }}"}});
  const Folder only({{"tokenizer_config.json", list.dump()}});
  const auto text = [&](const std::filesystem::path& folder, const std::string& file) {
    const auto chat = ChatTemplate::load(tokenizer, folder, file);
    if (!chat.ok()) return chat.error().message;
    return tokenizer.decode(ids_of(*chat, {{"user", "hi"}}, {{"x", "X"}, {"messages", nullptr}}));
  };
  EXPECT_EQ(text(only.path(), ""), "listed");
  EXPECT_EQ(text(both.path(), ""), "own");
  EXPECT_EQ(text(both.path(), (both.path() / "other").string()), "X1");
  EXPECT_THAT(text(both.path(), "/nowhere/t"), HasSubstr("--chat-template: /nowhere/t"));
}

// Given a request that exceeds the limit of a rendering; expects it to be refused, and the next one to have its full budget.
TEST(ChatTemplate, EachRequestHasStepsOfItsOwn) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const auto chat = ChatTemplate::parse(
      tokenizer, "{% for i in x %}{% for j in x %}{% if i == j %}{% endif %}{% endfor %}{% endfor %}fine", "t", {});
  ASSERT_TRUE(chat.ok()) << chat.error().message;
  const json many = {{"x", std::vector<int>(3000, 1)}};
  const auto refused = chat->render({{"user", "hi"}}, many, 0);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("steps"));
  EXPECT_EQ(tokenizer.decode(ids_of(*chat, {{"user", "hi"}}, {{"x", {1, 2}}})), "fine");
}

// Given damaged files and templates that reject their input; expects errors with the file, the line and the rule.
TEST(ChatTemplate, Refusals) {
  const Tokenizer tokenizer = tiny_tokenizer();
  const auto error = [&](const std::string& config) {
    const Folder folder({{"tokenizer_config.json", config}});
    const auto chat = ChatTemplate::load(tokenizer, folder.path(), "");
    return chat.ok() ? std::string("none") : chat.error().message;
  };
  EXPECT_THAT(error("{"), HasSubstr("tokenizer_config.json: not JSON"));
  EXPECT_THAT(error("[]"), HasSubstr("tokenizer_config.json: must be a JSON object"));
  EXPECT_THAT(error(R"({"chat_template": 3})"), HasSubstr("'chat_template': must be a text or a list"));
  EXPECT_THAT(error(R"({"chat_template": [{"name": "rag", "template": "x"}]})"), HasSubstr("with a \"default\""));
  EXPECT_THAT(error(R"({"chat_template": "{{ x"})"), HasSubstr("'chat_template': line 1: a tag is not closed"));
  EXPECT_EQ(error(R"({"chat_template": null})"), "none");
  const auto chat = ChatTemplate::parse(tokenizer, "{{ raise_exception('take turns') }}", "t", {});
  ASSERT_TRUE(chat.ok());
  EXPECT_EQ(chat->render({{"user", "hi"}}, {}, 0).error().message, "t: line 1: take turns");
}

}  // namespace
}  // namespace windlass::worker
