// The scans behind SseFilter. A quote inside a JSON string is always escaped, so `"content":"` can only be a key and the start
// of its value; that is why substring scans are exact here.
#include "gateway/sse_filter.h"

#include <algorithm>

#include <nlohmann/json.hpp>

namespace windlass::gateway {
namespace {

// An event larger than this is passed on unread: no engine sends one, and memory is not the client's to fill.
constexpr std::size_t kMaxEventBytes = 1U << 20U;

std::string_view after_spaces(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  return first == std::string_view::npos ? std::string_view{} : text.substr(first);
}

// Calls each(rest after `"key":` and spaces) for every place where `key` (with its quotes) stands as a key; stops when it says
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

// The end of the first event in text from `from` on: the offset after its empty line; npos when it is not complete.
std::size_t event_end(std::string_view text, std::size_t from) {
  for (auto at = text.find('\n', from); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    if (at + 1 < text.size() && text[at + 1] == '\n') return at + 2;
    if (at + 2 < text.size() && text[at + 1] == '\r' && text[at + 2] == '\n') return at + 3;
  }
  return std::string_view::npos;
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
    output.forward.append(rest);
    rest = {};
  }
  partial_.erase(0, partial_.size() - rest.size());
  scanned_ = partial_.size() > 2 ? partial_.size() - 2 : 0;  // "\n\r\n" may be cut after its second byte
  return output;
}

SseFilter::Output SseFilter::finish() {
  Output output;
  if (!partial_.empty()) event(partial_, output);
  partial_.clear();
  scanned_ = 0;
  return output;
}

void SseFilter::event(std::string_view event, Output& output) {
  std::string_view data;
  bool only_comments = true;
  for (std::string_view lines = event; !lines.empty();) {
    const auto end = lines.find('\n');
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(end == std::string_view::npos ? lines.size() : end + 1);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    only_comments = only_comments && (line.empty() || line.front() == ':');
    if (line.substr(0, 5) == "data:") {
      data = after_spaces(line.substr(5));
      break;  // OpenAI's events have one line of data
    }
  }
  begun_ = begun_ || !only_comments;
  if (!begun_) return;
  if (data == "[DONE]") {
    done_ = true;
  } else if (!data.empty()) {
    if (any_value_of(data, "\"usage\"", [](std::string_view value) { return value.substr(0, 1) == "{"; })) {
      if (const auto usage = usage_of(data)) usage_ = usage;
      const bool no_choices = any_value_of(data, "\"choices\"", [](std::string_view value) {
        return value.substr(0, 1) == "[" && after_spaces(value.substr(1)).substr(0, 1) == "]";
      });
      if (no_choices && drop_usage_chunk_) return;
    }
    if (carries_content(data)) ++output.content_events;
  }
  output.forward.append(event);
}

}  // namespace windlass::gateway
