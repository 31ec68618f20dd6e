// HeldSignals: signals that wait until the program's first thread asks for them, with sigtimedwait() or a signalfd. Blocking
// them there is not enough: a library may have started threads before main() (OpenBLAS does), and a signal that comes to one of
// those would end the program. Such a thread hands it on.
#pragma once

#include <initializer_list>
#include <map>

#include <signal.h>

namespace windlass::cli {

class HeldSignals {
 public:
  // REQUIRES: on the first thread. Threads that start while they are held do not get them, either.
  HeldSignals(std::initializer_list<int> numbers);
  ~HeldSignals();  // everything as it was before
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  [[nodiscard]] const sigset_t& set() const { return set_; }

  // The next of them, or 0 once that many seconds have passed without one.
  [[nodiscard]] int within_s(double seconds) const;

 private:
  sigset_t set_{};
  sigset_t blocked_before_{};
  std::map<int, struct sigaction> actions_before_;
};

}  // namespace windlass::cli
