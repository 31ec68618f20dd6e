// Tests of which waiting request gets the next turn.
#include "planner/dispatch/waiting_line.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <map>
#include <string>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::dispatch {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// Takes the next turn, and returns whose it was.
std::uint64_t turn(WaitingLine& line, double now_s, double margin_s = 0) {
  const auto next = line.next(now_s, margin_s);
  if (!next) return 0;
  line.take(next->place);
  return next->id;
}

// Given two late requests and two that can be in time, with a margin of half a second; expects those in time to go first by
// deadline, then the late ones by arrival.
TEST(WaitingLine, RequestsInTimeGoFirst) {
  WaitingLine line;
  line.join(1, 11, 1.0);
  line.join(2, 12, 1.4);
  line.join(3, 13, 1.6);
  line.join(4, 14, 2.0);
  EXPECT_EQ(line.next(1, 0.5)->id, 13U);
  EXPECT_EQ(line.late(), 2U);
  for (const std::uint64_t id : {13, 14, 11, 12, 0}) EXPECT_EQ(turn(line, 1, 0.5), id);
}

// Given the same under QueueOrder::kArrival, and requests without an objective; expects first come, first served.
TEST(WaitingLine, ByArrival) {
  WaitingLine fifo(QueueOrder::kArrival);
  WaitingLine free;
  for (std::uint64_t i = 1; i <= 4; ++i) {
    fifo.join(i, i, i < 3 ? 0.5 : 5);
    free.join(i, i, kNever);
  }
  for (const std::uint64_t id : {1, 2, 3, 4}) {
    EXPECT_FALSE(fifo.overtaken(id));
    EXPECT_EQ(turn(fifo, 1), id);
    EXPECT_EQ(turn(free, 1), id);
  }
  EXPECT_TRUE(fifo.empty() && free.empty());
}

// Given a late request and a line that newcomers keep full; expects it to wait for kTurns turns, not for ever, and to be
// reported as overtaken from the turn that was its own by arrival.
TEST(WaitingLine, NobodyStarves) {
  WaitingLine line;
  line.join(1, 1, 0);
  std::uint64_t place = 2;
  for (int i = 1; i < WaitingLine::kTurns; ++i) {
    line.join(place, place, 100);
    EXPECT_EQ(turn(line, 1), place++);
    EXPECT_TRUE(line.overtaken(1));
  }
  line.join(place, place, 100);
  EXPECT_FALSE(line.overtaken(place));
  EXPECT_EQ(turn(line, 1), 1U);
  EXPECT_EQ(turn(line, 1), place);
}

// Given a request that got its turn and returns because no slot took it, while another waits behind it; expects that the other
// was not overtaken.
TEST(WaitingLine, ReturningRequestsOvertakeNobody) {
  WaitingLine line(QueueOrder::kArrival);
  line.join(1, 1, 0);
  EXPECT_EQ(turn(line, 1), 1U);
  line.join(2, 2, 0);
  line.give_back();
  line.join(1, 1, 0);
  EXPECT_EQ(turn(line, 1), 1U);
  EXPECT_FALSE(line.overtaken(2));
}

// Given a request that leaves, one that returns to its old place, and a line that is emptied; expects arrival order throughout.
TEST(WaitingLine, LeavingAndComingBack) {
  WaitingLine line;
  for (std::uint64_t i = 1; i <= 3; ++i) line.join(i, i, 9);
  EXPECT_TRUE(line.leave(2));
  EXPECT_FALSE(line.leave(2));
  EXPECT_EQ(turn(line, 0), 1U);
  line.join(1, 1, 9);
  EXPECT_FALSE(line.overtaken(1));
  EXPECT_EQ(line.next(0, 0)->id, 1U);
  const auto all = line.take_all();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all.front().id, 1U);
  EXPECT_EQ(all.back().id, 3U);
  EXPECT_FALSE(line.next(0, 0).has_value());
}

// Given random histories of arrivals, departures and turns, and a queue by arrival with the same events; expects both to have
// the same number waiting, every request to be served within kTurns times its turns by arrival, and none in time to wait behind
// one that came later with a later deadline.
TEST(WaitingLine, BoundsOverRandomHistories) {
  for (std::uint64_t seed = 1; seed <= effort(50U, 300U); ++seed) {
    Rng rng(seed, "line");
    WaitingLine line;
    struct Mine {
      double deadline_s = 0;
      std::uint64_t ahead = 0, since = 0;  // requests ahead on arrival; turns taken by then
    };
    std::map<std::uint64_t, Mine> waiting;
    std::uint64_t turns = 0, place = 0;
    double now_s = 0;
    for (int i = 0; i < 600; ++i) {
      now_s += rng.uniform();
      const auto what = rng.integer(0, 9);
      if (what < 5) {
        ++place;
        const double deadline_s = now_s + 4;
        waiting[place] = {deadline_s, waiting.size(), turns};
        line.join(place, place, deadline_s);
      } else if (what == 5 && !waiting.empty()) {
        const auto who = std::next(waiting.begin(), rng.integer(0, static_cast<std::int64_t>(waiting.size()) - 1))->first;
        waiting.erase(who);
        ASSERT_TRUE(line.leave(who));
      } else if (const auto next = line.next(now_s, 1)) {
        for (const auto& [other, mine] : waiting) {
          if (other < next->place) {
            ASSERT_LT(mine.deadline_s, now_s + 1) << "seed " << seed;
          }
        }
        ++turns;
        line.take(next->place);
        waiting.erase(next->place);
      }
      ASSERT_EQ(line.size(), waiting.size());
      for (const auto& [who, mine] : waiting) {
        ASSERT_LE(turns - mine.since, WaitingLine::kTurns * (mine.ahead + 1)) << "seed " << seed << ", place " << who;
      }
    }
  }
}

// Given names of orders, and an unknown one; expects the orders, and an error with the allowed names.
TEST(WaitingLine, OrdersByName) {
  EXPECT_EQ(queue_order_from_string("arrival").value(), QueueOrder::kArrival);
  EXPECT_EQ(queue_order_from_string(to_string(QueueOrder::kObjective)).value(), QueueOrder::kObjective);
  const auto wrong = queue_order_from_string("fifo");
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("objective or arrival"), std::string::npos);
}

// Given exponential times with a mean of 0.1 s; expects the tail near their 98th percentile, 0.39 s. Before the first one
// expects a tenth of the objective, and never so much that a new request would be late.
TEST(FirstTokenTail, IsLearned) {
  FirstTokenTail tail;
  EXPECT_DOUBLE_EQ(tail.margin_s(2), 0.2);
  Rng rng(3, "times");
  double sum = 0;
  for (int i = 0; i < 4000; ++i) {
    tail.observe(rng.exponential(10));
    if (i >= 2000) sum += tail.margin_s(2) / 2000;
  }
  EXPECT_NEAR(sum, 0.39, 0.06);
  EXPECT_DOUBLE_EQ(tail.margin_s(0.1), 0.08);
  tail.observe(0);
  EXPECT_GT(tail.margin_s(2), 0.2);
}

}  // namespace
}  // namespace windlass::dispatch
