// Text from token bytes: valid UTF-8 at every moment, stop strings wherever tokens split them.
#include "worker/engine/text_stream.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::worker {
namespace {

// Whether the text is valid UTF-8, checked independently: nlohmann-json refuses to print invalid text.
bool valid_utf8(const std::string& text) {
  try {
    return !nlohmann::json(text).dump().empty();
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

// Given a character split into single bytes; expects no output until it is complete.
TEST(Utf8Stream, HoldsBackIncompleteCharacters) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("a\xF0"), "a");
  EXPECT_EQ(stream.push("\x9F"), "");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80z"), "\xF0\x9F\x98\x80z");
  EXPECT_EQ(stream.finish(), "");
}

// Given invalid bytes; expects one U+FFFD per maximal subpart, as in the examples of Unicode 15, section 3.9.
TEST(Utf8Stream, ReplacesInvalidBytes) {
  const std::string r = "\xEF\xBF\xBD";
  const auto whole = [](const std::string& bytes) {
    Utf8Stream stream;
    std::string out = stream.push(bytes);
    return out + stream.finish();
  };
  EXPECT_EQ(whole("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41"), r + r + r + r + r + r + r + r + "A");    // table 3-8
  EXPECT_EQ(whole("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41"), r + r + r + r + r + r + r + r + "A");    // table 3-9
  EXPECT_EQ(whole("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42"), r + r + r + r + r + "A" + r + r + "B");  // table 3-10
  EXPECT_EQ(whole("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41"), r + r + r + r + "A");                    // table 3-11
  EXPECT_EQ(whole("\xE2\x82"), r);
}

// Given thousands of strings of random bytes split at random places; expects every piece to be valid UTF-8, the whole to be
// independent of the splits, and valid text to be unchanged.
TEST(Utf8Stream, CutsDoNotMatter) {
  Rng rng(2, "utf8");
  for (int i = 0; i < effort(500, 5000); ++i) {
    std::string bytes;
    for (std::int64_t n = rng.integer(0, 12); n > 0; --n) {
      static const char* const kParts[] = {"é", "日", "😀", "a", "\xF0\x9F", "\x80", "\xE2", "\xFF"};
      bytes +=
          rng.uniform() < 0.8 ? std::string(kParts[rng.integer(0, 7)]) : std::string(1, static_cast<char>(rng.integer(0, 255)));
    }
    Utf8Stream at_once;
    std::string expected = at_once.push(bytes);
    expected += at_once.finish();
    Utf8Stream cut;
    std::string found;
    for (std::size_t at = 0; at < bytes.size();) {
      const auto n = static_cast<std::size_t>(rng.integer(1, 4));
      const std::string piece = cut.push(std::string_view(bytes).substr(at, n));
      ASSERT_TRUE(valid_utf8(piece));
      found += piece;
      at += n;
    }
    found += cut.finish();
    ASSERT_EQ(found, expected);
    if (valid_utf8(bytes)) {
      ASSERT_EQ(found, bytes);
    }
  }
}

// Given "END" in three tokens; expects the text before it, none of it, and text that may begin it to be held back.
TEST(TextStream, StopStringAcrossTokens) {
  TextStream stream({"END"});
  EXPECT_EQ(stream.push("so E").text, "so ");
  EXPECT_EQ(stream.push("N").text, "");
  const auto last = stream.push("Dxyz");
  EXPECT_TRUE(last.stopped);
  EXPECT_EQ(last.text, "");
}

// Given the beginning of a stop string that continues differently; expects the held text to be released, at the latest at the
// end.
TEST(TextStream, FalseAlarmIsReleased) {
  TextStream stream({"END", "\n\n"});
  EXPECT_EQ(stream.push("E").text, "");
  EXPECT_EQ(stream.push("EN").text, "E");
  EXPECT_EQ(stream.push("d\n").text, "ENd");
  EXPECT_EQ(stream.finish(), "\n");
}

// Given thousands of random texts, stop strings and splits; expects the text to end before the first stop string that any
// prefix of the text completes, and otherwise to be the whole text.
TEST(TextStream, MatchesASearchInTheWholeText) {
  Rng rng(4, "stops");
  for (int i = 0; i < effort(500, 5000); ++i) {
    const auto random_text = [&](std::int64_t longest) {
      std::string text;
      for (std::int64_t n = rng.integer(1, longest); n > 0; --n) text += static_cast<char>('a' + rng.integer(0, 2));
      return text;
    };
    const std::string text = random_text(30);
    std::vector<std::string> stops;
    for (std::int64_t n = rng.integer(1, 3); n > 0; --n) stops.push_back(random_text(4));
    // The stop string that is complete first ends generation (tokens are one byte here); of several, the one that begins first.
    std::string expected = text;
    bool found_stop = false;
    for (std::size_t n = 1; n <= text.size() && !found_stop; ++n) {
      std::size_t first = std::string::npos;
      for (const auto& stop : stops) first = std::min(first, text.substr(0, n).find(stop));
      if (first == std::string::npos) continue;
      expected = text.substr(0, first);
      found_stop = true;
    }
    TextStream stream(stops);
    std::string found;
    bool stopped = false;
    for (std::size_t at = 0; at < text.size() && !stopped; ++at) {
      const auto piece = stream.push(std::string_view(text).substr(at, 1));
      found += piece.text;
      stopped = piece.stopped;
    }
    if (!stopped) found += stream.finish();
    ASSERT_EQ(found, expected) << text;
    ASSERT_EQ(stopped, found_stop);
  }
}

}  // namespace
}  // namespace windlass::worker
