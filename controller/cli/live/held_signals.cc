// Blocks signals and forwards those delivered to other threads; see held_signals.h.
#include "controller/cli/live/held_signals.h"

#include <cerrno>
#include <cmath>
#include <ctime>

#include <sys/syscall.h>
#include <unistd.h>

namespace windlass::cli {
namespace {

// Signal handler on a thread other than the first. Sends the signal to the process, where the first thread blocks it.
void hand_on(int number) {
  const int error = errno;
  syscall(SYS_tgkill, getpid(), getpid(), number);
  errno = error;
}

}  // namespace

HeldSignals::HeldSignals(std::initializer_list<int> numbers) {
  sigemptyset(&set_);
  for (const int number : numbers) sigaddset(&set_, number);
  sigprocmask(SIG_BLOCK, &set_, &blocked_before_);
  struct sigaction action {};
  action.sa_handler = hand_on;
  action.sa_flags = SA_RESTART;
  for (const int number : numbers) sigaction(number, &action, &actions_before_[number]);
}

HeldSignals::~HeldSignals() {
  for (const auto& [number, action] : actions_before_) sigaction(number, &action, nullptr);
  sigprocmask(SIG_SETMASK, &blocked_before_, nullptr);
}

int HeldSignals::within_s(double seconds) const {
  double whole = 0;
  const double rest = std::modf(seconds > 0 ? seconds : 0, &whole);
  const timespec wait{static_cast<time_t>(whole), static_cast<long>(rest * 1e9)};
  const int number = sigtimedwait(&set_, nullptr, &wait);
  return number > 0 ? number : 0;
}

}  // namespace windlass::cli
