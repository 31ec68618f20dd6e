// The OpenAI bodies: how requests are parsed, how every bad field is named, and the shapes of answers.
#include "worker/serve/openai_api.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/unit/worker/model_files.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class Api : public ::testing::Test {
 protected:
  static Tokenizer make_tokenizer() {
    auto tokenizer = Tokenizer::parse(make_tokenizer_json(testing::tiny_shape()), "tokenizer.json");
    EXPECT_TRUE(tokenizer.ok());
    return std::move(tokenizer).value();
  }
  static ModelConfig make_config() {
    ModelConfig config;
    config.vocab_size = 300;
    return config;
  }
  static EngineOptions make_options() {
    EngineOptions options;
    options.max_context_tokens = 64;
    return options;
  }
  std::variant<ApiRequest, ApiError> parse(const json& body, Endpoint endpoint) const {
    return parse_text(body.dump(), endpoint);
  }
  std::variant<ApiRequest, ApiError> parse_text(const std::string& body, Endpoint endpoint) const {
    return parse_request(endpoint, body, {name_, tokenizer_, chat_, options_, config_}, 99);
  }
  ApiRequest good(const json& body, Endpoint endpoint = Endpoint::kChatCompletions) const {
    auto parsed = parse(body, endpoint);
    if (const auto* error = std::get_if<ApiError>(&parsed)) ADD_FAILURE() << error->message;
    return std::get<ApiRequest>(std::move(parsed));
  }
  ApiError bad(const json& body, Endpoint endpoint = Endpoint::kChatCompletions) const {
    auto parsed = parse(body, endpoint);
    EXPECT_TRUE(std::holds_alternative<ApiError>(parsed)) << body;
    return std::get<ApiError>(std::move(parsed));
  }
  static json chat() { return {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "hi"}}}}}; }
  static json completion() { return {{"model", "m"}, {"prompt", "hi"}}; }

  const std::string name_ = "m";
  const Tokenizer tokenizer_ = make_tokenizer();
  const ChatTemplate chat_ = ChatTemplate::of_tokens(tokenizer_);
  const EngineOptions options_ = make_options();
  ModelConfig config_ = make_config();
};

// Given bare requests; expects OpenAI's defaults: temperature 1, 16 tokens for completions, all that fits for chats.
TEST_F(Api, Defaults) {
  const ApiRequest chat_request = good(chat());
  EXPECT_EQ(chat_request.generation.sampling.temperature, 1);
  EXPECT_EQ(chat_request.generation.sampling.seed, 99U);
  EXPECT_EQ(chat_request.generation.max_tokens, 64 - static_cast<std::int64_t>(chat_request.generation.prompt.size()));
  EXPECT_FALSE(chat_request.stream);
  const ApiRequest completion_request = good(completion(), Endpoint::kCompletions);
  EXPECT_EQ(completion_request.generation.max_tokens, 16);
  EXPECT_EQ(completion_request.generation.prompt.front(), tokenizer_.prefix()[0]);
  EXPECT_EQ(tokenizer_.decode(completion_request.generation.prompt), "hi");
}

// Given variables for the template; expects their keys in the order of the body.
TEST_F(Api, TemplateVariablesKeepTheirOrder) {
  const auto shows = ChatTemplate::parse(tokenizer_, "{{ filter | tojson }}", "t", {});
  ASSERT_TRUE(shows.ok());
  const std::string body = R"({"model":"m","messages":[{"role":"user","content":"hi"}],
                               "chat_template_kwargs":{"filter":{"z":1,"a":{"y":2,"b":3}}}})";
  const auto parsed = parse_request(Endpoint::kChatCompletions, body, {name_, tokenizer_, *shows, options_, config_}, 99);
  ASSERT_TRUE(std::holds_alternative<ApiRequest>(parsed)) << std::get<ApiError>(parsed).message;
  EXPECT_EQ(tokenizer_.decode(std::get<ApiRequest>(parsed).generation.prompt), R"({"z": 1, "a": {"y": 2, "b": 3}})");
}

// Given variables with more values than a template may have; expects a refusal.
TEST_F(Api, TooManyValuesForATemplate) {
  std::string many = "[1";
  for (int i = 0; i < 1'000'000; ++i) many += ",1";
  const std::string body =
      R"({"model":"m","messages":[{"role":"user","content":"hi"}],"chat_template_kwargs":{"a":)" + many + "]}}";
  const ApiModel model{name_, tokenizer_, chat_, options_, config_};
  const auto parsed = parse_request(Endpoint::kChatCompletions, body, model, 99);
  ASSERT_TRUE(std::holds_alternative<ApiError>(parsed));
  EXPECT_EQ(std::get<ApiError>(parsed).status, 400);
  EXPECT_THAT(std::get<ApiError>(parsed).message, HasSubstr("a list or dict: must have at most 1000000 values"));
  EXPECT_EQ(std::get<ApiError>(parsed).param, "chat_template_kwargs");
}

