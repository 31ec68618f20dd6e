// Reads a file and says what is wrong when it cannot; see text_file.h.
#include "controller/cli/text_file.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <fmt/format.h>

namespace windlass::cli {

Result<std::string> read_text_file(const std::string& path, const std::string& what) {
  const auto refused = [&](const std::string& why) {
    return Error{ErrorCode::kNotFound, fmt::format("{}: cannot be read: {}; allowed is {}", path, why, what)};
  };
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return refused("it is a folder");
  std::ifstream in(path, std::ios::binary);
  if (!in) return refused(std::strerror(errno));
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

}  // namespace windlass::cli
