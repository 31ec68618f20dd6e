// The scans behind SseFilter. A quote inside a JSON string is always escaped, so `"content":"` can only be a key and the start
// of its value; that is why substring scans are exact here.
#include "gateway/sse_filter.h"

#include <algorithm>
#include <initializer_list>
#include <utility>

#include <nlohmann/json.hpp>

namespace windlass::gateway {
namespace {

// A larger event passes unread: no engine sends one, and a client must not fill our memory.
constexpr std::size_t kMaxEventBytes = 1U << 20U;
constexpr std::size_t kMaxHeldBytes = 64U << 10U;

std::string_view after_spaces(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

// Calls each(rest after `"key":` and spaces) for every place where `key` (with its quotes) is a key; stops when it returns
// true.
template <class Each>
bool any_value_of(std::string_view json, std::string_view key, Each each) {
  for (auto at = json.find(key); at != std::string_view::npos; at = json.find(key, at + key.size())) {
    std::string_view rest = after_spaces(json.substr(at + key.size()));
    if (rest.empty() || rest.front() != ':') continue;
    if (each(after_spaces(rest.substr(1)))) return true;
  }
  return false;
}

bool has_text(std::string_view json, std::string_view key) {
  return any_value_of(json, key, [](std::string_view value) { return value.size() > 1 && value[0] == '"' && value[1] != '"'; });
}

bool carries_content(std::string_view json) {
  return has_text(json, "\"content\"") || has_text(json, "\"text\"") || has_text(json, "\"reasoning_content\"") ||
         has_text(json, "\"reasoning\"") || has_text(json, "\"arguments\"");
}

int count_of(const nlohmann::json& usage, const char* key) {
  const auto found = usage.find(key);
  if (found == usage.end() || !found->is_number_integer()) return -1;
  const auto value = found->get<std::int64_t>();
  return value < 0 || value > (1 << 30) ? -1 : static_cast<int>(value);
}

// The offset after the empty line that ends the first event from `from` on; npos when the event is incomplete.
std::size_t event_end(std::string_view text, std::size_t from) {
  for (auto at = text.find('\n', from); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    if (at + 1 < text.size() && text[at + 1] == '\n') return at + 2;
    if (at + 2 < text.size() && text[at + 1] == '\r' && text[at + 2] == '\n') return at + 3;
  }
  return std::string_view::npos;
}

// The parts of one event that are used. OpenAI's events have one line of data.
struct Fields {
  std::string_view name, data;
  bool is_error = false;  // from the event's name or the field's name (old llama.cpp: "error: {...}")
  bool is_comment = true;
};

Fields fields_of(std::string_view event) {
  Fields fields;
  for (std::string_view lines = event; !lines.empty();) {
    const auto end = lines.find('\n');
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    fields.is_comment = fields.is_comment && (line.empty() || line.front() == ':');
    if (line.substr(0, 6) == "event:") fields.name = after_spaces(line.substr(6));
    const bool data = line.substr(0, 5) == "data:";
    if (!data && line.substr(0, 6) != "error:") continue;
    fields.data = after_spaces(line.substr(data ? 5 : 6));
    fields.is_error = !data || (fields.name == "error" && !fields.data.empty());
    break;
  }
  return fields;
}

// Cheap scans; only events that match are parsed.
bool may_be_failure(std::string_view data) {
  const auto starts = [](std::initializer_list<std::string_view> with) {
    return [with](std::string_view value) {
      return std::any_of(with.begin(), with.end(), [&](auto text) { return value.substr(0, text.size()) == text; });
    };
  };
  return any_value_of(data, "\"error\"", starts({"{", "\""})) || any_value_of(data, "\"object\"", starts({"\"error\""})) ||
         any_value_of(data, "\"finish_reason\"", starts({"\"abort\"", "\"error\"", "\"timeout\"", "\"cancelled\""}));
}

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// The finish reason when the engine gave up: vLLM's and SGLang's, then TensorRT-LLM's.
std::string given_up(const nlohmann::json& event) {
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array()) return {};
  for (const auto& choice : *choices) {
    const std::string reason = choice.is_object() ? text_of(choice, "finish_reason") : std::string();
    if (reason == "abort" || reason == "error" || reason == "timeout" || reason == "cancelled") return reason;
  }
  return {};
}

std::optional<StreamFailure> failure_in(std::string_view data, bool is_error) {
  if (!is_error && !may_be_failure(data)) return std::nullopt;
  const auto event = nlohmann::json::parse(data, nullptr, false);
  StreamFailure failure;
  if (!event.is_object()) {
    if (!is_error) return std::nullopt;
    failure.message = data;
    return failure;
  }
  const auto error = event.find("error");
  const bool has_error = error != event.end() && (error->is_object() || error->is_string());
  if (const std::string reason = given_up(event); !has_error && !reason.empty()) {
    failure.message = "finish_reason is " + reason;
    return failure;
  }
  if (!is_error && !has_error && text_of(event, "object") != "error") return std::nullopt;
  const nlohmann::json& said = has_error && error->is_object() ? *error : event;
  failure.message = has_error && error->is_string() ? error->get<std::string>() : text_of(said, "message");
  if (const auto code = said.find("code"); code != said.end() && code->is_number_integer()) {
    const auto value = code->get<std::int64_t>();
    if (value >= 100 && value < 600) failure.code = static_cast<int>(value);
  }
  return failure;
}

bool is_empty(const nlohmann::json& value) {
  return value.is_null() || ((value.is_structured() || value.is_string()) && value == nlohmann::json(value.type()));
}

// Only announces an answer: {"choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}.
bool is_opening(std::string_view data) {
  const auto event = nlohmann::json::parse(data, nullptr, false);
  if (!event.is_object() || event.contains("prompt_progress")) return false;  // llama.cpp sends it on request
  const auto choices = event.find("choices");
  if (choices == event.end() || !choices->is_array() || choices->empty()) return false;
  return std::all_of(choices->begin(), choices->end(), [](const nlohmann::json& choice) {
    if (!choice.is_object()) return false;
    const auto items = choice.items();
    return std::all_of(items.begin(), items.end(), [](const auto& item) {
      if (item.key() == "index") return true;
      if (item.key() != "delta" || !item.value().is_object()) return is_empty(item.value());
      const auto members = item.value().items();
      return std::all_of(members.begin(), members.end(),
                         [](const auto& member) { return member.key() == "role" || is_empty(member.value()); });
    });
  });
}

}  // namespace

std::optional<Usage> usage_of(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return std::nullopt;
  const auto found = json.find("usage");
  if (found == json.end() || !found->is_object()) return std::nullopt;
  return Usage{count_of(*found, "prompt_tokens"), count_of(*found, "completion_tokens")};
}

SseFilter::Output SseFilter::feed(std::string_view bytes) {
  Output output;
  partial_.append(bytes);
  std::string_view rest = partial_;
  std::size_t from = scanned_;
  for (auto end = event_end(rest, from); end != std::string_view::npos; end = event_end(rest, from)) {
    event(rest.substr(0, end), output);
    rest.remove_prefix(end);
    from = 0;
  }
  if (rest.size() > kMaxEventBytes) {
    if (!failure_.has_value()) output.forward.append(std::exchange(held_, {})).append(rest);
    begun_ = true;
    rest = {};
  }
  partial_.erase(0, partial_.size() - rest.size());
  scanned_ = partial_.size() > 2 ? partial_.size() - 2 : 0;  // the split may be after the second byte of "\n\r\n"
  return output;
}

SseFilter::Output SseFilter::finish() {
  Output output;
  if (!partial_.empty()) event(partial_, output);
  if (!failure_.has_value()) output.forward.insert(0, held_);
  partial_.clear();
  held_.clear();
  scanned_ = 0;
  return output;
}

void SseFilter::event(std::string_view event, Output& output) {
  if (failure_.has_value()) return;
  const Fields fields = fields_of(event);
  if (fields.is_comment && !begun_) {
    if (!held_.empty()) held_.append(event);  // it keeps its place in the order
    return;
  }
  if (failure_ = failure_in(fields.data, fields.is_error); failure_.has_value()) {
    failure_->event = event;
    return;
  }
  if (!read_data(fields.data, output)) return;
  if (!begun_ && held_.size() + event.size() <= kMaxHeldBytes && is_opening(fields.data)) {
    held_.append(event);
    return;
  }
  begun_ = true;
  output.forward.append(held_).append(event);
  held_.clear();
}

bool SseFilter::read_data(std::string_view data, Output& output) {
  if (data == "[DONE]") {
    done_ = true;
    return true;
  }
  if (data.empty()) return true;
  if (any_value_of(data, "\"usage\"", [](std::string_view value) { return value.substr(0, 1) == "{"; })) {
    if (const auto usage = usage_of(data)) usage_ = usage;
    const bool no_choices = any_value_of(data, "\"choices\"", [](std::string_view value) {
      return value.substr(0, 1) == "[" && after_spaces(value.substr(1)).substr(0, 1) == "]";
    });
    if (no_choices && drop_usage_chunk_) return false;
  }
  if (carries_content(data)) ++output.content_events;
  return true;
}

}  // namespace windlass::gateway
