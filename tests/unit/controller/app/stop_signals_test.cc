// Signals in a process with threads that do not block them.
#include "controller/app/stop_signals.h"

#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>
#include <unistd.h>

namespace windlass {
namespace {

// Given a thread that does not block signals, such as one that a library starts before main; expects that a signal to this
// thread becomes a call, each time.
TEST(StopSignals, BecomeCallsOnAnyThread) {
  std::mutex mutex;
  std::condition_variable changed;
  int calls = 0;
  const StopSignals signals([&] {
    const std::lock_guard lock(mutex);
    ++calls;
    changed.notify_all();
  });
  for (const int signal : {SIGTERM, SIGINT, SIGTERM}) {
    std::unique_lock lock(mutex);
    const int before = calls;
    std::thread foreign([signal] { raise(signal); });  // to the thread itself
    foreign.join();
    EXPECT_TRUE(changed.wait_for(lock, std::chrono::seconds(60), [&] { return calls == before + 1; }));
  }
}

}  // namespace
}  // namespace windlass
