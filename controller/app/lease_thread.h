// LeaseThread: Leadership by a Lease that is renewed on a thread of its own, over a connection of its own, so that neither a
// long step nor a slow answer to another request lets it run out.
//
// Two things keep writes fenced. leading() is false from the renew deadline on, whatever the thread does. And may_write(),
// which is the KubeClient's gate, is true only for the tenure that the loop knows of: one that was lost and taken again within
// a step is another, in which somebody else may have acted. A loop that has not begun a step for `patience_s` is taken for
// stuck: the lease is not renewed, and a standby takes over.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "controller/kube/lease.h"
#include "controller/reconcile/leadership.h"

namespace windlass::controller {

class LeaseThread final : public Leadership {
 public:
  // `client` is used by the thread alone, and outlives this. `on_change`, called on the thread: this process leads, or no
  // longer.
  LeaseThread(kube::KubeClient& client, kube::LeaseOptions options, std::function<void()> on_change, double patience_s = 300);
  ~LeaseThread() override;
  LeaseThread(const LeaseThread&) = delete;
  LeaseThread& operator=(const LeaseThread&) = delete;

  // The loop is alive; does no I/O.
  void step(Instant now) override { alive_s_ = now.monotonic_s; }
  [[nodiscard]] bool leading(double monotonic_s) const override { return monotonic_s < until_s_; }
  [[nodiscard]] std::int64_t term() const override { return term_; }
  [[nodiscard]] double next_step_at() const override { return 1e300; }
  [[nodiscard]] std::string problem() const override;
  void acts_for(std::int64_t term) override { acts_for_ = term; }

  [[nodiscard]] bool may_write(double monotonic_s) const { return leading(monotonic_s) && term_ == acts_for_; }

  // Ends the thread and gives the lease back, so that a standby need not wait it out.
  [[nodiscard]] Result<void> release(Instant now);

 private:
  void run();
  void end_thread();

  kube::LeaderElector elector_;  // the thread's, until it has ended
  std::function<void()> on_change_;
  const double patience_s_;
  std::atomic<double> alive_s_;
  std::atomic<double> until_s_;
  std::atomic<std::int64_t> term_ = 0;
  std::atomic<std::int64_t> acts_for_ = 0;
  mutable std::mutex mutex_;  // of the next two
  std::string problem_;
  bool stopping_ = false;
  std::condition_variable woken_;
  std::thread thread_;
};

}  // namespace windlass::controller
