// Clock: the engine's only source of time, injected so that tests control it.
#pragma once

#include <chrono>

namespace windlass::worker {

class Clock {
 public:
  virtual ~Clock() = default;
  // Seconds since an arbitrary fixed moment; never decreases. Any thread.
  [[nodiscard]] virtual double now_s() const = 0;
};

class SteadyClock final : public Clock {
 public:
  [[nodiscard]] double now_s() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace windlass::worker