// Given a body with almost as many keys as allowed next to such variables; expects it to be parsed in one pass. For a repeated
// key the last value counts, at the first one's place.
TEST_F(Api, ReadsManyKeysInOnePass) {
  const auto shows = ChatTemplate::parse(tokenizer_, "{{ filter | tojson }}", "t", {});
  ASSERT_TRUE(shows.ok());
  std::string many;
  for (int i = 0; i < 99'000; ++i) many += (i > 0 ? ",\"k" : "\"k") + std::to_string(i) + "\":0";
  const std::string body = R"({"model":"m","messages":[{"role":"user","content":"hi"}],"metadata":{)" + many +
                           R"(},"chat_template_kwargs":{"filter":{"b":1,"a":2,"b":3}}})";
  const auto parsed = parse_request(Endpoint::kChatCompletions, body, {name_, tokenizer_, *shows, options_, config_}, 99);
  ASSERT_TRUE(std::holds_alternative<ApiRequest>(parsed)) << std::get<ApiError>(parsed).message;
  EXPECT_EQ(tokenizer_.decode(std::get<ApiRequest>(parsed).generation.prompt), R"({"b": 3, "a": 2})");
}

// Given every supported field; expects all of them. Content may be a list of texts, and the prompt a list of ids.
TEST_F(Api, ReadsAllFields) {
  json body = chat();
  body.update({{"temperature", 0.5},
               {"top_p", 0.9},
               {"seed", 5},
               {"stop", {"a", "b"}},
               {"max_completion_tokens", 7},
               {"stream", true},
               {"stream_options", {{"include_usage", true}}},
               {"ignore_eos", true},
               {"user", "someone"},
               {"n", 3},
               {"top_k", 40},
               {"min_p", 0.1},
               {"repetition_penalty", 1.1},
               {"presence_penalty", -1},
               {"frequency_penalty", 2},
               {"logit_bias", {{"7", -100}, {"8", 3}}},
               {"logprobs", true},
               {"top_logprobs", 4}});
  body["messages"][0]["content"] = {{{"type", "text"}, {"text", "h"}}, {{"type", "text"}, {"text", "i"}}};
  const ApiRequest request = good(body);
  EXPECT_EQ(request.generation.sampling.temperature, 0.5);
  EXPECT_EQ(request.generation.sampling.top_p, 0.9);
  EXPECT_EQ(request.generation.sampling.seed, 5U);
  EXPECT_EQ(request.generation.sampling.top_k, 40);
  EXPECT_EQ(request.generation.sampling.min_p, 0.1);
  EXPECT_EQ(request.generation.sampling.repetition_penalty, 1.1);
  EXPECT_EQ(request.generation.sampling.presence_penalty, -1);
  EXPECT_EQ(request.generation.sampling.frequency_penalty, 2);
  EXPECT_THAT(request.generation.sampling.logit_bias,
              ::testing::UnorderedElementsAre(::testing::Pair(7, -100), ::testing::Pair(8, 3)));
  EXPECT_EQ(request.generation.sampling.logprobs, 4);
  const auto choices = choices_of(request);
  ASSERT_EQ(choices.size(), 3U);
  EXPECT_EQ(choices[0].sampling.seed, 5U);
  EXPECT_NE(choices[1].sampling.seed, choices[2].sampling.seed);
  EXPECT_EQ(choices[2].prompt, request.generation.prompt);
  EXPECT_THAT(request.generation.stop, ::testing::ElementsAre("a", "b"));
  EXPECT_EQ(request.generation.max_tokens, 7);
  EXPECT_TRUE(request.stream && request.include_usage && request.generation.ignore_eos);
  EXPECT_EQ(request.generation.prompt, good(chat()).generation.prompt);
  body = completion();
  body["prompt"] = {1, 2, 3};
  EXPECT_THAT(good(body, Endpoint::kCompletions).generation.prompt, ::testing::ElementsAre(1, 2, 3));
  body["max_tokens"] = 100000;
  EXPECT_EQ(good(body, Endpoint::kCompletions).generation.max_tokens, 61);
  EXPECT_EQ(good(body, Endpoint::kCompletions).generation.sampling.logprobs, std::nullopt);
  body["logprobs"] = 0;
  EXPECT_EQ(good(body, Endpoint::kCompletions).generation.sampling.logprobs, 0);
  body["top_k"] = -1;
  EXPECT_EQ(good(body, Endpoint::kCompletions).generation.sampling.top_k, 0);
}

// Given a model with its own sampling defaults; expects them where the request gives none.
TEST_F(Api, ModelsDefaultsHold) {
  config_.sampling = {.temperature = 0.6, .top_p = 0.9, .min_p = 0.05, .repetition_penalty = 1.05, .top_k = 20};
  SamplingParams sampling = good(chat()).generation.sampling;
  EXPECT_EQ(sampling.temperature, 0.6);
  EXPECT_EQ(sampling.top_p, 0.9);
  EXPECT_EQ(sampling.min_p, 0.05);
  EXPECT_EQ(sampling.repetition_penalty, 1.05);
  EXPECT_EQ(sampling.top_k, 20);
  json body = chat();
  body.update({{"temperature", 0}, {"top_k", -1}});
  sampling = good(body).generation.sampling;
  EXPECT_EQ(sampling.temperature, 0);
  EXPECT_EQ(sampling.top_k, 0);
  EXPECT_EQ(sampling.top_p, 0.9);
}

// Given each bad field; expects status 400, the field as param, and a message with the rule and the value.
TEST_F(Api, NamesBadFields) {
  const std::vector<std::tuple<json, std::string, std::string>> cases = {
      {{{"temperature", "hot"}}, "temperature", "temperature: must be a number from 0 to 2 (got \"hot\")"},
      {{{"temperature", -1}}, "temperature", "(got -1)"},
      {{{"top_p", 0}}, "top_p", "(got 0)"},
      {{{"max_tokens", 0}}, "max_tokens", "max_tokens: must be a whole number from 1 (got 0)"},
      {{{"max_tokens", 1.5}}, "max_tokens", "(got 1.5)"},
      {{{"stop", ""}}, "stop", "(got \"\")"},
      {{{"stop", 3}}, "stop", "(got 3)"},
      {{{"stream", "yes"}}, "stream", "stream: must be true or false (got \"yes\")"},
      {{{"stream_options", 1}}, "stream_options", "(got 1)"},
      {{{"stream", true}, {"stream_options", 1}}, "stream_options", "must be an object (got 1)"},
      {{{"stream_options", {{"include_usage", true}}}}, "stream_options", "must be absent without stream"},
      {{{"seed", "x"}}, "seed", "(got \"x\")"},
      {{{"n", 0}}, "n", "n: must be a whole number from 1 to 24 (got 0)"},
      {{{"n", 25}}, "n", "(got 25)"},
      {{{"n", 1.5}}, "n", "(got 1.5)"},
      {{{"best_of", 2}}, "best_of", "best_of: must be 1"},
      {{{"logprobs", 1}}, "logprobs", "logprobs: must be true or false (got 1)"},
      {{{"top_logprobs", 2}}, "top_logprobs", "top_logprobs: must be 0 if logprobs is not true (got 2)"},
      {{{"logprobs", true}, {"top_logprobs", 21}}, "top_logprobs", "a whole number from 0 to 20"},
      {{{"top_k", -2}}, "top_k", "top_k: must be a whole number from -1"},
      {{{"top_k", 1e300}}, "top_k", "(got 1e+300)"},
      {{{"min_p", 1.1}}, "min_p", "min_p: must be a number from 0 to 1 (got 1.1)"},
      {{{"repetition_penalty", 0}}, "repetition_penalty", "must be a number from 0.01 to 100 (got 0)"},
      {{{"presence_penalty", 3}}, "presence_penalty", "must be a number from -2 to 2 (got 3)"},
      {{{"frequency_penalty", "x"}}, "frequency_penalty", "(got \"x\")"},
      {{{"logit_bias", {1}}}, "logit_bias", "(got [1])"},
      {{{"logit_bias", {{"300", 1}}}}, "logit_bias", "must be token ids from 0 to 299 (got \"300\")"},
      {{{"logit_bias", {{"07", 1}}}}, "logit_bias", "must be token ids from 0 to 299 (got \"07\")"},
      {{{"chat_template_kwargs", {1}}},
       "chat_template_kwargs",
       "must be an object of at most 64 of the template's variables (got [1])"},
      {{{"logit_bias", {{"7", 101}}}}, "logit_bias.7", "logit_bias.7: must be a number from -100 to 100 (got 101)"},
      {{{"tools", {{{"type", "function"}}}}}, "tools", "tools: must be [] or absent on this worker"},
      {{{"response_format", {{"type", "json_object"}}}},
       "response_format",
       "response_format: must be {\"type\":\"text\"} on this worker"},
      {{{"messages", json::array()}}, "messages", "messages: must be a list of at least one message (got [])"},
      {{{"messages", {{{"role", "wizard"}, {"content", "x"}}}}},
       "messages[0].role",
       "must be system, developer, user or assistant (got \"wizard\")"},
      {{{"messages", {{{"role", "user"}}}}}, "messages[0].content", "(got nothing)"},
      {{{"messages", {{{"role", "user"}, {"content", 5}}}}}, "messages[0].content", "(got 5)"},
      {{{"model", nullptr}}, "model", "model: must be 'm' (got nothing)"},
      {{{"model", 3}}, "model", "(got 3)"},
  };
  for (const auto& [change, param, message] : cases) {
    json body = chat();
    body.update(change);
    const ApiError error = bad(body);
    EXPECT_EQ(error.status, 400) << change;
    EXPECT_EQ(error.param, param) << change;
    EXPECT_THAT(error.message, HasSubstr(message));
  }
  json body = completion();
  body.erase("prompt");
  EXPECT_THAT(bad(body, Endpoint::kCompletions).message, HasSubstr("(got nothing)"));
  body["prompt"] = {"a", 1};
  EXPECT_THAT(bad(body, Endpoint::kCompletions).message, HasSubstr("(got [\"a\",1])"));
}

// Given fields that would change the answer and that this worker does not support, vLLM's and an invented one among them;
// expects each to be refused by name. With the one value that matches what the worker does, or null, and for fields without
// effect, expects no refusal.
TEST_F(Api, RefusesUnsupportedFieldsByName) {
  const json asks[] = {{{"guided_json", {{"type", "object"}}}},
                       {{"guided_regex", "a+"}},
                       {{"structured_outputs", {{"regex", "a"}}}},
                       {{"min_tokens", 3}},
                       {{"stop_token_ids", {1}}},
                       {{"bad_words", {"x"}}},
                       {{"use_beam_search", true}},
                       {{"skip_special_tokens", false}},
                       {{"reasoning_effort", "low"}},
                       {{"prompt_logprobs", 1}},
                       {{"truncate_prompt_tokens", 5}},
                       {{"frobnicate", 1}},
                       {{"prompt", "in a chat"}},
                       {{"temprature", 0}}};
  for (const json& ask : asks) {
    json body = chat();
    body.update(ask);
    const ApiError error = bad(body);
    EXPECT_EQ(error.status, 400) << ask;
    EXPECT_EQ(error.param, ask.begin().key());
    EXPECT_EQ(error.code, "unsupported_parameter");
    EXPECT_THAT(error.message, HasSubstr(ask.begin().key() + ": must be "));
  }
  json body = chat();
  body.update({{"guided_json", nullptr},
               {"min_tokens", 0},
               {"use_beam_search", false},
               {"tools", json::array()},
               {"user", "u"},
               {"metadata", {{"a", "b"}}},
               {"store", false},
               {"service_tier", "auto"},
               {"priority", 3},
               {"parallel_tool_calls", true},
               {"add_special_tokens", false}});
  EXPECT_TRUE(std::holds_alternative<ApiRequest>(parse_text(body.dump(), Endpoint::kChatCompletions)));
  json words = completion();
  words["top_logprobs"] = 2;
  EXPECT_EQ(bad(words, Endpoint::kCompletions).param, "top_logprobs");
  words.erase("top_logprobs");
  words[std::string(1'000'000, 'x')] = 1;
  EXPECT_EQ(bad(words, Endpoint::kCompletions).param.size(), 67U);
}

// Given bodies nested a million deep, which would overflow the stack when copied or printed; expects refusals.
TEST_F(Api, DeepNestingIsRefused) {
  const std::string deep = std::string(1'000'000, '[') + std::string(1'000'000, ']');
  for (const std::string& body : {deep, R"({"model":"m","n":)" + deep + "}", R"({"model":"m","stop":)" + deep + "}"}) {
    const auto parsed = parse_text(body, Endpoint::kCompletions);
    ASSERT_TRUE(std::holds_alternative<ApiError>(parsed));
    EXPECT_THAT(std::get<ApiError>(parsed).message, HasSubstr("must have at most 64 levels of nesting"));
  }
}

// Given bodies of almost a hundred thousand small values; expects them to be parsed. Given more, each of which would cost a
// hundred bytes; expects a refusal before any is built.
TEST_F(Api, ManyValuesAreRefusedUnbuilt) {
  for (const std::string value : {"{}", "[]"}) {
    for (const int count : {99'000, 1'000'000}) {
      std::string many = "[" + value;
      for (int i = 1; i < count; ++i) many += "," + value;
      const auto parsed = parse_text(R"({"model":"m","prompt":"hi","metadata":)" + many + "]}", Endpoint::kCompletions);
      if (count < 100'000) {
        EXPECT_TRUE(std::holds_alternative<ApiRequest>(parsed)) << std::get<ApiError>(parsed).message;
      } else {
        ASSERT_TRUE(std::holds_alternative<ApiError>(parsed));
        EXPECT_EQ(std::get<ApiError>(parsed).message, "the body: must have at most 100000 objects, lists and fields");
      }
    }
  }
}

// Given megabytes where something short is allowed, or of invalid JSON; expects a short refusal.
TEST_F(Api, RefusalsStayShort) {
  const std::string long_text(1'000'000, '1');
  for (const std::string& body :
       {R"({"model":"m","prompt":"hi","n":")" + long_text + "\"}", R"({"model":"m","prompt":"hi","n":)" + long_text + "}",
        R"({"model":"m","prompt":"hi","n":[)" + long_text.substr(1) + R"(")" + long_text + "\"]}", "{" + long_text,
        R"({"model":"m","prompt":"hi","stop":{"a":[1,2,")" + long_text + R"("]}})"}) {
    const auto parsed = parse_text(body, Endpoint::kCompletions);
    ASSERT_TRUE(std::holds_alternative<ApiError>(parsed));
    EXPECT_LT(std::get<ApiError>(parsed).message.size(), 400U);
  }
}

