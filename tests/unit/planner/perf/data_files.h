// Reads files of ../shared/data for tests; such a test skips by name if the file is missing.
#pragma once

#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include "tests/paths.h"

namespace windlass::planner {

inline std::string data_path(const std::string& name) { return source_path("/../shared/data/") + name; }

inline std::optional<std::string> read_data(const std::string& name) {
  std::ifstream file(data_path(name), std::ios::binary);
  if (!file) return std::nullopt;
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace windlass::planner
