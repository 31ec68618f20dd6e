// The rules of plain English on good and bad samples; tidy_test.cc applies them to the tree.
#include "tests/tidy/english.h"

#include <filesystem>
#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "tests/paths.h"

namespace windlass::tidy {
namespace {

std::string read(const std::string& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

// Phrases as words.txt has them, written in halves, or this file would be the first finding.
const std::string kAgain = std::string("an") + "ew", kCount = std::string("so ma") + "ny";
const std::string kPatterns = kAgain + "\n" + kCount + "\nthat there (is|ar" + "e)\nkMo" + "st[A-Z][A-Za-z]*\n";

std::size_t phrases_in(const std::string& path, const std::string& text) {
  return avoided_phrases({path, text}, parse_phrases(kPatterns).value()).size();
}

// Given a file with two phrases to avoid, expects both to be found with their lines.
TEST(EnglishRules, PhrasesAreFoundWithTheirLine) {
  const SourceFile file{"gateway/a.cc", "int a;\n// Reads it " + kAgain + ".\nint b;  // " + kCount + " times\n"};
  EXPECT_EQ(avoided_phrases(file, parse_phrases(kPatterns).value()),
            (Findings{"gateway/a.cc:2: '" + kAgain + "': is a phrase to avoid (tests/tidy/words.txt)",
                      "gateway/a.cc:3: '" + kCount + "': is a phrase to avoid (tests/tidy/words.txt)"}));
}

// Given a phrase broken across two lines of a comment, of a paragraph or of a string literal, expects it to be found.
TEST(EnglishRules, PhrasesAreFoundAcrossLines) {
  EXPECT_EQ(phrases_in("gateway/a.cc",
                       "// It tries so\n  // ma"
                       "ny times.\n"),
            1u);
  EXPECT_EQ(phrases_in("docs/a.md",
                       "It tries so\n  ma"
                       "ny times.\n"),
            1u);
  EXPECT_EQ(phrases_in("gateway/a.cc",
                       "f(\"tries so \"\n  \"ma"
                       "ny times\");\n"),
            1u);
  EXPECT_EQ(phrases_in("scripts/a",
                       "# Tries so\n# ma"
                       "ny times.\n"),
            1u);
}

// Given phrases in capitals, expects them to be found, but for a pattern with a capital letter of its own.
TEST(EnglishRules, CaseCountsOnlyWhereThePatternHasIt) {
  EXPECT_EQ(phrases_in("gateway/a.cc", "// S" + kCount.substr(1) +
                                           " times.\n// So ma"
                                           "ny times.\n"),
            2u);
  EXPECT_EQ(phrases_in("gateway/a.cc",
                       "int kMo"
                       "stRequests;\n"),
            1u);
  EXPECT_EQ(phrases_in("gateway/a.cc", "int kmostrequests, kMos;\n"), 0u);
}

// Given words that only contain a phrase, data files and quotes in Markdown, expects no finding.
TEST(EnglishRules, PartsOfWordsDataAndQuotesAreLeftAlone) {
  EXPECT_EQ(phrases_in("gateway/a.cc", "// " + kAgain + "t x" + kAgain + " so  m any, that there was\n"), 0u);
  EXPECT_EQ(phrases_in("tests/golden/a.txt", kAgain + "\n"), 0u);
  EXPECT_EQ(phrases_in("tests/tidy/words.txt", kAgain + "\n"), 0u);
  EXPECT_EQ(phrases_in("docs/a.md", "> Reads it " + kAgain + "\n"), 0u);
  EXPECT_EQ(phrases_in("docs/a.md", "Reads it " + kAgain + "\n"), 1u);
}

// Given a list with a line that begins with an operator, or with one letter and an operator, expects it to be refused.
TEST(EnglishRules, PatternsBeginWithPlainCharacters) {
  EXPECT_EQ(parse_phrases("gone by\n\nwho sees\n").value().size(), 2u);
  EXPECT_FALSE(parse_phrases("gone by\n(is|are) seen\n"));
  EXPECT_FALSE(parse_phrases("a.*b\n"));
}

// Given a sentence of 36 words over two lines, expects it to be found by its start; one of 35 words is allowed.
TEST(EnglishRules, LongSentencesAreFound) {
  const std::string many = repeated("word ", 30);
  EXPECT_EQ(long_sentences({"docs/a.md", "Short one.\nThe sentence begins\nhere and " + many + "ends.\nAnother one.\n"}),
            Findings{"docs/a.md:2: sentence 'The sentence begins here and word ...' must have at most 35 words (got 36)"});
  EXPECT_TRUE(long_sentences({"docs/a.md", "Sentence begins here and " + many + "ends.\n"}).empty());
  EXPECT_TRUE(long_sentences({"docs/a.txt", repeated("word ", 60)}).empty());
}

// Given sentences that end in a full stop, a question, quotation marks or emphasis, expects each to be counted by itself.
TEST(EnglishRules, SentencesEndAtTheirMarks) {
  const std::string half = repeated("word ", 20);
  const auto joined_by = [&half](const std::string& end) {
    return long_sentences({"docs/a.md", std::string(half).append(end).append(half)}).size();
  };
  for (const char* end : {"end. ", "end? ", "end! ", "end.) ", "\"end.\" ", "**end.** "}) {
    EXPECT_EQ(joined_by(end), 0u) << end;
  }
  for (const char* end : {"1.5 ", "end; ", "end: ", "end, "}) {
    EXPECT_EQ(joined_by(end), 1u) << end;
  }
}

// Given lists, tables, headings, quotes and code, expects that none of them adds up to one long sentence.
TEST(EnglishRules, OnlyProseMakesSentences) {
  const std::string half = repeated("word ", 20), full = repeated("word ", 40);
  EXPECT_TRUE(long_sentences({"docs/a.md", "- " + half + "\n- " + half + "\n  1. " + half + "\n"}).empty());
  EXPECT_TRUE(long_sentences({"docs/a.md", half + "\n\n" + half + "\n"}).empty());
  EXPECT_TRUE(long_sentences({"docs/a.md", "# " + full + "\n| " + full + "|\n> " + full + "\n"}).empty());
  EXPECT_TRUE(long_sentences({"docs/a.md", "```\n" + full + "\n```\n\n    " + full + "\n    " + full + "\n"}).empty());
  EXPECT_TRUE(long_sentences({"docs/a.md", half + "`" + full + "` and [ten](" + full + ") words\n"}).empty());
  EXPECT_EQ(long_sentences({"docs/a.md", "```\ncode\n```\n- " + half + "\n  " + half + "\n"}).size(), 1u);
}

// Given pages of docs/ and the main README one line below and above their limits, expects the longer ones to be found.
TEST(EnglishRules, LongPagesAreFound) {
  EXPECT_TRUE(long_pages({"docs/a.md", repeated("a\n", 200)}).empty());
  EXPECT_EQ(long_pages({"docs/decisions/a.md", repeated("a\n", 201)}),
            Findings{"docs/decisions/a.md:201: page must have at most 200 lines (got 201)"});
  EXPECT_TRUE(long_pages({"README.md", repeated("a\n", 150)}).empty());
  EXPECT_EQ(long_pages({"README.md", repeated("a\n", 151)}).size(), 1u);
  EXPECT_TRUE(long_pages({"CHANGELOG.md", repeated("a\n", 300)}).empty());
}

// Given a tree with two offenders, expects both; without its list of phrases, expects that alone.
TEST(EnglishRules, TheWholeTreeIsRead) {
  const SourceFile words{"tests/tidy/words.txt", kPatterns};
  const SourceFile one{"gateway/a.cc", "// " + kAgain + "\n"}, other{"worker/a.cc", "// " + kAgain + "\n"};
  EXPECT_EQ(plain_english({words, one, other}).size(), 2u);
  EXPECT_EQ(plain_english({one}), Findings{"tests/tidy/words.txt: must list the phrases to avoid"});
}

// Given the list of words that all repositories of the house share, expects the copy next to this test to be the same.
TEST(EnglishRules, WordsAreTheSharedOnes) {
  const std::string shared = source_path("/../shared/words.txt");
  if (!std::filesystem::exists(shared)) GTEST_SKIP() << "needs ../shared/words.txt next to the checkout, found none";
  EXPECT_EQ(read(source_path("/tests/tidy/words.txt")), read(shared));
}

}  // namespace
}  // namespace windlass::tidy
