// Validates requests field by field. Messages name the field, the rule and the value.
#include "worker/serve/openai_api.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string_view>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "metrics/net/http_limits.h"
#include "planner/base/shown_json.h"
#include "worker/model/json_input.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;
constexpr int kMaxChoices = 128;
constexpr int kMaxLogprobs = 20;
constexpr std::size_t kMaxBiases = 1024;
constexpr std::size_t kMaxTemplateVariables = 64;
constexpr int kLeastChatLogprobBytes = 42;  // {"token":"a","logprob":-1.0,"bytes":[97]},
constexpr int kLeastLogprobBytes = 9;       // "a":-1.0,
constexpr std::size_t kMaxFieldName = 64;   // longest field name shown in an error

// Thrown only inside this file; parse_request converts it to a value.
[[noreturn]] void refuse(const std::string& param, const std::string& found, const std::string& allowed) {
  throw ApiError{400, fmt::format("{}: must be {} (got {})", param, allowed, found), "invalid_request_error", param, ""};
}

bool has(const json& body, const char* field) { return body.contains(field) && !body.at(field).is_null(); }

double number(const json& body, const char* field, double fallback, double low, double high) {
  if (!has(body, field)) return fallback;
  const json& value = body.at(field);
  if (!value.is_number() || !(value.get<double>() >= low && value.get<double>() <= high)) {
    refuse(field, shown(value), fmt::format("a number from {} to {}", low, high));
  }
  return value.get<double>();
}

std::int64_t whole_number(const json& body, const char* field, std::int64_t fallback, std::int64_t low, std::int64_t high) {
  if (!has(body, field)) return fallback;
  const json& value = body.at(field);
  // As a double first: a number outside 64 bits is also out of bounds.
  const bool good = value.is_number_integer() && value.get<double>() >= static_cast<double>(low) &&
                    value.get<double>() <= static_cast<double>(high);
  if (!good) refuse(field, shown(value), fmt::format("a whole number from {} to {}", low, high));
  return value.get<std::int64_t>();
}

bool boolean(const json& body, const char* field, bool fallback) {
  if (!has(body, field)) return fallback;
  if (!body.at(field).is_boolean()) refuse(field, shown(body.at(field)), "true or false");
  return body.at(field).get<bool>();
}

// Fields that this worker reads.
constexpr std::string_view kRead[] = {
    "frequency_penalty",  "ignore_eos",      "logit_bias", "logprobs", "max_completion_tokens",
    "max_tokens",         "min_p",           "model",      "n",        "presence_penalty",
    "repetition_penalty", "response_format", "seed",       "stop",     "stream",
    "stream_options",     "temperature",     "top_k",      "top_p"};
constexpr std::string_view kReadInChats[] = {"chat_template_kwargs", "messages", "top_logprobs"};
// Fields of OpenAI and vLLM that cannot change an answer: user data, storage, priority, caching.
constexpr std::string_view kWithoutEffect[] = {"cache_salt",
                                               "metadata",
                                               "parallel_tool_calls",
                                               "priority",
                                               "prompt_cache_key",
                                               "prompt_cache_retention",
                                               "request_id",
                                               "safety_identifier",
                                               "service_tier",
                                               "session_id",
                                               "store",
                                               "user"};