// Given a request for more log probabilities than any gateway would forward; expects a refusal with the limit. A stream of
// them, and an answer that may end before its context does, are accepted.
TEST_F(Api, AnswersThatNobodyPassesOnAreRefused) {
  EngineOptions options;
  options.max_context_tokens = 4096;
  options.max_running = 128;
  const ApiModel model{name_, tokenizer_, chat_, options, config_};
  json body = chat();
  body.update(json{{"n", 128}, {"logprobs", true}, {"top_logprobs", 20}, {"max_tokens", 4000}});
  const auto refused = parse_request(Endpoint::kChatCompletions, body.dump(), model, 1);
  ASSERT_TRUE(std::holds_alternative<ApiError>(refused));
  EXPECT_EQ(std::get<ApiError>(refused).message,
            "top_logprobs: must be few enough for an answer of at most 67108864 bytes, or a stream (got 20 for each of 128 "
            "choices of 4000 tokens)");
  for (const json& change :
       {json{{"stream", true}}, json{{"n", 16}}, json{{"max_tokens", nullptr}}, json{{"top_logprobs", 0}}}) {
    json other = body;
    other.update(change);
    const auto taken = parse_request(Endpoint::kChatCompletions, other.dump(), model, 1);
    EXPECT_TRUE(std::holds_alternative<ApiRequest>(taken)) << std::get<ApiError>(taken).message;
  }
}

