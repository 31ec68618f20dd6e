// Implements dockerfiles.h.
#include "tests/process/images/dockerfiles.h"

#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "tests/cluster/harness/process.h"
#include "tests/paths.h"

namespace windlass::testing {

namespace fs = std::filesystem;

const std::string kImages = source_path("/scripts/images");

std::vector<std::string> words_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::istringstream in(text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::set<std::string> dockerfiles() {
  std::set<std::string> names;
  for (const auto& entry : fs::directory_iterator(kImages)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("Dockerfile.", 0) == 0) names.insert(name.substr(11));
  }
  return names;
}

std::string dockerfile(const std::string& image) { return read_text_file(fmt::format("{}/Dockerfile.{}", kImages, image)); }

std::set<std::string> runtime_packages(const std::string& text) {
  const std::string begin = "ARG RUNTIME_PACKAGES=\"";
  const std::size_t at = text.find(begin);
  if (at == std::string::npos) return {};
  const std::size_t from = at + begin.size();
  const std::vector<std::string> words = words_of(text.substr(from, text.find('"', from) - from));
  return {words.begin(), words.end()};
}

std::vector<std::string> programs(const std::string& text) {
  std::vector<std::string> result;
  for (const std::string& word : words_of(text)) {
    if (word.rfind("/build/", 0) == 0) result.push_back(word.substr(7));
  }
  return result;
}

}  // namespace windlass::testing
