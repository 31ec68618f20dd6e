// Reads the tree's text files, and separates code from comments and literals. Plain functions, any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace windlass::tidy {

struct SourceFile {
  std::string path;  // relative to the repository's root, with '/'
  std::string text;
};

// Every text file of the tree, sorted by path. Skips build folders, __pycache__, hidden folders except .ci, and files of more
// than 2 MB.
std::vector<SourceFile> read_tree(const std::filesystem::path& root);

std::vector<std::string> lines_of(const std::string& text);

// C++ with comments and the contents of string and character literals replaced by spaces. Line numbers stay. Understands raw
// strings.
std::string code_only(const std::string& text);

bool is_cpp(const std::string& path);     // .h .cc .cu .cuh
bool is_source(const std::string& path);  // C++, CMake, shell and Go sources: files that must open with a header paragraph
bool starts_with(const std::string& text, const std::string& prefix);
bool ends_with(const std::string& text, const std::string& suffix);

}  // namespace windlass::tidy
