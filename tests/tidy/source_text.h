// Reading the tree: which files there are, and the text of one seen as lines of code and of comment.
//
// Owned by tests/tidy; plain functions, any thread.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace windlass::tidy {

struct SourceFile {
  std::string path;  // relative to the repository's root, with '/'
  std::string text;
};

// Every text file of the tree in the order of its path; skipped are .git, build folders, editors' and tools' dot folders (.ci
// is not) and what programs leave behind at run time.
std::vector<SourceFile> read_tree(const std::filesystem::path& root);

std::vector<std::string> lines_of(const std::string& text);

// C++ text with comments and the contents of string and character literals blanked out; lines keep their numbers. Raw strings
// are understood.
std::string code_only(const std::string& text);

bool is_cpp(const std::string& path);     // .h .cc .cu .cuh
bool is_source(const std::string& path);  // C++, CMake, shell and Go sources: what shall open with a header paragraph
bool starts_with(const std::string& text, const std::string& prefix);
bool ends_with(const std::string& text, const std::string& suffix);

}  // namespace windlass::tidy
