// HeldSignals: blocks signals so that the program's first thread can wait for them with sigtimedwait() or a signalfd. Blocking
// them on the first thread is not enough: a library may have started threads before main() (OpenBLAS does), and a signal
// delivered to one of those would end the program. So a signal handler on those threads forwards the signal to the first
// thread.
#pragma once

#include <initializer_list>
#include <map>

#include <signal.h>

namespace windlass::cli {

class HeldSignals {
 public:
  // REQUIRES: called on the first thread. Threads started later do not receive these signals either.
  HeldSignals(std::initializer_list<int> numbers);
  ~HeldSignals();  // restores the previous mask and handlers
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  [[nodiscard]] const sigset_t& set() const { return set_; }

  // The next of these signals, or 0 if none arrives within `seconds`.
  [[nodiscard]] int within_s(double seconds) const;

 private:
  sigset_t set_{};
  sigset_t blocked_before_{};
  std::map<int, struct sigaction> actions_before_;
};

}  // namespace windlass::cli
