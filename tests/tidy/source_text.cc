// Reads the tree and splits C++ into code and comment; see source_text.h.
#include "tests/tidy/source_text.h"

#include <algorithm>
#include <fstream>
#include <sstream>

namespace windlass::tidy {
namespace fs = std::filesystem;

bool starts_with(const std::string& text, const std::string& prefix) { return text.rfind(prefix, 0) == 0; }

bool ends_with(const std::string& text, const std::string& suffix) {
  return text.size() >= suffix.size() && text.compare(text.size() - suffix.size(), suffix.size(), suffix) == 0;
}

bool is_cpp(const std::string& path) {
  return ends_with(path, ".h") || ends_with(path, ".cc") || ends_with(path, ".cu") || ends_with(path, ".cuh");
}

bool is_source(const std::string& path) {
  const bool script = (starts_with(path, "scripts/") || starts_with(path, ".ci/")) && path.find('.', 4) == std::string::npos;
  return is_cpp(path) || ends_with(path, ".sh") || ends_with(path, ".go") || ends_with(path, "CMakeLists.txt") ||
         ends_with(path, ".cmake") || script;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

std::vector<SourceFile> read_tree(const fs::path& root) {
  std::vector<SourceFile> files;
  for (auto it = fs::recursive_directory_iterator(root); it != fs::recursive_directory_iterator(); ++it) {
    const std::string name = it->path().filename().string();
    if (it->is_directory()) {
      const bool hidden = name[0] == '.' && name != ".ci";
      const bool top = it->path().parent_path() == root;
      if (hidden || name == "__pycache__" || (top && (name == "build" || starts_with(name, "build-"))))
        it.disable_recursion_pending();
      continue;
    }
    if (!it->is_regular_file() || it->file_size() > 2'000'000) continue;
    std::ifstream in(it->path(), std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (text.find('\0') != std::string::npos) continue;  // not a text
    files.push_back({fs::relative(it->path(), root).generic_string(), std::move(text)});
  }
  std::sort(files.begin(), files.end(), [](const SourceFile& a, const SourceFile& b) { return a.path < b.path; });
  return files;
}

namespace {

// Copies text to out; `blank` keeps only the line breaks.
class Blanker {
 public:
  explicit Blanker(const std::string& text) : text_(text) { out_.reserve(text.size()); }

  std::string run() {
    while (at_ < text_.size()) {
      if (starts("//")) {
        blank_to(text_.find('\n', at_));
      } else if (starts("/*")) {
        const auto end = text_.find("*/", at_ + 2);
        blank_to(end == std::string::npos ? end : end + 2);
      } else if (starts("R\"") && (at_ == 0 || !word(text_[at_ - 1]))) {
        const auto open = text_.find('(', at_);
        if (open == std::string::npos) return out_;
        const std::string close = ")" + text_.substr(at_ + 2, open - at_ - 2) + "\"";
        const auto end = text_.find(close, open);
        blank_to(end == std::string::npos ? end : end + close.size());
      } else if (text_[at_] == '"' || (text_[at_] == '\'' && (at_ == 0 || !word(text_[at_ - 1])))) {
        literal(text_[at_]);
      } else {
        out_ += text_[at_++];
      }
    }
    return out_;
  }

 private:
  static bool word(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }
  bool starts(const char* what) const { return text_.compare(at_, 2, what) == 0; }

  void blank_to(std::size_t end) {
    end = std::min(end, text_.size());
    for (; at_ < end; ++at_) out_ += text_[at_] == '\n' ? '\n' : ' ';
  }

  void literal(char quote) {
    // An include's path is code, not a text.
    const auto line = text_.rfind('\n', at_) == std::string::npos ? 0 : text_.rfind('\n', at_) + 1;
    const bool include = text_.compare(line, 8, "#include") == 0;
    out_ += text_[at_++];
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\n') {
      if (text_[at_] == '\\') {
        blank_to(at_ + 2);
      } else if (include) {
        out_ += text_[at_++];
      } else {
        blank_to(at_ + 1);
      }
    }
    if (at_ < text_.size()) out_ += text_[at_++];
  }

  const std::string& text_;
  std::string out_;
  std::size_t at_ = 0;
};

}  // namespace

std::string code_only(const std::string& text) { return Blanker(text).run(); }

}  // namespace windlass::tidy
