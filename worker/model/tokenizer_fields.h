// Reads fields of a tokenizer.json. A Complaint is thrown only inside parse_tokenizer_json, which converts it to an Error.
#pragma once

#include <cstdint>
#include <string>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "planner/base/shown_json.h"

namespace windlass::worker::tokenizer_fields {

using nlohmann::json;

struct Complaint {
  std::string text;
};

[[noreturn]] inline void complain(const std::string& field, const std::string& found, const std::string& allowed) {
  throw Complaint{fmt::format("field '{}': must be {} (got {})", field, allowed, found)};
}

[[noreturn]] inline void complain_of_type(const std::string& where, const std::string& type, const std::string& allowed) {
  complain(where + ".type", "\"" + type + "\"", allowed);
}

inline const json& child(const json& object, const std::string& where, const char* field, const char* allowed) {
  if (!object.is_object()) complain(where, shown(object), "an object");
  const auto it = object.find(field);
  if (it == object.end()) complain(where.empty() ? field : where + "." + field, "nothing", allowed);
  return *it;
}

inline const json& list_of(const json& object, const std::string& where, const char* field) {
  const json& value = child(object, where, field, "a list");
  if (!value.is_array()) complain(where + "." + field, shown(value), "a list");
  return value;
}

inline std::string text_of(const json& object, const std::string& where, const char* field) {
  const json& value = child(object, where, field, "a string");
  if (!value.is_string()) complain(where + "." + field, shown(value), "a string");
  return value.get<std::string>();
}

inline std::string text_or(const json& object, const std::string& where, const char* field, const char* fallback) {
  const auto it = object.find(field);
  return it == object.end() || it->is_null() ? fallback : text_of(object, where, field);
}

inline std::int32_t id_of(const json& value, const std::string& where) {
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > (1U << 24U))
    complain(where, shown(value), "a token id from 0 to 16777216");
  return value.get<std::int32_t>();
}

inline bool flag(const json& object, const std::string& where, const char* field, bool fallback) {
  const auto it = object.find(field);
  if (it == object.end() || it->is_null()) return fallback;
  if (!it->is_boolean()) complain(where + "." + field, shown(*it), "true or false");
  return it->get<bool>();
}

}  // namespace windlass::worker::tokenizer_fields
