// The thread for work that the loop does not wait for.
#include "controller/app/side_thread.h"

#include <atomic>

#include <gtest/gtest.h>

namespace windlass::controller {
namespace {

// Given pieces of work that arrive while it waits and while it works; expects each to be done.
TEST(SideThread, DoesEachPieceOfWork) {
  std::atomic<int> waiting = 3, done = 0;
  SideThread thread([&](const SideThread::Stop&) {
    if (waiting == 0) return false;
    --waiting;
    ++done;
    return true;
  });
  for (int more = 1; more <= 100; ++more) {
    ++waiting;
    thread.wake();
    if (more % 10 != 0) continue;
    while (done < 3 + more) std::this_thread::yield();
  }
  EXPECT_EQ(done, 103);
}

// Given a running piece of work that polls for a stop; expects that the destructor asks it to stop and waits for it.
TEST(SideThread, DestructorStopsTheRunningPiece) {
  std::atomic<bool> begun = false, ended = false;
  {
    SideThread thread([&](const SideThread::Stop& stop) {
      begun = true;
      while (!stop()) std::this_thread::yield();
      ended = true;
      return true;
    });
    while (!begun) std::this_thread::yield();
  }
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace windlass::controller