// Rejects fields that cannot be honoured, so that no answer looks as if they had been. null counts as absent.
void refuse_unsupported(Endpoint endpoint, const json& body) {
  const bool chat = endpoint == Endpoint::kChatCompletions;
  // Fields accepted only with the one value that matches what the worker does anyway.
  const std::map<std::string_view, json> neutral = {{"add_generation_prompt", true},
                                                    {"add_special_tokens", !chat},
                                                    {"bad_words", json::array()},
                                                    {"best_of", has(body, "n") ? body.at("n") : json(1)},
                                                    {"continue_final_message", false},
                                                    {"echo", false},
                                                    {"function_call", "none"},
                                                    {"functions", json::array()},
                                                    {"include_reasoning", true},
                                                    {"include_stop_str_in_output", false},
                                                    {"length_penalty", 1.0},
                                                    {"min_tokens", 0},
                                                    {"modalities", json::array({"text"})},
                                                    {"return_token_ids", false},
                                                    {"return_tokens_as_token_ids", false},
                                                    {"skip_special_tokens", true},
                                                    {"spaces_between_special_tokens", true},
                                                    {"stop_token_ids", json::array()},
                                                    {"suffix", ""},
                                                    {"tool_choice", "none"},
                                                    {"tools", json::array()},
                                                    {"use_beam_search", false}};
  const auto among = [](const auto& names, std::string_view name) {
    return std::find(std::begin(names), std::end(names), name) != std::end(names);
  };
  for (const auto& [name, value] : body.items()) {
    if (value.is_null() || among(kRead, name) || among(kWithoutEffect, name)) continue;
    if (chat ? among(kReadInChats, name) : name == "prompt") continue;
    const auto supported = neutral.find(name);
    if (supported != neutral.end() && value == supported->second) continue;
    const std::string allowed =
        supported != neutral.end() ? fmt::format("{} or absent", supported->second.dump()) : "its absence";
    const std::string field = name.size() <= kMaxFieldName ? name : name.substr(0, kMaxFieldName) + "...";
    throw ApiError{400, fmt::format("{}: must be {} on this worker (got {})", field, allowed, shown(value)),
                   "invalid_request_error", field, "unsupported_parameter"};
  }
  if (has(body, "response_format") && body.at("response_format") != json{{"type", "text"}}) {
    throw ApiError{400,
                   fmt::format("response_format: must be {{\"type\":\"text\"}} on this worker (got {})",
                               shown(body.at("response_format"))),
                   "invalid_request_error", "response_format", "unsupported_parameter"};
  }
}

// {"token id": bias from -100 to 100}
std::vector<std::pair<std::int32_t, float>> biases_of(const json& body, std::int64_t vocab_size) {
  if (!has(body, "logit_bias")) return {};
  const json& map = body.at("logit_bias");
  if (!map.is_object() || map.size() > kMaxBiases) {
    refuse("logit_bias", shown(map), fmt::format("an object of at most {} token ids and their biases", kMaxBiases));
  }
  std::vector<std::pair<std::int32_t, float>> biases;
  for (const auto& [key, value] : map.items()) {
    std::int32_t id = -1;
    const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
    const bool whole = error == std::errc() && end == key.data() + key.size() && key == std::to_string(id);  // rejects "07"
    if (!whole || id < 0 || id >= vocab_size) {
      refuse("logit_bias", shown(json(key)), fmt::format("token ids from 0 to {}", vocab_size - 1));
    }
    if (!value.is_number() || !(std::abs(value.get<double>()) <= 100)) {
      refuse("logit_bias." + key, shown(value), "a number from -100 to 100");
    }
    biases.emplace_back(id, value.get<float>());
  }
  return biases;
}

// Completions give a number of tokens; chats give a flag and a separate number.
std::optional<int> logprobs_of(Endpoint endpoint, const json& body) {
  if (endpoint == Endpoint::kCompletions) {
    if (!has(body, "logprobs")) return std::nullopt;
    return static_cast<int>(whole_number(body, "logprobs", 0, 0, kMaxLogprobs));
  }
  const bool wanted = boolean(body, "logprobs", false);
  const auto top = static_cast<int>(whole_number(body, "top_logprobs", 0, 0, kMaxLogprobs));
  if (!wanted && top > 0) refuse("top_logprobs", std::to_string(top), "0 if logprobs is not true");
  return wanted ? std::optional(top) : std::nullopt;
}

SamplingParams sampling_of(Endpoint endpoint, const json& body, const ApiModel& model, std::uint64_t seed) {
  SamplingParams sampling;
  const SamplingDefaults& defaults = model.config.sampling;
  sampling.temperature = number(body, "temperature", defaults.temperature.value_or(1), 0, 2);
  sampling.top_p = number(body, "top_p", defaults.top_p.value_or(1), 0, 1);
  if (sampling.top_p <= 0) refuse("top_p", shown(body.at("top_p")), "a number above 0 and at most 1");
  // -1 (vLLM) means all, like 0.
  sampling.top_k = std::max<std::int64_t>(
      0, whole_number(body, "top_k", defaults.top_k.value_or(0), -1, std::numeric_limits<std::int32_t>::max()));
  sampling.min_p = number(body, "min_p", defaults.min_p.value_or(0), 0, 1);
  sampling.frequency_penalty = number(body, "frequency_penalty", 0, -2, 2);
  sampling.presence_penalty = number(body, "presence_penalty", 0, -2, 2);
  sampling.repetition_penalty = number(body, "repetition_penalty", defaults.repetition_penalty.value_or(1), 0.01, 100);
  sampling.logit_bias = biases_of(body, model.config.vocab_size);
  sampling.logprobs = logprobs_of(endpoint, body);
  sampling.seed = seed;
  if (has(body, "seed")) {
    if (!body.at("seed").is_number_integer()) refuse("seed", shown(body.at("seed")), "a whole number");
    sampling.seed = static_cast<std::uint64_t>(body.at("seed").get<std::int64_t>());
  }
  return sampling;
}

