// LeaseLeadership: implements Leadership with a coordination.k8s.io Lease.
#pragma once

#include "controller/kube/lease.h"
#include "controller/reconcile/leadership.h"

namespace windlass::controller {

class LeaseLeadership final : public Leadership {
 public:
  // `client` must outlive this.
  LeaseLeadership(kube::KubeClient& client, kube::LeaseOptions options) : elector_(client, std::move(options)) {}

  void step(Instant now) override { elector_.step(now); }
  [[nodiscard]] bool leading(double monotonic_s) const override { return elector_.leading(monotonic_s); }
  [[nodiscard]] std::int64_t term() const override { return elector_.term(); }
  [[nodiscard]] double next_step_at() const override { return elector_.next_step_at(); }
  [[nodiscard]] std::string problem() const override { return elector_.last_error() ? elector_.last_error()->message : ""; }

  // Releases the lease, so that a standby does not have to wait until it expires.
  [[nodiscard]] Result<void> release(Instant now) { return elector_.release(now); }

 private:
  kube::LeaderElector elector_;
};

}  // namespace windlass::controller
