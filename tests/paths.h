// Where this checkout and its build folder are.
//
// Only paths.cc knows the two folders: a macro in every test would give each clone compiler calls of its own, and the compiler
// cache would never hit in a second one.
#pragma once

#include <string>
#include <string_view>

namespace windlass {

// The path of `below` in the source tree: source_path("/examples/tiny.yaml"); without an argument, the tree itself.
[[nodiscard]] std::string source_path(std::string_view below = "");
// The path of `below` in the build folder: build_path("/windlass-worker").
[[nodiscard]] std::string build_path(std::string_view below = "");

}  // namespace windlass
