// Start times: what counts as a start and what does not.
#include "controller/reconcile/start_log.h"

#include <gtest/gtest.h>

namespace windlass::controller {
namespace {

Worker starting(const std::string& uid, double created_s) {
  Worker worker;
  worker.uid = uid;
  worker.created_s = created_s;
  return worker;
}
Worker ready(const std::string& uid, double created_s, double ready_s) {
  Worker worker = starting(uid, created_s);
  worker.ready = true;
  worker.ready_s = ready_s;
  return worker;
}

// Given ten workers seen to start in 10, 20, ..., 100 s; expects a P90 of 90 s from ten starts.
TEST(StartLog, ReportsTheP90) {
  StartLog log;
  EXPECT_FALSE(log.times());
  for (int i = 1; i <= 10; ++i) {
    const std::string uid = "w" + std::to_string(i);
    log.observe({starting(uid, 100)});
    log.observe({ready(uid, 100, 100 + 10 * i)});
    log.observe({ready(uid, 100, 100 + 10 * i)});  // seen again: the same start
  }
  EXPECT_EQ(log.times(), (planner::StartTimes{90, 10}));
}

// Given a worker that was ready when first seen, one that crashed before it was ready, and one that lost its readiness and
// regained it; expects only the last one's first start to count.
TEST(StartLog, RestartsDoNotCount) {
  StartLog log;
  log.observe({ready("old", 0, 5000)});
  EXPECT_FALSE(log.times());
  Worker crashed = starting("crashed", 0);
  crashed.trouble = planner::WorkerTrouble::kCrashLoop;
  log.observe({starting("crashed", 0)});
  log.observe({crashed});
  log.observe({ready("crashed", 0, 700)});
  EXPECT_FALSE(log.times());
  log.observe({starting("flaps", 0)});
  log.observe({ready("flaps", 0, 40)});
  log.observe({starting("flaps", 0)});
  log.observe({ready("flaps", 0, 900)});
  EXPECT_EQ(log.times(), (planner::StartTimes{40, 1}));
}

// Given a worker that waited for a node; expects the wait to be part of its start.
TEST(StartLog, WaitingForANodeCounts) {
  StartLog log;
  Worker waiting = starting("w", 0);
  waiting.unschedulable = true;
  waiting.trouble = planner::WorkerTrouble::kUnschedulable;
  log.observe({waiting});
  log.observe({ready("w", 0, 300)});
  EXPECT_EQ(log.times(), (planner::StartTimes{300, 1}));
}

// Given 30 starts; expects the last 20 to be remembered.
TEST(StartLog, OldStartsAreForgotten) {
  StartLog log;
  for (int i = 0; i < 30; ++i) {
    const std::string uid = "w" + std::to_string(i);
    log.observe({starting(uid, 0)});
    log.observe({ready(uid, 0, i < 10 ? 1000 : 10)});
  }
  EXPECT_EQ(log.times(), (planner::StartTimes{10, 20}));
}

}  // namespace
}  // namespace windlass::controller
