// See local_model.h.
#include "controller/runtime/local_model.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include <fmt/format.h>

namespace windlass::controller {
namespace {

namespace fs = std::filesystem;

bool is_model(const fs::path& path) {
  std::error_code failure;
  const auto is_gguf = [](const fs::path& file) { return file.extension() == ".gguf"; };
  if (fs::is_regular_file(path, failure)) return is_gguf(path);
  if (!fs::is_directory(path, failure)) return false;
  const fs::directory_iterator entries(path, failure);
  return fs::exists(path / "config.json", failure) ||
         std::any_of(begin(entries), end(entries), [&](const fs::directory_entry& entry) { return is_gguf(entry.path()); });
}

}  // namespace

Result<std::string> local_model(const std::string& uri, const std::string& root) {
  constexpr std::string_view kScheme = "file://";
  if (!uri.starts_with(kScheme) || uri.size() == kScheme.size()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("spec.model.uri: must be file://PATH on one machine (got '{}')", uri)};
  }
  std::string path = uri.substr(kScheme.size());
  if (path.front() != '/' && !root.empty()) path = root + "/" + path;
  if (is_model(path)) return path;
  return Error{
      ErrorCode::kNotFound,
      fmt::format(
          "spec.model.uri: must be a folder with a config.json, or a GGUF file (got {}); `windlass model fetch` gets a small "
          "real model, `windlass model init {}` makes a random one",
          path, path)};
}

}  // namespace windlass::controller