std::vector<std::string> stops_of(const json& body) {
  if (!has(body, "stop")) return {};
  const json& value = body.at("stop");
  const json list = value.is_array() ? value : json::array({value});
  if (list.size() > kMaxStops) refuse("stop", fmt::format("{}", list.size()), fmt::format("at most {} strings", kMaxStops));
  std::vector<std::string> stops;
  for (const json& stop : list) {
    if (!stop.is_string() || stop.get_ref<const std::string&>().empty() ||
        stop.get_ref<const std::string&>().size() > kMaxStopBytes) {
      refuse("stop", shown(value), fmt::format("a string or a list of strings of 1 to {} bytes", kMaxStopBytes));
    }
    stops.push_back(stop.get<std::string>());
  }
  return stops;
}

std::string content_of(const json& message, const std::string& where) {
  const std::string allowed = "a string or a list of {\"type\":\"text\",\"text\":...}";
  if (!message.contains("content") || message.at("content").is_null()) {
    if (message.value("role", "") == "assistant") return "";
    refuse(where + ".content", "nothing", allowed);
  }
  const json& content = message.at("content");
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) refuse(where + ".content", shown(content), allowed);
  std::string text;
  for (const json& part : content) {
    if (!part.is_object() || !part.contains("text") || !part.at("text").is_string() ||
        (part.contains("type") && part.at("type") != "text")) {
      refuse(where + ".content", shown(part), allowed);
    }
    text += part.at("text").get<std::string>();
  }
  return text;
}

std::vector<ChatMessage> messages_of(const json& body) {
  if (!has(body, "messages")) refuse("messages", "nothing", "a list of at least one message");
  const json& list = body.at("messages");
  if (!list.is_array() || list.empty()) refuse("messages", shown(list), "a list of at least one message");
  std::vector<ChatMessage> messages;
  for (std::size_t i = 0; i < list.size(); ++i) {
    const std::string where = fmt::format("messages[{}]", i);
    if (!list[i].is_object()) refuse(where, shown(list[i]), "an object with role and content");
    const json role = list[i].value("role", json());
    if (role != "system" && role != "developer" && role != "user" && role != "assistant") {
      refuse(where + ".role", role.is_null() ? "nothing" : shown(role), "system, developer, user or assistant");
    }
    messages.push_back({role == "developer" ? "system" : role.get<std::string>(), content_of(list[i], where)});
  }
  return messages;
}

// Renders the messages with the model's template. chat_template_kwargs (vLLM's field for enable_thinking and the like) become
// its variables, with keys in the order of the text.
std::vector<std::int32_t> chat_prompt(const json& body, std::string_view text, const ApiModel& model) {
  ordered_json variables;
  if (has(body, "chat_template_kwargs")) {
    const json& given = body.at("chat_template_kwargs");
    if (!given.is_object() || given.size() > kMaxTemplateVariables) {
      refuse("chat_template_kwargs", shown(given),
             fmt::format("an object of at most {} of the template's variables", kMaxTemplateVariables));
    }
    const auto ordered = parse_json<OrderedInput>(text, kMaxRequestParts);  // parsed again: json sorts its keys
    variables = ordered->at("chat_template_kwargs");
  }
  auto ids = model.chat.render(messages_of(body), variables, model.unix_s);
  if (!ids.ok()) {
    const char* param = variables.empty() ? "messages" : "chat_template_kwargs";
    throw ApiError{400,
                   fmt::format("{}: the model's chat template rejects {}: {}", param,
                               variables.empty() ? "them" : "them or the messages", ids.error().message),
                   "invalid_request_error", param, ""};
  }
  return std::move(ids).value();
}