// Given another model's name; expects 404 with OpenAI's code.
TEST_F(Api, UnknownModelIs404) {
  json body = chat();
  body["model"] = "gpt-9";
  const ApiError error = bad(body);
  EXPECT_EQ(error.status, 404);
  EXPECT_EQ(error.code, "model_not_found");
  EXPECT_THAT(error.message, HasSubstr("must be 'm', which this worker serves (got \"gpt-9\")"));
}

// Given a body that is not JSON, not an object, or not UTF-8; expects 400 and the reason.
TEST_F(Api, NotJson) {
  for (const char* text : {"", "{", "[1]", "\"x\"", "{\"model\":\"\xFF\"}"}) {
    auto parsed = parse_text(text, Endpoint::kChatCompletions);
    ASSERT_TRUE(std::holds_alternative<ApiError>(parsed)) << text;
    EXPECT_EQ(std::get<ApiError>(parsed).status, 400);
  }
}

// Given a prompt beyond the context; expects a message with both lengths.
TEST_F(Api, PromptBeyondContextNamesBothLengths) {
  json body = completion();
  body["prompt"] = json::array();
  for (int i = 0; i < 70; ++i) body["prompt"].push_back(1);
  const ApiError error = bad(body, Endpoint::kCompletions);
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_THAT(error.message, HasSubstr("70 tokens"));
  EXPECT_THAT(error.message, HasSubstr("64 tokens"));
}

