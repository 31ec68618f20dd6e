// Reads numbers, flags, lists and conditions from Kubernetes objects. A missing field yields a default, never an exception.
// Private to this folder.
#pragma once

#include <charconv>
#include <initializer_list>
#include <string>

#include <nlohmann/json.hpp>

#include "controller/kube/json_path.h"

namespace windlass::controller {

using kube::at;
using kube::text_at;

inline int integer_at(const nlohmann::json& object, std::initializer_list<const char*> path, int fallback = 0) {
  const nlohmann::json* found = at(object, path);
  return found != nullptr && found->is_number_integer() ? found->get<int>() : fallback;
}

inline bool true_at(const nlohmann::json& object, std::initializer_list<const char*> path) {
  const nlohmann::json* found = at(object, path);
  return found != nullptr && found->is_boolean() && found->get<bool>();
}

// The list at the end of the path; empty if absent.
inline const nlohmann::json& list_at(const nlohmann::json& object, std::initializer_list<const char*> path) {
  static const nlohmann::json kNone = nlohmann::json::array();
  const nlohmann::json* found = at(object, path);
  return found != nullptr && found->is_array() ? *found : kNone;
}

inline int number(const std::string& text, int fallback) {
  int value = fallback;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? value : fallback;
}

// The condition of this type in status.conditions; nullptr if absent.
inline const nlohmann::json* condition_of(const nlohmann::json& object, const char* type) {
  for (const nlohmann::json& one : list_at(object, {"status", "conditions"})) {
    if (text_at(one, {"type"}) == type) return &one;
  }
  return nullptr;
}

}  // namespace windlass::controller