constexpr const char* kPromptAllowed = "a string, a list of token ids, or a list of such prompts";

// Rejects prompts that are certainly too long before spending seconds on tokenizing them.
void check_least(std::string_view text, const ApiModel& model) {
  const std::int64_t least = model.tokenizer.least_tokens(text.size());
  if (least < model.engine.max_context_tokens) return;
  throw ApiError{400,
                 fmt::format("the prompt has at least {} tokens, but the context holds {} tokens and the answer needs at least "
                             "one of them",
                             least, model.engine.max_context_tokens),
                 "invalid_request_error", "prompt", "context_length_exceeded"};
}

std::vector<std::int32_t> prompt_of(const json& one, const json& all, const ApiModel& model) {
  std::vector<std::int32_t> ids;
  if (one.is_string()) {
    check_least(one.get_ref<const std::string&>(), model);
    ids = model.tokenizer.prefix();
    const auto more = model.tokenizer.encode(one.get_ref<const std::string&>(), SpecialText::kParse);
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  }
  if (!one.is_array() || one.empty()) refuse("prompt", shown(all), kPromptAllowed);
  for (const json& id : one) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > INT32_MAX)
      refuse("prompt", shown(all), kPromptAllowed);
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

// Reads at most `most` prompts.
std::vector<std::vector<std::int32_t>> prompts_of(const json& body, const ApiModel& model, std::int64_t most) {
  if (!has(body, "prompt")) refuse("prompt", "nothing", kPromptAllowed);
  const json& prompt = body.at("prompt");
  const bool list = prompt.is_array() && !prompt.empty() && !prompt[0].is_number();
  if (!list) return {prompt_of(prompt, prompt, model)};
  if (static_cast<std::int64_t>(prompt.size()) > most) {
    refuse("prompt", fmt::format("{} prompts", prompt.size()), fmt::format("at most {} prompts with this n", most));
  }
  std::vector<std::vector<std::int32_t>> prompts;
  for (const json& one : prompt) prompts.push_back(prompt_of(one, prompt, model));
  return prompts;
}

std::int64_t max_tokens_of(Endpoint endpoint, const json& body, std::int64_t room) {
  // OpenAI's default is 16 for completions and "as many as fit" for chats. An answer that does not fit ends with finish_reason
  // "length".
  for (const char* field : {"max_completion_tokens", "max_tokens"}) {
    if (!has(body, field)) continue;
    const json& value = body.at(field);
    if (!value.is_number_integer() || value.get<double>() < 1) refuse(field, shown(value), "a whole number from 1");
    return value.get<double>() > static_cast<double>(room) ? room : value.get<std::int64_t>();
  }
  return endpoint == Endpoint::kCompletions ? std::min<std::int64_t>(16, room) : room;
}

json body_of(std::string_view text) {
  auto body = parse_json(text, kMaxRequestParts);
  if (!body.ok()) throw ApiError{400, "the body: " + body.error().message, "invalid_request_error", "", "invalid_json"};
  if (!body->is_object()) refuse("body", shown(*body), "a JSON object");
  return std::move(body).value();
}

void check_model(const json& body, const ApiModel& model) {
  if (!body.at("model").is_string()) refuse("model", shown(body.at("model")), fmt::format("'{}'", model.served_name));
  if (body.at("model") != model.served_name) {
    throw ApiError{
        404, fmt::format("model: must be '{}', which this worker serves (got {})", model.served_name, shown(body.at("model"))),
        "invalid_request_error", "model", "model_not_found"};
  }
}

// Rejects log probabilities larger than any gateway would forward, before minutes are spent on them. Without max_tokens the
// model decides when an answer ends, and Exchange watches its size.
void check_answer(Endpoint endpoint, const json& body, const ApiRequest& request) {
  if (!request.generation.sampling.logprobs || request.stream) return;
  const bool chat = endpoint == Endpoint::kChatCompletions;
  if (chat && !has(body, "max_completion_tokens") && !has(body, "max_tokens")) return;
  const std::int64_t most = request.generation.max_tokens;
  const double least_bytes = static_cast<double>(most) * request.choices * (1 + *request.generation.sampling.logprobs) *
                             static_cast<double>(chat ? kLeastChatLogprobBytes : kLeastLogprobBytes);
  if (least_bytes <= static_cast<double>(net::kMaxAnswerBytes)) return;
  refuse(chat ? "top_logprobs" : "logprobs",
         fmt::format("{} for each of {} choices of {} tokens", *request.generation.sampling.logprobs, request.choices, most),
         fmt::format("few enough for an answer of at most {} bytes, or a stream", net::kMaxAnswerBytes));
}

