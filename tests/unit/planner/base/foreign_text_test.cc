// Tests of cutting lines from foreign text and of showing it on one line.
#include "planner/base/foreign_text.h"

#include <gtest/gtest.h>

namespace windlass {
namespace {

// Given lines that end in LF, CR LF or the end of the text; expects each without its line end, including an empty one, and then
// nothing.
TEST(ForeignText, CutsLines) {
  std::string_view text = "a,b\r\n\nc\rd\r\nlast\r";
  EXPECT_EQ(take_line(text), "a,b");
  EXPECT_EQ(take_line(text), "");
  EXPECT_EQ(take_line(text), "c\rd");
  EXPECT_EQ(take_line(text), "last");
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(take_line(text), "");
}

// Given letters of any script; expects them unchanged. Given control characters, line separators and invalid UTF-8; expects
// question marks. Given more than 60 bytes; expects them cut.
TEST(ForeignText, ShowsOneLine) {
  EXPECT_EQ(shown_text("größe"), "größe");
  EXPECT_TRUE(is_printable("größe"));
  for (const char* bad : {"a\tb", "a\nb",
                          "a\x7f"
                          "b",
                          "a\xff"
                          "b",
                          "a\xe2\x80\xa8"
                          "b",
                          "a\xc2\x85"
                          "b"}) {
    EXPECT_FALSE(is_printable(bad));
    EXPECT_EQ(shown_text(bad).substr(0, 2), "a?") << bad;
    EXPECT_EQ(shown_text(bad).find('\n'), std::string::npos);
    EXPECT_TRUE(shown_text(bad).ends_with("b"));
  }
  EXPECT_EQ(shown_text(std::string(60, 'x')), std::string(60, 'x'));
  EXPECT_EQ(shown_text(std::string(61, 'x')), std::string(60, 'x') + "...");
}

}  // namespace
}  // namespace windlass
