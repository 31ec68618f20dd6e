// LeaderElector elects one leader among the controllers with a coordination.k8s.io/v1 Lease.
//
// step() does what is due; it waits for the server, at most request_timeout_s per request. next_step_at() returns when to call
// it again.
//
// leading(now) depends only on the start time of the last successful renewal. It is false from the renew deadline on, whatever
// else happens, so it can serve as KubeClient's write gate. All durations are measured on our own monotonic clock, never on
// another machine's wall clock: a rival's lease has expired when we have seen the same record unchanged for its whole duration.
// Writes carry the resourceVersion, so if two rivals write, one gets a conflict.
//
// Why two processes never lead at the same time (if clock rates differ by less than leaseDuration/renewDeadline): a leader
// stops renewDeadline after it STARTED its last successful renewal. A rival takes over no earlier than leaseDuration after it
// SAW that renewal.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>

#include <nlohmann/json.hpp>

#include "controller/kube/kube_client.h"
#include "planner/base/instant.h"
#include "planner/base/rng.h"

namespace windlass::kube {

struct LeaseOptions {
  std::string name_space = {};
  std::string name = "windlass-controller";
  std::string identity = {};  // of this process; a holder with our name in a term that we did not start counts as a rival
  double lease_duration_s = 15;
  double renew_deadline_s = 10;
  double retry_period_s = 2;
  double request_timeout_s = 4;
  std::uint64_t seed = 1;  // of the retry jitter, so that rivals do not retry in lockstep
};

class LeaderElector {
 public:
  // REQUIRES: lease_duration_s > renew_deadline_s > retry_period_s > 0 (validate() reports violations).
  LeaderElector(KubeClient& client, LeaseOptions options);

  [[nodiscard]] static Result<void> validate(const LeaseOptions& options);

  // `now` is read right before the call. Its wall time is only written into the Lease, for people to read.
  void step(Instant now);

  // Whether this process may write at this time.
  [[nodiscard]] bool leading(double monotonic_s) const {
    return leading_ && monotonic_s < last_renewal_s_ + options_.renew_deadline_s;
  }

  // When leading() becomes false without another renewal; minus infinity: it is false already.
  [[nodiscard]] double leading_until_s() const {
    return leading_ ? last_renewal_s_ + options_.renew_deadline_s : -std::numeric_limits<double>::infinity();
  }

  // leaseTransitions of our term. It grows with every new leader. 0 before the first. Meaningful while leading.
  [[nodiscard]] std::int64_t term() const { return term_; }

  // Stops leading immediately and releases the lease if we hold it, so that a rival need not wait.
  Result<void> release(Instant now);

  [[nodiscard]] double next_step_at() const { return next_step_at_; }
  [[nodiscard]] const std::string& holder() const { return observed_holder_; }  // last seen holder; empty: none
  [[nodiscard]] const std::string& identity() const { return options_.identity; }
  [[nodiscard]] const std::optional<Error>& last_error() const { return last_error_; }

 private:
  void observe(const nlohmann::json& lease);
  [[nodiscard]] nlohmann::json lease_object(double wall_s, std::int64_t transitions) const;
  [[nodiscard]] bool ours() const;
  [[nodiscard]] bool expired(double monotonic_s) const;
  Result<void> read();
  Result<void> renew(Instant now);
  Result<void> acquire(Instant now);
  [[nodiscard]] WriteOptions lease_write() const;

  KubeClient& client_;
  LeaseOptions options_;
  Rng random_;

  bool leading_ = false;
  double last_renewal_s_ = -std::numeric_limits<double>::infinity();  // start of the last successful renewal
  std::int64_t term_ = 0;
  std::int64_t highest_term_seen_ = 0;
  std::string acquire_time_;  // of the term that this process started; identifies the record as ours

  // The lease as of its last change that we saw, and the time of that change on our clock.
  bool exists_ = false;
  nlohmann::json observed_metadata_;  // kept so that our writes preserve the labels and annotations of others
  std::string observed_version_;
  std::string observed_holder_;
  std::string observed_acquire_time_;
  std::int64_t observed_transitions_ = 0;
  double observed_duration_s_ = 0;
  // Set by the step after the one that saw the change. Within a step it is unknown how long the answer took, and dating the
  // record too early would take the lease from a live leader.
  std::optional<double> observed_at_s_;

  double next_step_at_ = -std::numeric_limits<double>::infinity();
  std::optional<Error> last_error_;
};

}  // namespace windlass::kube
