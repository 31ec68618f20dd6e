// Tests held signals in the presence of a thread that would receive them.
#include "controller/cli/live/held_signals.h"

#include <future>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

namespace windlass::cli {
namespace {

// Given a thread that was started before the hold and accepts every signal; expects a signal to the process to reach the first
// thread, and no signal to be left pending.
TEST(HeldSignals, ComeFromOtherThreads) {
  std::promise<void> over;
  std::thread other([&] { over.get_future().wait(); });
  {
    const HeldSignals held{SIGUSR1, SIGUSR2};
    EXPECT_EQ(held.within_s(0), 0);
    for (const int number : {SIGUSR1, SIGUSR2}) {
      kill(getpid(), number);
      EXPECT_EQ(held.within_s(60), number);
    }
    EXPECT_EQ(held.within_s(0), 0);
  }
  over.set_value();
  other.join();
  struct sigaction action {};
  sigaction(SIGUSR1, nullptr, &action);
  EXPECT_EQ(action.sa_handler, SIG_DFL);
  sigset_t blocked;
  sigprocmask(SIG_BLOCK, nullptr, &blocked);
  EXPECT_EQ(sigismember(&blocked, SIGUSR1), 0);
}

}  // namespace
}  // namespace windlass::cli
