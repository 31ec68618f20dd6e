// See lease_thread.h.
#include "controller/app/lease_thread.h"

#include <algorithm>
#include <chrono>
#include <limits>
#include <utility>

#include "metrics/host/clock.h"

namespace windlass::controller {
namespace {

constexpr double kLongestSleepS = 1;
constexpr double kNever = -std::numeric_limits<double>::infinity();

}  // namespace

LeaseThread::LeaseThread(kube::KubeClient& client, kube::LeaseOptions options, std::function<void()> on_change,
                         double patience_s)
    : elector_(client, std::move(options)),
      on_change_(std::move(on_change)),
      patience_s_(patience_s),
      alive_s_(now().monotonic_s),
      until_s_(kNever),
      thread_([this] { run(); }) {}

LeaseThread::~LeaseThread() { end_thread(); }

void LeaseThread::run() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    lock.unlock();
    const Instant at = now();
    const double led_until_s = until_s_;
    const std::int64_t led_in = term_;
    const bool alive = at.monotonic_s - alive_s_ < patience_s_;
    if (alive) elector_.step(at);
    // Store the term first: whoever sees that we lead must also see the matching term.
    term_ = elector_.term();
    until_s_ = elector_.leading_until_s();
    const bool changed = term_ != led_in || (until_s_ == kNever) != (led_until_s == kNever);
    const double wait_s = alive ? std::clamp(elector_.next_step_at() - now().monotonic_s, 0.0, kLongestSleepS) : kLongestSleepS;
    if (changed) on_change_();
    lock.lock();
    problem_ = elector_.last_error() ? elector_.last_error()->message : "";
    woken_.wait_for(lock, std::chrono::duration<double>(wait_s), [this] { return stopping_; });
  }
}

std::string LeaseThread::problem() const {
  const std::scoped_lock lock(mutex_);
  return problem_;
}

void LeaseThread::end_thread() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  woken_.notify_all();
  if (thread_.joinable()) thread_.join();
}

Result<void> LeaseThread::release(Instant now) {
  end_thread();
  until_s_ = kNever;  // before the lease is free
  return elector_.release(now);
}

}  // namespace windlass::controller