// Given a text that must have more tokens than the context; expects it to be refused without tokenizing. One that may fit is
// not refused.
TEST_F(Api, RefusesTextBeyondContextWithoutTokenizing) {
  EXPECT_EQ(tokenizer_.least_tokens(0), 0);
  std::size_t longest = 1;
  while (tokenizer_.least_tokens(longest) < 1) ++longest;
  std::size_t most = 0;  // most bytes that one token stands for
  for (std::int32_t id = 0; id < tokenizer_.size(); ++id)
    most = std::max({most, tokenizer_.token_bytes(id).size(), tokenizer_.special_text(id).size()});
  EXPECT_EQ(longest, most);
  json body = completion();
  body["prompt"] = std::string(64 * longest, 'a');
  const ApiError error = bad(body, Endpoint::kCompletions);
  EXPECT_EQ(error.code, "context_length_exceeded");
  EXPECT_THAT(error.message, HasSubstr("the prompt has at least 64 tokens, but the context holds 64 tokens"));
}

// Given events; expects chunks and bodies in OpenAI's shapes. The first chat chunk names the role, the last one the finish
// reason.
TEST_F(Api, AnswersHaveOpenAisShapes) {
  TokenEvent event;
  event.text = "é\"";
  event.has_token = true;
  event.prompt_tokens = 3;
  event.generated_tokens = 1;
  const ResponseFormat format(Endpoint::kChatCompletions, "id-1", "m", 12);
  std::string chunk = format.chunk(0, event);
  ASSERT_EQ(chunk.substr(0, 6), "data: ");
  ASSERT_EQ(chunk.substr(chunk.size() - 2), "\n\n");
  json body = json::parse(chunk.substr(6));
  EXPECT_EQ(body["object"], "chat.completion.chunk");
  EXPECT_EQ(body["choices"][0]["delta"], (json{{"role", "assistant"}, {"content", "é\""}}));
  EXPECT_TRUE(body["choices"][0]["finish_reason"].is_null());

  event.generated_tokens = 2;
  event.finish = FinishReason::kLength;
  body = json::parse(format.chunk(0, event).substr(6));
  EXPECT_EQ(body["choices"][0]["delta"], (json{{"content", "é\""}}));
  EXPECT_EQ(body["choices"][0]["finish_reason"], "length");
  EXPECT_FALSE(body.contains("usage"));
  const ResponseFormat with_usage(Endpoint::kChatCompletions, "id-1", "m", 12, true);
  EXPECT_TRUE(json::parse(with_usage.chunk(0, event).substr(6)).at("usage").is_null());
  body = json::parse(format.usage_chunk(std::vector{Choice{"all", {}, event}}).substr(6));
  EXPECT_TRUE(body["choices"].empty());
  EXPECT_EQ(body["usage"]["total_tokens"], 5);

  body = json::parse(format.whole(std::vector{Choice{"all", {}, event}}));
  EXPECT_EQ(body["choices"][0]["message"]["content"], "all");
  EXPECT_EQ(body["usage"]["completion_tokens"], 2);
  body = json::parse(ResponseFormat(Endpoint::kCompletions, "id-2", "m", 12).whole(std::vector{Choice{"all", {}, event}}));
  EXPECT_EQ(body["object"], "text_completion");
  EXPECT_EQ(body["choices"][0]["text"], "all");

  EXPECT_TRUE(body["choices"][0]["logprobs"].is_null());

  body = json::parse(error_body({400, "why", "invalid_request_error", "stop"}));
  EXPECT_EQ(body["error"]["param"], "stop");
  EXPECT_TRUE(body["error"]["code"].is_null());
}