ApiRequest parse(Endpoint endpoint, std::string_view text, const ApiModel& model, std::uint64_t seed) {
  const json body = body_of(text);
  if (!has(body, "model")) refuse("model", "nothing", fmt::format("'{}'", model.served_name));
  check_model(body, model);
  refuse_unsupported(endpoint, body);

  ApiRequest request;
  GenerationRequest& generation = request.generation;
  generation.sampling = sampling_of(endpoint, body, model, seed);
  // A request for more choices than the worker ever accepts would otherwise be rejected as if the worker were full.
  const std::int64_t places = model.engine.max_running + model.engine.max_waiting;
  const std::int64_t max_choices = std::min<std::int64_t>(kMaxChoices, places);
  request.choices_each = static_cast<int>(whole_number(body, "n", 1, 1, max_choices));
  generation.stop = stops_of(body);
  generation.ignore_eos = boolean(body, "ignore_eos", false);
  request.stream = boolean(body, "stream", false);
  if (has(body, "stream_options")) {
    if (!request.stream) refuse("stream_options", shown(body.at("stream_options")), "absent without stream");
    if (!body.at("stream_options").is_object()) refuse("stream_options", shown(body.at("stream_options")), "an object");
    request.include_usage = boolean(body.at("stream_options"), "include_usage", false);
  }
  const bool chat = endpoint == Endpoint::kChatCompletions;
  std::vector<std::vector<std::int32_t>> prompts;
  if (chat) {
    prompts.push_back(chat_prompt(body, text, model));
    generation.stop_tokens = model.chat.stop_tokens();
  } else {
    prompts = prompts_of(body, model, max_choices / request.choices_each);
  }
  request.choices = request.choices_each * static_cast<int>(prompts.size());
  const std::int64_t context = model.engine.max_context_tokens;
  for (std::size_t i = prompts.size(); i-- > 0;) {  // the first stays in place
    const std::int64_t room = context - static_cast<std::int64_t>(prompts[i].size());
    generation.prompt = std::move(prompts[i]);
    generation.max_tokens = max_tokens_of(endpoint, body, std::max<std::int64_t>(room, 1));
    if (const auto fit = Engine::check(model.engine, model.config.vocab_size, generation); !fit.ok()) {
      throw ApiError{400, fit.error().message, "invalid_request_error", chat ? "messages" : "prompt",
                     room < 1 ? "context_length_exceeded" : ""};
    }
    if (i > 0) request.further.insert(request.further.begin(), {generation.prompt, generation.max_tokens});
  }
  check_answer(endpoint, body, request);
  return request;
}

// A prompt counts once, whatever its number of choices.
ordered_json usage_of(std::span<const Choice> choices, std::size_t choices_each) {
  std::int64_t generated = 0, prompt = 0, cached = 0;
  for (const Choice& choice : choices) generated += choice.last.generated_tokens;
  for (std::size_t i = 0; i < choices.size(); i += choices_each) {
    prompt += choices[i].last.prompt_tokens;
    cached += choices[i].last.cached_tokens;
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", generated},
          {"total_tokens", prompt + generated},
          {"prompt_tokens_details", {{"cached_tokens", cached}}}};
}

using SpecialTexts = std::function<std::string_view(std::int32_t)>;

// A special token gets the text that stands for it.
LikelyToken shown_token(const LikelyToken& token, const SpecialTexts& special) {
  if (!token.bytes.empty() || !special) return token;
  return {std::string(special(token.id)), token.logprob, token.id};
}

// A token's bytes alone as text: invalid UTF-8 becomes U+FFFD.
std::string text_of(const LikelyToken& token) {
  Utf8Stream stream;
  const std::string whole = stream.push(token.bytes);
  return whole + stream.finish();
}

// The key of a token that is not text by itself, as OpenAI writes it: "bytes:\xe6\x97".
std::string key_of(const LikelyToken& token) {
  std::string text = text_of(token);
  if (text == token.bytes) return text;
  std::string name = "bytes:";
  for (const char byte : token.bytes) name += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return name;
}

