// Field by field: the message names the field, what was found and what is allowed.
#include "worker/serve/openai_api.h"

#include <algorithm>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "worker/model/shown.h"

namespace windlass::worker {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::size_t kMaxStops = 16;
constexpr std::size_t kMaxStopBytes = 1024;

// Thrown inside this file alone; parse_request turns it into a value.
[[noreturn]] void refuse(const std::string& param, const std::string& found, const std::string& allowed) {
  throw ApiError{400, fmt::format("{}: found {}, allowed is {}", param, found, allowed), "invalid_request_error", param, ""};
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

bool boolean(const json& body, const char* field, bool fallback) {
  if (!has(body, field)) return fallback;
  if (!body.at(field).is_boolean()) refuse(field, shown(body.at(field)), "true or false");
  return body.at(field).get<bool>();
}

void refuse_unsupported(const json& body) {
  const std::vector<std::pair<const char*, json>> neutral = {{"n", 1},
                                                             {"best_of", 1},
                                                             {"echo", false},
                                                             {"suffix", ""},
                                                             {"logprobs", false},
                                                             {"top_logprobs", 0},
                                                             {"logit_bias", json::object()},
                                                             {"presence_penalty", 0},
                                                             {"frequency_penalty", 0},
                                                             {"tools", json::array()},
                                                             {"functions", json::array()},
                                                             {"tool_choice", "none"},
                                                             {"top_k", -1},
                                                             {"min_p", 0},
                                                             {"repetition_penalty", 1}};
  for (const auto& [field, value] : neutral) {
    if (has(body, field) && body.at(field) != value) {
      throw ApiError{
          400,
          fmt::format("{}: found {}, this worker supports only {} or its absence", field, shown(body.at(field)), value.dump()),
          "invalid_request_error", field, "unsupported_parameter"};
    }
  }
  if (has(body, "response_format") && body.at("response_format") != json{{"type", "text"}}) {
    throw ApiError{400,
                   fmt::format("response_format: found {}, this worker supports only {{\"type\":\"text\"}}",
                               shown(body.at("response_format"))),
                   "invalid_request_error", "response_format", "unsupported_parameter"};
  }
}

std::vector<std::string> stops_of(const json& body) {
  if (!has(body, "stop")) return {};
  const json& value = body.at("stop");
  const json list = value.is_array() ? value : json::array({value});
  if (list.size() > kMaxStops) refuse("stop", fmt::format("{} strings", list.size()), fmt::format("at most {}", kMaxStops));
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

std::vector<std::int32_t> prompt_of(const json& body, const Tokenizer& tokenizer) {
  const std::string allowed = "a string or a list of token ids (one prompt a request)";
  if (!has(body, "prompt")) refuse("prompt", "nothing", allowed);
  const json& prompt = body.at("prompt");
  const bool wrapped = prompt.is_array() && prompt.size() == 1 && (prompt[0].is_string() || prompt[0].is_array());
  const json& one = wrapped ? prompt[0] : prompt;
  std::vector<std::int32_t> ids;
  if (one.is_string()) {
    ids = tokenizer.prefix();
    const auto more = tokenizer.encode(one.get_ref<const std::string&>(), SpecialText::kParse);
    ids.insert(ids.end(), more.begin(), more.end());
    return ids;
  }
  if (!one.is_array() || one.empty()) refuse("prompt", shown(prompt), allowed);
  for (const json& id : one) {
    if (!id.is_number_integer() || id.get<double>() < 0 || id.get<double>() > INT32_MAX)
      refuse("prompt", shown(prompt), allowed);
    ids.push_back(id.get<std::int32_t>());
  }
  return ids;
}

std::int64_t max_tokens_of(Endpoint endpoint, const json& body, std::int64_t room) {
  // OpenAI's default is 16 for completions and "as many as fit" for a chat. What does not fit ends with finish_reason "length".
  for (const char* field : {"max_completion_tokens", "max_tokens"}) {
    if (!has(body, field)) continue;
    const json& value = body.at(field);
    if (!value.is_number_integer() || value.get<double>() < 1) refuse(field, shown(value), "a whole number from 1");
    return value.get<double>() > static_cast<double>(room) ? room : value.get<std::int64_t>();
  }
  return endpoint == Endpoint::kCompletions ? std::min<std::int64_t>(16, room) : room;
}

ApiRequest parse(Endpoint endpoint, std::string_view text, const ApiModel& model, std::uint64_t seed) {
  json body;
  try {
    body = json::parse(text);
  } catch (const json::exception& e) {
    throw ApiError{400, fmt::format("the body is not JSON: {}", e.what()), "invalid_request_error", "", "invalid_json"};
  }
  if (!body.is_object()) refuse("body", shown(body), "a JSON object");
  if (!has(body, "model")) refuse("model", "nothing", fmt::format("'{}'", model.served_name));
  if (!body.at("model").is_string()) refuse("model", shown(body.at("model")), fmt::format("'{}'", model.served_name));
  if (body.at("model") != model.served_name) {
    throw ApiError{404, fmt::format("model: found {}, this worker serves '{}'", shown(body.at("model")), model.served_name),
                   "invalid_request_error", "model", "model_not_found"};
  }
  refuse_unsupported(body);

  ApiRequest request;
  GenerationRequest& generation = request.generation;
  generation.sampling.temperature = number(body, "temperature", 1, 0, 2);
  generation.sampling.top_p = number(body, "top_p", 1, 0, 1);
  if (generation.sampling.top_p <= 0) refuse("top_p", shown(body.at("top_p")), "a number above 0 and at most 1");
  generation.sampling.seed = seed;
  if (has(body, "seed")) {
    if (!body.at("seed").is_number_integer()) refuse("seed", shown(body.at("seed")), "a whole number");
    generation.sampling.seed = static_cast<std::uint64_t>(body.at("seed").get<std::int64_t>());
  }
  generation.stop = stops_of(body);
  generation.ignore_eos = boolean(body, "ignore_eos", false);
  request.stream = boolean(body, "stream", false);
  if (has(body, "stream_options")) {
    if (!body.at("stream_options").is_object()) refuse("stream_options", shown(body.at("stream_options")), "an object");
    request.include_usage = boolean(body.at("stream_options"), "include_usage", false);
  }
  const bool chat = endpoint == Endpoint::kChatCompletions;
  if (chat) {
    generation.prompt = model.chat.render(messages_of(body));
    generation.stop_tokens = model.chat.stop_tokens();
  } else {
    generation.prompt = prompt_of(body, model.tokenizer);
  }
  const std::int64_t room = model.engine.max_context_tokens - static_cast<std::int64_t>(generation.prompt.size());
  generation.max_tokens = max_tokens_of(endpoint, body, std::max<std::int64_t>(room, 1));
  if (const auto fit = Engine::check(model.engine, model.vocab_size, generation); !fit.ok()) {
    throw ApiError{400, fit.error().message, "invalid_request_error", chat ? "messages" : "prompt",
                   room < 1 ? "context_length_exceeded" : ""};
  }
  return request;
}

ordered_json usage_of(const TokenEvent& last) {
  return {{"prompt_tokens", last.prompt_tokens},
          {"completion_tokens", last.generated_tokens},
          {"total_tokens", last.prompt_tokens + last.generated_tokens}};
}

ordered_json nullable(const std::string& text) { return text.empty() ? ordered_json() : ordered_json(text); }

std::string event_text(const ordered_json& data) { return "data: " + data.dump() + "\n\n"; }

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
  try {
    return parse(endpoint, body, model, seed);
  } catch (const ApiError& error) {
    return error;
  } catch (const json::exception& e) {
    return ApiError{400, fmt::format("the body has an unexpected shape: {}", e.what()), "invalid_request_error", "", ""};
  }
}

std::string ResponseFormat::whole(const std::string& text, const TokenEvent& last) const {
  const bool chat = endpoint_ == Endpoint::kChatCompletions;
  ordered_json choice = {{"index", 0}};
  if (chat) {
    choice["message"] = {{"role", "assistant"}, {"content", text}};
  } else {
    choice["text"] = text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = to_string(*last.finish);
  const ordered_json body = {{"id", id_},
                             {"object", chat ? "chat.completion" : "text_completion"},
                             {"created", created_},
                             {"model", model_},
                             {"choices", ordered_json::array({choice})},
                             {"usage", usage_of(last)}};
  return body.dump();
}

std::string ResponseFormat::chunk(const TokenEvent& event) const {
  const bool chat = endpoint_ == Endpoint::kChatCompletions;
  ordered_json choice = {{"index", 0}};
  if (chat) {
    ordered_json delta = ordered_json::object();
    if (event.generated_tokens == 1) delta["role"] = "assistant";
    delta["content"] = event.text;
    choice["delta"] = std::move(delta);
  } else {
    choice["text"] = event.text;
  }
  choice["logprobs"] = nullptr;
  choice["finish_reason"] = event.finish ? ordered_json(to_string(*event.finish)) : ordered_json();
  return event_text({{"id", id_},
                     {"object", chat ? "chat.completion.chunk" : "text_completion"},
                     {"created", created_},
                     {"model", model_},
                     {"choices", ordered_json::array({choice})}});
}

std::string ResponseFormat::usage_chunk(const TokenEvent& last) const {
  const bool chat = endpoint_ == Endpoint::kChatCompletions;
  return event_text({{"id", id_},
                     {"object", chat ? "chat.completion.chunk" : "text_completion"},
                     {"created", created_},
                     {"model", model_},
                     {"choices", ordered_json::array()},
                     {"usage", usage_of(last)}});
}

}  // namespace windlass::worker
