// The repository's rules, one function each: from one file (or the tree) to what is wrong with it.
//
// A finding reads "PATH:LINE: what was found; what is allowed". Pure but for docs_rules' look at which files exist.
#pragma once

#include <string>
#include <vector>

#include "tests/tidy/source_text.h"

namespace windlass::tidy {

using Findings = std::vector<std::string>;

// Includes point one way: planner to itself, metrics to planner/base, gateway to planner/dispatch and metrics, worker to
// metrics and planner/base, controller to planner and metrics; inside planner/, worker/ and controller/ each layer sees those
// above it in rules.cc's list, and no strategy sees another.
Findings include_directions(const SourceFile& file);

// Beast's parser is included without its assertions, by everybody.
Findings beast_parser(const SourceFile& file);

// planner/ is pure: no clock, thread, file, socket, environment or logger.
Findings planner_purity(const SourceFile& file);

// A source opens with a comment that says what the file is for.
Findings header_paragraph(const SourceFile& file);

// At 800 lines a file wants to be two rooms.
Findings file_size(const SourceFile& file);

// A function of more than 100 lines wants a name for each of its steps. Functions are found by the shape that clang-format
// gives them: a head with parentheses that ends in "{", and "}" below it at the same indentation. CUDA kernels and the bodies
// of tests may be longer.
Findings function_size(const SourceFile& file);

// No package or image registry is named: mirrors come from the machine's own configuration.
Findings registry_hosts(const SourceFile& file);

// pip installs nothing but the versions and hashes of a requirements file, and such a file has both on each line.
Findings pinned_wheels(const SourceFile& file);

// No marks of unfinished work.
Findings unfinished(const SourceFile& file);

// Tests: a line above each says what is given and expected; none sleeps, none is switched off, a skip says why, files with
// tests assert.
Findings test_manners(const SourceFile& file);

// Relative links of a Markdown file lead to files of the tree; commands in its fences (scripts/X, build/PRESET/PROGRAM) exist.
Findings docs_rules(const SourceFile& file, const std::vector<SourceFile>& tree, const std::filesystem::path& root);

// Each top-level folder has a README.md of a size that is read.
Findings folder_readmes(const std::vector<SourceFile>& tree);

}  // namespace windlass::tidy
