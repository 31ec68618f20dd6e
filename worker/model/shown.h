// A JSON value as an error shows what was found: one line, at most 60 bytes.
#pragma once

#include <string>

#include <nlohmann/json.hpp>

namespace windlass::worker {

inline std::string shown(const nlohmann::json& value) {
  std::string text = value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  return text.size() <= 60 ? text : text.substr(0, 57) + "...";
}

}  // namespace windlass::worker
