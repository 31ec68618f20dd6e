// Reads the Dockerfiles of scripts/images as text, for the tests in this folder.
#pragma once

#include <set>
#include <string>
#include <vector>

namespace windlass::testing {

extern const std::string kImages;  // the folder

[[nodiscard]] std::vector<std::string> words_of(const std::string& text);
[[nodiscard]] std::vector<std::string> lines_of(const std::string& text);

// The X of each Dockerfile.X.
[[nodiscard]] std::set<std::string> dockerfiles();
// The text of Dockerfile.IMAGE.
[[nodiscard]] std::string dockerfile(const std::string& image);

// The packages in ARG RUNTIME_PACKAGES="...".
[[nodiscard]] std::set<std::string> runtime_packages(const std::string& text);
// The programs that the last stage copies from /build.
[[nodiscard]] std::vector<std::string> programs(const std::string& text);

}  // namespace windlass::testing