ordered_json json_of(const LikelyToken& from, const SpecialTexts& special) {
  const LikelyToken token = shown_token(from, special);
  ordered_json bytes = ordered_json::array();
  for (const char byte : token.bytes) bytes.push_back(static_cast<unsigned char>(byte));
  return {{"token", text_of(token)}, {"logprob", token.logprob}, {"bytes", std::move(bytes)}};
}

ordered_json chat_logprobs(std::span<const TokenLogprobs> tokens, const SpecialTexts& special) {
  ordered_json content = ordered_json::array();
  for (const TokenLogprobs& each : tokens) {
    ordered_json entry = json_of(each.token, special);
    entry["top_logprobs"] = ordered_json::array();
    for (const LikelyToken& likely : each.top) entry["top_logprobs"].push_back(json_of(likely, special));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}};
}

ordered_json completion_logprobs(std::span<const TokenLogprobs> tokens, std::int64_t offset, const SpecialTexts& special) {
  ordered_json texts = ordered_json::array(), logprobs = ordered_json::array(), tops = ordered_json::array(),
               offsets = ordered_json::array();
  for (const TokenLogprobs& each : tokens) {
    const LikelyToken drawn = shown_token(each.token, special);
    texts.push_back(text_of(drawn));
    logprobs.push_back(each.token.logprob);
    ordered_json top = ordered_json::object();
    for (const LikelyToken& likely : each.top) top.emplace(key_of(shown_token(likely, special)), likely.logprob);
    top.emplace(key_of(drawn), drawn.logprob);  // OpenAI's lists always contain the drawn token
    tops.push_back(std::move(top));
    offsets.push_back(offset);
    offset += characters_of(each.token);
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

// Log probabilities of one choice; null if none were requested.
ordered_json logprobs_json(Endpoint endpoint, std::span<const TokenLogprobs> tokens, std::int64_t offset,
                           const SpecialTexts& special) {
  if (tokens.empty()) return nullptr;
  return endpoint == Endpoint::kChatCompletions ? chat_logprobs(tokens, special) : completion_logprobs(tokens, offset, special);
}

ordered_json nullable(const std::string& text) { return text.empty() ? ordered_json() : ordered_json(text); }

std::string event_text(const ordered_json& data) { return "data: " + data.dump() + "\n\n"; }

// Converts a Refusal thrown by `make` to a value.
template <class Make>
auto guarded(Make make) -> std::variant<decltype(make()), ApiError> {
  try {
    return make();
  } catch (const ApiError& error) {
    return error;
  } catch (const json::exception& e) {
    return ApiError{400, fmt::format("the body has an unexpected shape: {}", e.what()), "invalid_request_error", "", ""};
  }
}

}  // namespace

std::string error_body(const ApiError& error) {
  const ordered_json body = {
      {"error",
       {{"message", error.message}, {"type", error.type}, {"param", nullable(error.param)}, {"code", nullable(error.code)}}}};
  return body.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

std::string error_chunk(const ApiError& error) { return "data: " + error_body(error) + "\n\n"; }

std::variant<ApiRequest, ApiError> parse_request(Endpoint endpoint, std::string_view body, const ApiModel& model,
                                                 std::uint64_t seed) {
  return guarded([&] { return parse(endpoint, body, model, seed); });
}

// Counts the bytes that begin a character, so that one made of several tokens counts once.
std::int64_t characters_of(const LikelyToken& token) {
  return std::count_if(token.bytes.begin(), token.bytes.end(),
                       [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

std::vector<GenerationRequest> choices_of(const ApiRequest& request) {
  const auto each = static_cast<std::size_t>(request.choices_each);
  std::vector<GenerationRequest> choices(each, request.generation);
  for (const ApiRequest::Further& further : request.further) {
    choices.insert(choices.end(), each, request.generation);
    for (std::size_t i = choices.size() - each; i < choices.size(); ++i) {
      choices[i].prompt = further.prompt;
      choices[i].max_tokens = further.max_tokens;
    }
  }
  for (std::size_t i = 0; i < choices.size(); ++i) choices[i].sampling.seed += i % each;
  return choices;
}

std::variant<std::string, ApiError> tokenize_body(std::string_view text, const ApiModel& model) {
  return guarded([&]() -> std::string {
    const json body = body_of(text);
    if (has(body, "model")) check_model(body, model);
    if (has(body, "prompt") == has(body, "messages")) {
      refuse("prompt", has(body, "prompt") ? "both" : "neither", "given, or messages, but not both");
    }
    std::vector<std::int32_t> ids;
    if (has(body, "messages")) {
      ids = chat_prompt(body, text, model);
    } else {
      if (!body.at("prompt").is_string()) refuse("prompt", shown(body.at("prompt")), "a string");
      if (boolean(body, "add_special_tokens", true)) ids = model.tokenizer.prefix();
      const auto more = model.tokenizer.encode(body.at("prompt").get_ref<const std::string&>(), SpecialText::kParse);
      ids.insert(ids.end(), more.begin(), more.end());
    }
    return ordered_json{{"count", ids.size()}, {"max_model_len", model.engine.max_context_tokens}, {"tokens", ids}}.dump();
  });
}

std::variant<std::string, ApiError> detokenize_body(std::string_view text, const ApiModel& model) {
  return guarded([&]() -> std::string {
    const json body = body_of(text);
    if (has(body, "model")) check_model(body, model);
    const std::string allowed = fmt::format("a list of token ids from 0 to {}", model.config.vocab_size - 1);
    if (!has(body, "tokens")) refuse("tokens", "nothing", allowed);
    const json& tokens = body.at("tokens");
    if (!tokens.is_array()) refuse("tokens", shown(tokens), allowed);
    std::vector<std::int32_t> ids;
    for (const json& id : tokens) {
      if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() >= static_cast<double>(model.config.vocab_size)) {
        refuse("tokens", shown(id), allowed);
      }
      ids.push_back(id.get<std::int32_t>());
    }
    return ordered_json{{"prompt", text_of({model.tokenizer.decode(ids, true), 0})}}.dump();
  });
}

std::string ResponseFormat::whole(std::span<const Choice> choices) const {
  const bool chat = endpoint_ == Endpoint::kChatCompletions;
  ordered_json list = ordered_json::array();
  for (const Choice& from : choices) {
    ordered_json choice = {{"index", list.size()}};
    if (chat) {
      choice["message"] = {{"role", "assistant"}, {"content", from.text}};
    } else {
      choice["text"] = from.text;
    }
    choice["logprobs"] = logprobs_json(endpoint_, from.logprobs, 0, special_text_);
    choice["finish_reason"] = to_string(*from.last.finish);
    list.push_back(std::move(choice));
  }
  const ordered_json body = {{"id", id_},
                             {"object", chat ? "chat.completion" : "text_completion"},
                             {"created", created_},
                             {"model", model_},
                             {"choices", std::move(list)},
                             {"usage", usage_of(choices, choices_each_)}};
  return body.dump();
}

std::string ResponseFormat::chunk(int index, const TokenEvent& event, std::int64_t offset) const {
  const bool chat = endpoint_ == Endpoint::kChatCompletions;
  ordered_json choice = {{"index", index}};
  if (chat) {
    ordered_json delta = ordered_json::object();
    if (event.generated_tokens == 1) delta["role"] = "assistant";
    delta["content"] = event.text;
    choice["delta"] = std::move(delta);
  } else {
    choice["text"] = event.text;
  }
  choice["logprobs"] =
      event.logprobs ? logprobs_json(endpoint_, std::span(&*event.logprobs, 1), offset, special_text_) : ordered_json();
  choice["finish_reason"] = event.finish ? ordered_json(to_string(*event.finish)) : ordered_json();
  ordered_json data = {{"id", id_},
                       {"object", chat ? "chat.completion.chunk" : "text_completion"},
                       {"created", created_},
                       {"model", model_},
                       {"choices", ordered_json::array({std::move(choice)})}};
  if (usage_follows_) data["usage"] = nullptr;  // as OpenAI: in every event, but null before the last one
  return event_text(data);
}

std::string ResponseFormat::usage_chunk(std::span<const Choice> choices) const {
  const bool chat = endpoint_ == Endpoint::kChatCompletions;
  return event_text({{"id", id_},
                     {"object", chat ? "chat.completion.chunk" : "text_completion"},
                     {"created", created_},
                     {"model", model_},
                     {"choices", ordered_json::array()},
                     {"usage", usage_of(choices, choices_each_)}});
}

}  // namespace windlass::worker
