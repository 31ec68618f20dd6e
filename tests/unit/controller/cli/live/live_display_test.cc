// Tests the live display: changes on a plain output, one redrawn table on a terminal.
#include "controller/cli/live/live_display.h"

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace windlass::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

ServiceRow row(int ready) {
  ServiceRow out;
  out.name_space = "default";
  out.name = "tiny";
  out.desired = 3;
  out.ready = ready;
  return out;
}

int lines(const std::string& text) { return static_cast<int>(std::count(text.begin(), text.end(), '\n')); }

// Given no terminal; expects a line when workers change, none while nothing does, and one after the quiet period.
TEST(LiveDisplay, PrintsChangesWithoutTerminal) {
  std::ostringstream out;
  Console console{out, out, false};
  LiveDisplay display(console, 10);
  display.show(1, {row(1)});
  display.show(2, {row(1)});
  EXPECT_EQ(lines(out.str()), 1);
  display.show(3, {row(2)});
  EXPECT_EQ(lines(out.str()), 2);
  display.show(14, {row(2)});
  EXPECT_EQ(lines(out.str()), 3);
  EXPECT_THAT(out.str(), Not(HasSubstr("\x1b")));
}

// Given no terminal and the same message twice; expects it once.
TEST(LiveDisplay, PrintsAMessageOnce) {
  std::ostringstream out;
  Console console{out, out, false};
  LiveDisplay display(console);
  display.say("waiting");
  display.say("waiting");
  EXPECT_EQ(out.str(), "waiting\n");
}

// Given a terminal; expects the second table to start by moving up over the first.
TEST(LiveDisplay, RedrawsOnTerminal) {
  std::ostringstream out;
  Console console{out, out, true};
  LiveDisplay display(console);
  display.show(1, {row(1)}, "Ctrl-C stops everything.");
  EXPECT_THAT(out.str(), Not(HasSubstr("A\x1b[J")));
  display.show(2, {row(1)}, "Ctrl-C stops everything.");
  EXPECT_THAT(out.str(), HasSubstr("\x1b[3A\x1b[J"));
}

}  // namespace
}  // namespace windlass::cli
