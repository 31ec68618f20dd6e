// Looks up values in JSON objects by path. A missing field yields nothing, never an exception.
#pragma once

#include <initializer_list>
#include <string>

#include <nlohmann/json.hpp>

namespace windlass::kube {

// The value at the end of the path; nullptr if a key is missing.
inline const nlohmann::json* at(const nlohmann::json& object, std::initializer_list<const char*> path) {
  const nlohmann::json* here = &object;
  for (const char* key : path) {
    if (!here->is_object()) return nullptr;
    const auto found = here->find(key);
    if (found == here->end()) return nullptr;
    here = &*found;
  }
  return here;
}

// Empty if there is no text.
inline std::string text_at(const nlohmann::json& object, std::initializer_list<const char*> path) {
  const nlohmann::json* found = at(object, path);
  return found != nullptr && found->is_string() ? found->get<std::string>() : "";
}

}  // namespace windlass::kube