// Given several choices; expects each to have its index, and the usage to count the prompt once.
TEST_F(Api, ChoicesHaveIndices) {
  TokenEvent last;
  last.prompt_tokens = 3;
  last.generated_tokens = 2;
  last.finish = FinishReason::kStop;
  TokenEvent longer = last;
  longer.generated_tokens = 5;
  longer.finish = FinishReason::kLength;
  const std::vector<Choice> choices{{"one", {}, last}, {"two", {}, longer}};
  const ResponseFormat format(Endpoint::kCompletions, "id-1", "m", 12, false, nullptr, 2);
  const json body = json::parse(format.whole(choices));
  EXPECT_EQ(body["choices"][0]["index"], 0);
  EXPECT_EQ(body["choices"][1]["index"], 1);
  EXPECT_EQ(body["choices"][1]["text"], "two");
  EXPECT_EQ(body["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(body["usage"], (json{{"prompt_tokens", 3},
                                 {"completion_tokens", 7},
                                 {"total_tokens", 10},
                                 {"prompt_tokens_details", {{"cached_tokens", 0}}}}));
  EXPECT_EQ(json::parse(format.chunk(1, longer).substr(6))["choices"][0]["index"], 1);
  EXPECT_EQ(json::parse(format.usage_chunk(choices).substr(6))["usage"]["completion_tokens"], 7);
}

