// Timeline: virtual time and its events. Events run in the order of (time, insertion); time is integer nanoseconds, so that the
// same calls give the same order on every machine.
//
// An event may call run_until(): that is how a process pauses in the middle of its work while the rest of the world goes on.
// Single-threaded.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <queue>
#include <utility>
#include <vector>

namespace windlass::simulation {

class Timeline {
 public:
  [[nodiscard]] double now_s() const { return static_cast<double>(now_ns_) * 1e-9; }

  // A time in the past means now.
  void at(double when_s, std::function<void()> what) {
    events_.push({std::max<std::int64_t>(now_ns_, std::llround(when_s * 1e9)), next_++, std::move(what)});
  }
  void after(double delay_s, std::function<void()> what) { at(now_s() + delay_s, std::move(what)); }

  // Calls `what` now and then every `period_s`, forever.
  void every(double period_s, std::function<void()> what) {
    at(now_s(), [this, period_s, what = std::move(what)] { repeat(period_s, what); });
  }

  void run_until(double end_s) {
    const std::int64_t end_ns = std::llround(end_s * 1e9);
    while (!events_.empty() && events_.top().when_ns <= end_ns) {
      const Event next = events_.top();
      events_.pop();
      now_ns_ = std::max(now_ns_, next.when_ns);
      if (on_advance) on_advance(now_s());
      next.what();
    }
    now_ns_ = std::max(now_ns_, end_ns);
    if (on_advance) on_advance(now_s());
  }

  std::function<void(double)> on_advance;  // called with each new time before its events run

 private:
  struct Event {
    std::int64_t when_ns = 0;
    std::uint64_t number = 0;
    std::function<void()> what;

    bool operator<(const Event& other) const {  // the queue pops its largest element first
      return when_ns != other.when_ns ? when_ns > other.when_ns : number > other.number;
    }
  };

  void repeat(double period_s, const std::function<void()>& what) {
    what();
    after(period_s, [this, period_s, what] { repeat(period_s, what); });
  }

  std::int64_t now_ns_ = 0;
  std::uint64_t next_ = 0;
  std::priority_queue<Event> events_;
};

}  // namespace windlass::simulation
