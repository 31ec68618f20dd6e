// Signals of a process in which threads run that block none.
#include "controller/app/stop_signals.h"

#include <condition_variable>
#include <mutex>

#include <gtest/gtest.h>
#include <unistd.h>

namespace windlass {
namespace {

// Given a thread that blocks no signal, as a library starts before main; a signal that this very thread takes is a call, each
// time.
TEST(StopSignals, AreCallsWhicheverThreadTakesThem) {
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