// Given a list of prompts, as texts or token ids, with two choices each; expects each prompt's choices in order, with room for
// an answer of its own, and counted once. More choices than the worker has places are refused.
TEST_F(Api, AcceptsSeveralPrompts) {
  json body = completion();
  body["prompt"] = {"hi", {1, 2, 3}};
  body["n"] = 2;
  body["seed"] = 5;
  body["max_tokens"] = 1000;
  const ApiRequest request = good(body, Endpoint::kCompletions);
  EXPECT_EQ(request.choices, 4);
  const auto choices = choices_of(request);
  ASSERT_EQ(choices.size(), 4U);
  EXPECT_EQ(choices[0].prompt, choices[1].prompt);
  EXPECT_EQ(choices[2].prompt, (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(choices[3].prompt, choices[2].prompt);
  EXPECT_EQ(choices[2].max_tokens, 61);
  EXPECT_EQ(choices[0].max_tokens, 64 - static_cast<std::int64_t>(choices[0].prompt.size()));
  EXPECT_EQ(choices[0].sampling.seed, 5U);
  EXPECT_EQ(choices[1].sampling.seed, 6U);
  EXPECT_EQ(choices[2].sampling.seed, 5U);

  TokenEvent last;
  last.generated_tokens = 2;
  last.finish = FinishReason::kStop;
  std::vector<Choice> answers;
  for (const std::int64_t prompt : {7, 7, 3, 3}) {
    last.prompt_tokens = prompt;
    answers.push_back({"x", {}, last});
  }
  const ResponseFormat format(Endpoint::kCompletions, "id", "m", 1, false, nullptr, 2);
  const json usage = json::parse(format.whole(answers))["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 10);
  EXPECT_EQ(usage["completion_tokens"], 8);

  body["prompt"] = json::array();
  for (int i = 0; i < 13; ++i) body["prompt"].push_back("hi");
  EXPECT_THAT(bad(body, Endpoint::kCompletions).message,
              HasSubstr("prompt: must be at most 12 prompts with this n (got 13 prompts)"));
  body["prompt"] = {"hi", 3};
  EXPECT_THAT(bad(body, Endpoint::kCompletions).message, HasSubstr("must be a string, a list of token ids, or a list of such"));
  body["prompt"] = {"hi", json::array()};
  EXPECT_EQ(bad(body, Endpoint::kCompletions).param, "prompt");
}

// Given log probabilities; expects chats to list each token with its bytes, and completions to use lists with offsets in
// characters, with U+FFFD for a part of a character.
TEST_F(Api, LogprobsHaveOpenAisShapes) {
  const TokenLogprobs first{{"\xC3\xA9t", -0.5}, {{"\xC3\xA9t", -0.5}, {"x", -1.5}}};
  const TokenLogprobs second{{"\xE2\x82", -2}, {{"y", -0.25}}};
  Choice choice{"\xC3\xA9t", {first, second}, {}};
  choice.last.finish = FinishReason::kStop;
  const ResponseFormat chat(Endpoint::kChatCompletions, "id", "m", 1), completion(Endpoint::kCompletions, "id", "m", 1);
  json body = json::parse(chat.whole(std::span(&choice, 1)));
  const json& content = body["choices"][0]["logprobs"]["content"];
  ASSERT_EQ(content.size(), 2U);
  EXPECT_EQ(content[0]["token"], "\xC3\xA9t");
  EXPECT_EQ(content[0]["logprob"], -0.5);
  EXPECT_EQ(content[0]["bytes"], (json{0xC3, 0xA9, 't'}));
  EXPECT_EQ(content[0]["top_logprobs"][1], (json{{"token", "x"}, {"logprob", -1.5}, {"bytes", {'x'}}}));
  EXPECT_EQ(content[1]["token"], "\xEF\xBF\xBD");

  body = json::parse(completion.whole(std::span(&choice, 1)));
  const json& lists = body["choices"][0]["logprobs"];
  EXPECT_EQ(lists["tokens"], (json{"\xC3\xA9t", "\xEF\xBF\xBD"}));
  EXPECT_EQ(lists["token_logprobs"], (json{-0.5, -2}));
  EXPECT_EQ(lists["text_offset"], (json{0, 2}));
  EXPECT_EQ(lists["top_logprobs"][1], (json{{"y", -0.25}, {"bytes:\\xe2\\x82", -2}}));

  TokenEvent event;
  event.has_token = true;
  event.logprobs = second;
  EXPECT_EQ(characters_of(first.token), 2);
  body = json::parse(completion.chunk(0, event, 2).substr(6));
  EXPECT_EQ(body["choices"][0]["logprobs"]["text_offset"], (json{2}));
}

// Given special tokens among log probabilities; expects the text of each as its name, without an effect on offsets.
TEST_F(Api, LogprobsNameSpecialTokens) {
  const auto special = [](std::int32_t id) { return std::string_view(id == 7 ? "<|end|>" : id == 8 ? "<|eot|>" : ""); };
  const TokenLogprobs first{{"", -0.5, 7}, {{"", -0.5, 7}, {"", -1.5, 8}}}, second{{"x", -1, 1}, {}};
  Choice choice{"x", {first, second}, {}};
  choice.last.finish = FinishReason::kStop;
  json body =
      json::parse(ResponseFormat(Endpoint::kChatCompletions, "id", "m", 1, false, special).whole(std::span(&choice, 1)));
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"][0]["token"], "<|end|>");
  EXPECT_EQ(body["choices"][0]["logprobs"]["content"][0]["bytes"].size(), 7U);
  body = json::parse(ResponseFormat(Endpoint::kCompletions, "id", "m", 1, false, special).whole(std::span(&choice, 1)));
  const json& lists = body["choices"][0]["logprobs"];
  EXPECT_EQ(lists["tokens"], (json{"<|end|>", "x"}));
  EXPECT_EQ(lists["text_offset"], (json{0, 0}));
  EXPECT_EQ(lists["top_logprobs"][0], (json{{"<|end|>", -0.5}, {"<|eot|>", -1.5}}));
}

// Given texts and ids; expects /tokenize and /detokenize to be inverse to each other, and refusals to name the field.
TEST_F(Api, TokenizesAndBack) {
  const ApiModel model{name_, tokenizer_, chat_, options_, config_};
  const auto done = [](const std::variant<std::string, ApiError>& answer) {
    if (const auto* error = std::get_if<ApiError>(&answer)) ADD_FAILURE() << error->message;
    return json::parse(std::get<std::string>(answer));
  };
  const auto refused = [](const std::variant<std::string, ApiError>& answer) {
    EXPECT_TRUE(std::holds_alternative<ApiError>(answer));
    return std::get<ApiError>(answer).message;
  };
  const json plain = done(tokenize_body(R"({"prompt":"hi there","add_special_tokens":false})", model));
  EXPECT_EQ(plain["count"], plain["tokens"].size());
  EXPECT_EQ(plain["max_model_len"], 64);
  const json with = done(tokenize_body(R"({"model":"m","prompt":"hi there"})", model));
  EXPECT_EQ(with["count"], plain["count"].get<int>() + static_cast<int>(tokenizer_.prefix().size()));
  EXPECT_EQ(done(detokenize_body(json{{"tokens", plain["tokens"]}}.dump(), model))["prompt"], "hi there");
  const std::string begin(tokenizer_.special_text(tokenizer_.prefix().at(0)));
  EXPECT_FALSE(begin.empty());
  EXPECT_EQ(done(detokenize_body(json{{"tokens", with["tokens"]}}.dump(), model))["prompt"], begin + "hi there");
  EXPECT_EQ(done(tokenize_body(chat().dump(), model))["tokens"], json(good(chat()).generation.prompt));
  EXPECT_THAT(refused(tokenize_body("{}", model)), HasSubstr("prompt: must be given, or messages, but not both (got neither)"));
  EXPECT_THAT(refused(tokenize_body(R"({"prompt":["a"]})", model)), HasSubstr("prompt: must be a string (got [\"a\"])"));
  EXPECT_THAT(refused(tokenize_body(R"({"model":"x","prompt":"a"})", model)),
              HasSubstr("must be 'm', which this worker serves"));
  EXPECT_THAT(refused(detokenize_body("{}", model)), HasSubstr("(got nothing)"));
  EXPECT_THAT(refused(detokenize_body(R"({"tokens":[300]})", model)),
              HasSubstr("must be a list of token ids from 0 to 299 (got 300)"));
}

}  // namespace
}  // namespace windlass::worker
