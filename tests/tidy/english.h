// The rules of plain English: words to avoid everywhere, long sentences and long pages in Markdown. shared/style.md says why.
//
// A block quote in Markdown ("> ...") is somebody else's text, or an example of what not to write, and no rule reads it.
// Pure functions, any thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/tidy/rules.h"

namespace windlass::tidy {

// A phrase to avoid, from one line of words.txt: a regular expression that begins with at least three plain characters. With
// a capital letter in it, case counts. It is found as whole words only.
struct AvoidedPhrase {
  std::string pattern;
  std::string start;  // its plain characters up to the first operator, in lower case unless case counts
  bool case_counts = false;
};

// One phrase per line; empty lines are skipped. Empty: a line does not begin with three plain characters.
std::optional<std::vector<AvoidedPhrase>> parse_phrases(std::string_view text);

// Every phrase in the text, also where a line break, a comment mark or a split string literal stands inside of it.
Findings avoided_phrases(const SourceFile& file, const std::vector<AvoidedPhrase>& phrases);

// Sentences of more than 35 words in Markdown. Code, tables, headings and link targets do not count; `code` is one word. A
// paragraph, a list item or ". ", "! ", "? " ends a sentence.
Findings long_sentences(const SourceFile& file);

// Pages of docs/ with more than 200 lines, and a README.md of the whole with more than 150.
Findings long_pages(const SourceFile& file);

// All three rules over the tree, with the phrases of its tests/tidy/words.txt.
Findings plain_english(const std::vector<SourceFile>& tree);

}  // namespace windlass::tidy
