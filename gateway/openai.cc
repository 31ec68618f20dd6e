// Reads only the top level of a request. A SAX reader parses the body once and keeps nothing of it, because prompts can be
// long.
#include "gateway/openai.h"

#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "planner/base/foreign_text.h"

namespace windlass::gateway {
namespace {

using Json = nlohmann::json;

// More than any tool schema has. Most engines walk bodies recursively.
constexpr int kMaxDepth = 256;
constexpr std::size_t kMaxOptionsBytes = 4096;

// One of the few members that matter: a description for errors, and the value if it is used. If a member appears twice, the
// last one counts.
struct Member {
  std::string found;                // "a number", "null", "'text'"; empty: missing
  std::optional<std::string> text;  // empty when longer than a model's name may be
  std::optional<bool> flag;
  bool object = false;
  std::size_t text_bytes = 0;
};

class HeadReader final : public Json::json_sax_t {
 public:
  Member model, stream, stream_options, include_usage;
  bool is_object = false;
  std::string top_found;
  std::string parse_message;
  std::size_t parse_byte = 0;
  bool too_deep = false;

  bool null() override { return value("null"); }
  bool boolean(bool flag) override {
    value(flag ? "true" : "false");
    if (Member* member = target()) member->flag = flag;
    return true;
  }
  bool number_integer(std::int64_t) override { return value("a number"); }
  bool number_unsigned(std::uint64_t) override { return value("a number"); }
  bool number_float(double, const std::string&) override { return value("a number"); }
  bool string(std::string& text) override {
    value("a string");
    if (Member* member = target()) {
      member->text = text.size() > kMaxModelBytes ? std::string() : text;
      member->text_bytes = text.size();
    }
    return true;
  }
  bool binary(Json::binary_t&) override { return value("bytes"); }
  bool start_object(std::size_t) override {
    if (depth_ == 0) is_object = true;
    value("an object");
    if (Member* member = target()) member->object = true;
    if (depth_ == 1) in_options_ = key_ == "stream_options";
    return deeper();
  }
  bool end_object() override {
    --depth_;
    if (depth_ == 1) in_options_ = false;
    return true;
  }
  bool start_array(std::size_t) override {
    value("a list");
    ++lists_;
    return deeper();
  }
  bool end_array() override {
    --depth_;
    --lists_;
    return true;
  }
  bool key(std::string& name) override {
    if (lists_ == 0 && (depth_ == 1 || (depth_ == 2 && in_options_))) key_ = name;
    return true;
  }
  bool parse_error(std::size_t byte, const std::string&, const nlohmann::detail::exception& error) override {
    parse_byte = byte;
    parse_message = shown_text(error.what());
    return false;
  }

 private:
  Member* target() {
    if (lists_ > 0) return nullptr;
    if (depth_ == 1 && is_object) {
      if (key_ == "model") return &model;
      if (key_ == "stream") return &stream;
      if (key_ == "stream_options") return &stream_options;
    }
    if (depth_ == 2 && in_options_ && key_ == "include_usage") return &include_usage;
    return nullptr;
  }
  bool value(const char* found) {
    if (depth_ == 0) top_found = found;
    Member* const member = target();
    if (member == nullptr) return true;
    *member = {};
    member->found = found;
    if (member == &stream_options) include_usage = {};
    return true;
  }
  bool deeper() {
    ++depth_;
    too_deep = depth_ > kMaxDepth;
    return !too_deep;
  }

