// Implements wait.h.
#include "tests/cluster/harness/wait.h"

#include <thread>

namespace windlass::testing {

bool eventually(std::chrono::milliseconds deadline, const std::function<bool()>& condition,
                std::chrono::milliseconds interval) {
  const auto end = std::chrono::steady_clock::now() + deadline;
  while (true) {
    if (condition()) return true;
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(interval);
  }
}

bool throughout(std::chrono::milliseconds span, const std::function<bool()>& condition, std::chrono::milliseconds interval) {
  const auto end = std::chrono::steady_clock::now() + span;
  while (std::chrono::steady_clock::now() < end) {
    if (!condition()) return false;
    std::this_thread::sleep_for(interval);
  }
  return true;
}

}  // namespace windlass::testing
