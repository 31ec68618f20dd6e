// Tests the screen of `windlass top`: what fits, in which order, and the keys.
#include "controller/cli/top/top_screen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/text_table.h"

namespace windlass::cli {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

ServiceRow service(const std::string& name, double arrivals_per_s, std::optional<double> ttft_s, double attainment) {
  ServiceRow row;
  row.name_space = "default";
  row.name = name;
  row.ready = row.desired = 1;
  row.arrivals_per_s = arrivals_per_s;
  row.ttft_s = ttft_s;
  row.ttft_slo_s = 0.5;
  row.tpot_slo_s = 0.05;
  row.attainment = attainment;
  return row;
}

std::vector<std::string> texts(const std::vector<ScreenLine>& lines) {
  std::vector<std::string> out;
  for (const ScreenLine& line : lines) out.push_back(line.text);
  return out;
}

// The names of the visible services, from the top.
std::vector<std::string> order(const TopScreen& screen, std::size_t height = 24) {
  std::vector<std::string> names;
  const auto lines = texts(screen.lines(80, height));
  for (std::size_t i = 2; i < lines.size() && lines[i].starts_with("default/"); ++i)
    names.push_back(lines[i].substr(8, lines[i].find(' ') - 8));
  return names;
}

TopScreen three() {
  TopScreen screen;
  screen.take({service("b", 2, 0.1, 0.5), service("a", 1, std::nullopt, 1), service("c", 3, 0.3, 0.9)});
  return screen;
}

// Given services and terminals of any size; expects exactly the terminal's lines, each exactly its width.
TEST(TopScreen, FillsEverySize) {
  TopScreen screen = three();
  ServiceRow troubled = service(std::string(60, 'x'), 1, 0.1, 1);
  troubled.trouble_code = "InsufficientCapacity";
  troubled.trouble =
      "3 workers of 1 x l4 are needed, but only 2 can get GPUs; and so on, for more than the width of a terminal, in “words”";
  screen.take({service("a", 1, 0.1, 1), troubled});
  for (const int times : {0, 1}) {
    for (const std::size_t width : {1, 10, 40, 80, 120, 300}) {
      for (const std::size_t height : {0, 1, 2, 3, 5, 11, 12, 24, 40}) {
        const auto lines = screen.lines(width, height, times == 0 ? "" : "no data for 3 s");
        EXPECT_EQ(lines.size(), height);
        for (const ScreenLine& line : lines)
          EXPECT_TRUE(line.text.empty() || width_of(line.text) == width) << width << "x" << height << ": " << line.text;
      }
    }
    (void)screen.press('j');
  }
}

// Given 80 columns; expects the figures of all services and, for the selected one, its objective, trouble and history.
TEST(TopScreen, ShowsAllThatMattersIn80Columns) {
  TopScreen screen;
  ServiceRow row = service("tiny", 3.5, 0.123, 0.995);
  row.burn_rate = 0.6;
  row.trouble_code = "MaxWorkers";
  row.trouble = "4 workers are needed";
  screen.take({row});
  const auto lines = texts(screen.lines(80, 24));
  EXPECT_EQ(lines[0], fitted("windlass: 1 service, 1 of 1 worker ready, 0.00 per hour", 80));
  EXPECT_EQ(lines[1], fitted("SERVICE▲      READY   ATTAINED     TTFT/SLO  TPOT/SLO  REQ/S  QUEUE  COST/H", 80));
  EXPECT_EQ(lines[2], fitted("default/tiny    1/1  99.5%/95%  123ms/500ms  -/50.0ms    3.5      -    0.00", 80));
  EXPECT_EQ(lines[4], fitted("default/tiny: 95 % within TTFT 500ms and TPOT 50.0ms; 0 starting, 0 draining, 0", 80));
  EXPECT_EQ(lines[6], fitted("burn rate 0.6 over 1m (above 1: too many miss), slack TTFT 75.4%, TPOT -", 80));
  EXPECT_EQ(lines[7], fitted("MaxWorkers: 4 workers are needed", 80));
  EXPECT_EQ(lines[8], fitted("req/s, max 3.5        █", 80));
  EXPECT_EQ(lines[9], fitted("attained, of 100 %    █", 80));
  EXPECT_THAT(lines[23], HasSubstr("q quit"));
}

// Given keys; expects the rows sorted by their column, reversed on the second press, and unknown values last.
TEST(TopScreen, SortsByKeys) {
  TopScreen screen = three();
  EXPECT_THAT(order(screen), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(screen.press('n'));
  EXPECT_THAT(order(screen), ElementsAre("c", "b", "a"));
  EXPECT_TRUE(screen.press('t'));
  EXPECT_THAT(order(screen), ElementsAre("c", "b", "a"));
  EXPECT_TRUE(screen.press('t'));
  EXPECT_THAT(order(screen), ElementsAre("b", "c", "a"));
  EXPECT_TRUE(screen.press('r'));
  EXPECT_THAT(order(screen), ElementsAre("c", "b", "a"));
  EXPECT_TRUE(screen.press('a'));
  EXPECT_THAT(order(screen), ElementsAre("b", "c", "a"));
  EXPECT_FALSE(screen.press('x'));
}

// Given more services than lines; expects the selected one to stay in view, also after sorting.
TEST(TopScreen, FollowsTheSelectedService) {
  TopScreen screen;
  std::vector<ServiceRow> rows;
  for (char c = 'a'; c <= 't'; ++c) rows.push_back(service(std::string(1, c), c, 0.1, 1));
  screen.take(rows);
  EXPECT_THAT(order(screen, 8), ElementsAre("a", "b", "c", "d", "e"));
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(screen.press(i % 2 == 0 ? kKeyDown : 'j'));
  EXPECT_THAT(order(screen, 8), ElementsAre("c", "d", "e", "f", "g"));
  EXPECT_TRUE(screen.press(kKeyPageDown));
  EXPECT_TRUE(screen.press(kKeyPageDown));
  EXPECT_THAT(order(screen, 8), ElementsAre("p", "q", "r", "s", "t"));
  EXPECT_TRUE(screen.press('r'));
  EXPECT_THAT(order(screen, 8), ElementsAre("t", "s", "r", "q", "p"));
}

// Given rows that could not be updated; expects the reason in the first line, and no row that looks current.
TEST(TopScreen, SaysThatRowsAreOld) {
  const auto lines = three().lines(80, 8, "no data for 3 s: nobody listens");
  EXPECT_EQ(lines[0].text, fitted("no data for 3 s: nobody listens", 80));
  for (std::size_t i = 3; i < 5; ++i) EXPECT_EQ(lines[i].style, ScreenLine::Style::kDim);
}

// Given values, some missing; expects a block of proportional height for each, and a space for missing ones.
TEST(Sparkline, HasABlockForEachValue) {
  EXPECT_EQ(sparkline({0.0, 1.0, std::nullopt, 7.0, 9.0}, 7), "▁▂ ██");
  EXPECT_EQ(sparkline({0.0, std::nullopt}, 0), "▁ ");
  EXPECT_EQ(sparkline({}, 1), "");
}

}  // namespace
}  // namespace windlass::cli