  int depth_ = 0;
  int lists_ = 0;
  bool in_options_ = false;
  std::string key_;
};

Inspected problem(std::string message, std::string param) {
  return Inspected{{}, BadRequest{std::move(message), std::move(param)}};
}

Json text_or_null(std::string_view text) { return text.empty() ? Json(nullptr) : Json(std::string(text)); }

const char* type_of(int status) {
  switch (status) {
    case 401: return "authentication_error";
    case 403: return "permission_error";
    case 429: return "rate_limit_error";
    case 503: return "service_unavailable_error";
    default: return status >= 500 ? "server_error" : "invalid_request_error";
  }
}

Json error_json(int status, std::string_view message, std::string_view code, std::string_view param) {
  return Json{{"error",
               {{"message", std::string(message)},
                {"type", type_of(status)},
                {"param", text_or_null(param)},
                {"code", text_or_null(code)}}}};
}

Json model_json(const dispatch::ModelRoute& route) {
  Json json{{"id", route.served_name}, {"object", "model"}, {"created", 0}, {"owned_by", "windlass"}};
  if (route.max_context_tokens > 0) json["max_model_len"] = route.max_context_tokens;
  return json;
}

// A name that is not UTF-8 must not crash the program when an error quotes it.
std::string dump(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

struct Range {
  std::size_t begin = 0, end = 0;
};

// Position of the value of the last top-level member of that name; empty when there is none.
// REQUIRES: the body is a JSON object.
Range last_value_of(std::string_view name, std::string_view body) {
  Range found;
  int depth = 0;
  bool key_follows = false, named = false;
  std::size_t value = 0;
  for (std::size_t i = 0; i < body.size(); ++i) {
    const char c = body[i];
    if (c == '"') {
      const std::size_t begin = i++;
      while (body[i] != '"') i += body[i] == '\\' ? 2 : 1;
      if (depth != 1 || !std::exchange(key_follows, false)) continue;
      const std::string_view key = body.substr(begin, i + 1 - begin);
      // Each character of the name may be written as \uXXXX.
      named = key.size() <= 6 * name.size() + 2 && Json::parse(key).get_ref<const std::string&>() == name;
    } else if (c == ':' && depth == 1) {
      value = i + 1;
    } else if (c == '{' || c == '[') {
      key_follows = ++depth == 1;
    } else if (c == '}' || c == ']' || c == ',') {
      if (c != ',') --depth;
      if (depth > 1 || (depth == 1 && c != ',')) continue;
      if (std::exchange(named, false)) found = {value, i};
      key_follows = c == ',';
    }
  }
  return found;
}

// The same body with stream_options.include_usage = true. Only the options are parsed and written: as values, a body of
// megabytes would take many times its size and block every other request. nullopt: the options are larger than any useful ones.
std::optional<std::string> with_usage(std::string body, bool has_options) {
  if (!has_options) {
    const auto brace = body.find('{');
    const bool empty = body.find_first_not_of(" \t\r\n", brace + 1) == body.find('}', brace);
    body.insert(brace + 1,
                empty ? R"("stream_options":{"include_usage":true})" : R"("stream_options":{"include_usage":true},)");
    return body;
  }
  const Range at = last_value_of("stream_options", body);
  const std::string_view text = std::string_view(body).substr(at.begin, at.end - at.begin);
  if (text.size() > kMaxOptionsBytes) return std::nullopt;
  Json options = Json::parse(text, nullptr, false);
  options["include_usage"] = true;
  body.replace(at.begin, text.size(), dump(options));
  return body;
}

// Parses the body. Returns the problem with it as JSON; nullopt: it is an object.
std::optional<Inspected> problem_with_json(const std::string& body, HeadReader& reader) {
  // nlohmann stops at a zero byte and ignores what follows; valid JSON contains none.
  if (const auto zero = body.find('\0'); zero != std::string::npos) {
    return problem(fmt::format("The request's body must be JSON (got a zero byte at byte {}).", zero + 1), "");
  }
  const bool parsed = Json::sax_parse(body, &reader);
  if (!parsed) {
    if (reader.too_deep) {
      return problem(fmt::format("The request's body must be nested at most {} levels deep (got more).", kMaxDepth), "");
    }
    if (body.empty()) return problem("The request's body must be a JSON object (got nothing).", "");
    return problem(
        fmt::format("The request's body must be JSON (got an error at byte {}: {})", reader.parse_byte, reader.parse_message),
        "");
  }
  if (!reader.is_object)
    return problem(fmt::format("The request's body must be a JSON object (got {}).", reader.top_found), "");
  return std::nullopt;
}

std::optional<Inspected> problem_with_model(const HeadReader& reader) {
  if (reader.model.text_bytes > kMaxModelBytes) {
    return problem(fmt::format("'model': must be at most {} bytes long (got {}).", kMaxModelBytes, reader.model.text_bytes),
                   "model");
  }
  if (!reader.model.text.has_value() || reader.model.text->empty()) {
    const std::string found = reader.model.found.empty()      ? "nothing"
                              : reader.model.text.has_value() ? "an empty string"
                                                              : reader.model.found;
    return problem(fmt::format("'model': must be the name of a model (got {}).", found), "model");
  }
  return std::nullopt;
}

std::optional<Inspected> problem_with_stream(const HeadReader& reader) {
  const auto given = [](const Member& member) { return !member.found.empty() && member.found != "null"; };
  if (given(reader.stream) && !reader.stream.flag.has_value()) {
    return problem(fmt::format("'stream': must be true, false or null (got {}).", reader.stream.found), "stream");
  }
  if (given(reader.stream_options) && !reader.stream_options.object) {
    return problem(fmt::format("'stream_options': must be an object or null (got {}).", reader.stream_options.found),
                   "stream_options");
  }
  if (given(reader.stream_options) && !reader.stream.flag.value_or(false)) {
    return problem("'stream_options': must be null unless 'stream' is true (got an object).", "stream_options");
  }
  if (given(reader.include_usage) && !reader.include_usage.flag.has_value()) {
    return problem(fmt::format("'stream_options.include_usage': must be true or false (got {}).", reader.include_usage.found),
                   "stream_options.include_usage");
  }
  return std::nullopt;
}

}  // namespace

Inspected inspect_request(std::string body) {
  HeadReader reader;
  if (auto wrong = problem_with_json(body, reader)) return *std::move(wrong);
  if (auto wrong = problem_with_model(reader)) return *std::move(wrong);
  if (auto wrong = problem_with_stream(reader)) return *std::move(wrong);
  Inspected result;
  RequestHead& head = result.head;
  head.model = *reader.model.text;
  head.stream = reader.stream.flag.value_or(false);
  head.include_usage = reader.include_usage.flag.value_or(false);
  head.upstream_body = std::move(body);
  if (head.stream && !head.include_usage) {
    auto asks = with_usage(std::move(head.upstream_body), !reader.stream_options.found.empty());
    if (!asks) {
      return problem(fmt::format("'stream_options': must be at most {} bytes long (got more).", kMaxOptionsBytes),
                     "stream_options");
    }
    head.upstream_body = std::move(*asks);
  }
  return result;
}

std::string error_body(int status, std::string_view message, std::string_view code, std::string_view param) {
  return dump(error_json(status, message, code, param));
}

std::string error_event(int status, std::string_view message, std::string_view code) {
  return "data: " + dump(error_json(status, message, code, {})) + "\n\n";
}

std::string model_list(const dispatch::RoutingTable& table, const std::function<bool(const std::string& model)>& may_use) {
  Json data = Json::array();
  for (const auto& route : table.models) {
    if (may_use(route.served_name)) data.push_back(model_json(route));
  }
  return dump(Json{{"object", "list"}, {"data", std::move(data)}});
}

std::string model_object(const dispatch::RoutingTable& table, std::string_view name) {
  for (const auto& route : table.models) {
    if (route.served_name == name) return dump(model_json(route));
  }
  return {};
}

}  // namespace windlass::gateway
