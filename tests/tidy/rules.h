// The repository's rules: each function reads one file, or the tree, and returns what is wrong.
//
// A finding reads "PATH:LINE: must be RULE (got VALUE)". All functions are pure, except that docs_rules looks for files.
#pragma once

#include <string>
#include <vector>

#include "tests/tidy/source_text.h"

namespace windlass::tidy {

using Findings = std::vector<std::string>;

// Includes point one way. planner includes only itself, metrics planner/base, gateway planner/dispatch and metrics, worker
// metrics and planner/base, controller planner and metrics. Inside planner/, worker/ and controller/ a layer includes only the
// layers above it in rules.cc, and no strategy includes another.
Findings include_directions(const SourceFile& file);

// Only metrics/net/beast_parser.h, which turns assertions off, includes Beast's parser.
Findings beast_parser(const SourceFile& file);

// planner/ is pure: no clock, thread, file, socket, environment or logger.
Findings planner_purity(const SourceFile& file);

// A source opens with a comment that says what the file is for.
Findings header_paragraph(const SourceFile& file);

// A source has at most 800 lines.
Findings file_size(const SourceFile& file);

// A function has at most 100 lines; CUDA kernels and tests may be longer. Functions are found by the shape that clang-format
// gives them: a head with parentheses that ends in "{", and "}" below it at the same indentation.
Findings function_size(const SourceFile& file);

// No file names a package or image registry; the machine's configuration does.
Findings registry_hosts(const SourceFile& file);

// pip installs only from requirements files, and each line of such a file has a version and a hash.
Findings pinned_wheels(const SourceFile& file);

// No marks of unfinished work.
Findings unfinished(const SourceFile& file);

// A comment above each test says what is given and expected. No test sleeps or is switched off, a skip says why, and a file
// with tests asserts something.
Findings test_manners(const SourceFile& file);

// In Markdown, relative links lead to existing files, and commands (scripts/X, build/PRESET/PROGRAM) exist.
Findings docs_rules(const SourceFile& file, const std::vector<SourceFile>& tree, const std::filesystem::path& root);

// Each top-level folder has a README.md of 3 to 40 lines.
Findings folder_readmes(const std::vector<SourceFile>& tree);

}  // namespace windlass::tidy
