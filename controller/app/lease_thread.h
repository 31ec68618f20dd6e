// LeaseThread implements Leadership with a Lease. Its own thread renews the Lease over its own connection, so the Lease does
// not expire during a long step or while another request waits for its answer.
//
// Two rules keep a former leader from writing. leading() is false from the renew deadline on, whatever the thread does.
// may_write(), the KubeClient's gate, is true only in the term that the loop knows of: if the lease was lost and regained
// within a step, that is a new term, and another process may have acted in between.
//
// If the loop has not started a step for `patience_s`, it counts as stuck: the lease is no longer renewed, and a standby takes
// over.
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
  // Only the thread uses `client`, which outlives this. `on_change` is called on the thread when this process starts or stops
  // leading.
  LeaseThread(kube::KubeClient& client, kube::LeaseOptions options, std::function<void()> on_change, double patience_s = 300);
  ~LeaseThread() override;
  LeaseThread(const LeaseThread&) = delete;
  LeaseThread& operator=(const LeaseThread&) = delete;

  // Reports that the loop is alive; does no I/O.
  void step(Instant now) override { alive_s_ = now.monotonic_s; }
  [[nodiscard]] bool leading(double monotonic_s) const override { return monotonic_s < until_s_; }
  [[nodiscard]] std::int64_t term() const override { return term_; }
  [[nodiscard]] double next_step_at() const override { return 1e300; }
  [[nodiscard]] std::string problem() const override;
  void acts_for(std::int64_t term) override { acts_for_ = term; }

  [[nodiscard]] bool may_write(double monotonic_s) const { return leading(monotonic_s) && term_ == acts_for_; }

  // Ends the thread and releases the lease, so that a standby need not wait for it to expire.
  [[nodiscard]] Result<void> release(Instant now);

 private:
  void run();
  void end_thread();

  kube::LeaderElector elector_;  // used by the thread until it ends
  std::function<void()> on_change_;
  const double patience_s_;
  std::atomic<double> alive_s_;
  std::atomic<double> until_s_;
  std::atomic<std::int64_t> term_ = 0;
  std::atomic<std::int64_t> acts_for_ = 0;
  mutable std::mutex mutex_;  // guards the next two
  std::string problem_;
  bool stopping_ = false;
  std::condition_variable woken_;
  std::thread thread_;
};

}  // namespace windlass::controller
