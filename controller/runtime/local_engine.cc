// See local_engine.h.
#include "controller/runtime/local_engine.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

namespace windlass::controller {
namespace {

namespace fs = std::filesystem;

bool can_run(const fs::path& file) {
  std::error_code failure;
  return fs::is_regular_file(file, failure) && ::access(file.c_str(), X_OK) == 0;
}

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string on_the_path(const std::string& name) {
  std::istringstream folders(variable("PATH"));
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (!folder.empty() && can_run(fs::path(folder) / name)) return (fs::path(folder) / name).string();
  }
  return {};
}

fs::path engines_folder() {
  const std::string cache = variable("WINDLASS_CACHE");
  return (cache.empty() ? fs::path(variable("HOME")) / ".cache/windlass" : fs::path(cache)) / "engines";
}

struct Usual {
  const char* name;       // of the program
  const char* installed;  // below engines_folder()
  const char* script;     // what scripts/engines calls it
};

// Whether a file is the second or a later part of a split model: "NAME-00002-of-00003.gguf".
bool is_later_part(const fs::path& file) {
  const std::string stem = file.stem().string();
  constexpr std::size_t kLength = std::string_view("-00001-of-00003").size();
  if (stem.size() < kLength || stem.substr(stem.size() - 9, 4) != "-of-") return false;
  return stem.substr(stem.size() - kLength, 6) != "-00001";
}

}  // namespace

Result<std::string> engine_program(const Launch& spec) {
  if (!spec.program.empty()) {
    const std::string found = spec.program.find('/') == std::string::npos ? on_the_path(spec.program) : spec.program;
    if (!found.empty() && can_run(found)) return found;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("spec.engine.program: must be a program that can be run (got '{}')", spec.program)};
  }
  Usual usual{};
  if (spec.engine == "LlamaCpp") {
    usual = {"llama-server", "llama.cpp/bin/llama-server", "llama.cpp"};
  } else if (spec.engine == "VLLM") {
    usual = {"vllm", "vllm/bin/vllm", "vllm"};
  } else {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("spec.engine.type: must be Windlass, VLLM or LlamaCpp on one machine (got '{}')", spec.engine)};
  }
  std::string found = on_the_path(usual.name);
  if (!found.empty()) return found;
  const fs::path installed = engines_folder() / usual.installed;
  if (can_run(installed)) return installed.string();
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("spec.engine.program: must be the path of {} (got nothing, and it is neither on the PATH nor at {}); "
                  "`scripts/engines {}` installs it",
                  usual.name, installed.string(), usual.script)};
}

Result<std::string> engine_model_path(const Launch& spec, const std::string& path) {
  std::error_code failure;
  const bool folder = fs::is_directory(path, failure);
  if (spec.engine == "VLLM") {
    if (folder && fs::exists(fs::path(path) / "config.json", failure)) return path;
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("spec.model.uri: must be a folder with a config.json for engine VLLM (got {})", path)};
  }
  if (spec.engine != "LlamaCpp" || !folder) return path;
  std::vector<std::string> models;
  for (const auto& entry : fs::directory_iterator(path, failure)) {
    if (entry.path().extension() == ".gguf" && !is_later_part(entry.path())) models.push_back(entry.path().string());
  }
  if (models.size() == 1) return models.front();
  return Error{
      ErrorCode::kInvalidArgument,
      fmt::format("spec.model.uri: must be a GGUF file or a folder with one for engine LlamaCpp (got {} with {} of them)", path,
                  models.size())};
}

std::string last_words(const std::string& log, long from) {
  constexpr long kMaxBytes = 4096;
  constexpr std::size_t kMaxLines = 3;
  std::ifstream in(log, std::ios::binary);
  in.seekg(0, std::ios::end);
  const long size = static_cast<long>(in.tellg());
  if (!in || size <= from) return {};
  in.seekg(std::max(from, size - kMaxBytes));
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) {
    // Remove control characters, which could change or confuse a terminal.
    std::erase_if(line, [](unsigned char byte) { return byte < ' ' || byte == 127; });
    const auto begin = line.find_first_not_of(' ');
    if (begin != std::string::npos) lines.push_back(line.substr(begin, 200));
  }
  if (lines.size() > kMaxLines) lines.erase(lines.begin(), lines.end() - static_cast<long>(kMaxLines));
  return fmt::format("{}", fmt::join(lines, " | "));
}

}  // namespace windlass::controller
