// LeaderElector: one leader among the controllers, by a coordination.k8s.io/v1 Lease.
//
// step() does what is due (it waits for the server, at most request_timeout_s per request) and says by next_step_at() when it
// wants to be called again. leading(now) is a pure function of the start of the last renewal that succeeded: from the renew
// deadline on it is false even if nothing else happens, so it serves as KubeClient's write gate. All durations are measured on
// our own monotonic clock; another machine's wall time is never compared: a rival's lease has run out when we have watched the
// same record stand unchanged for its whole duration. Writes carry the resourceVersion, so of two rivals one gets a conflict.
//
// Why no two lead at one instant (clock rates differing by less than leaseDuration/renewDeadline): a leader stops renewDeadline
// after it STARTED its last successful renewal; a rival takes over no sooner than leaseDuration after it SAW that renewal.
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
  std::string identity = {};  // of this process; a holder with our name whose tenure we did not begin counts as a rival
  double lease_duration_s = 15;
  double renew_deadline_s = 10;
  double retry_period_s = 2;
  double request_timeout_s = 4;
  std::uint64_t seed = 1;  // jitter of the retry period, so that rivals do not march in step
};

class LeaderElector {
 public:
  // REQUIRES: lease_duration_s > renew_deadline_s > retry_period_s > 0 (validate() says so to a person).
  LeaderElector(KubeClient& client, LeaseOptions options);

  [[nodiscard]] static Result<void> validate(const LeaseOptions& options);

  // `now` is read right before the call; its wall time is only written into the Lease, for people to read.
  void step(Instant now);

  // May this process write at this instant?
  [[nodiscard]] bool leading(double monotonic_s) const {
    return leading_ && monotonic_s < last_renewal_s_ + options_.renew_deadline_s;
  }

  // When leading() ends unless a renewal succeeds before; minus infinity: it has ended.
  [[nodiscard]] double leading_until_s() const {
    return leading_ ? last_renewal_s_ + options_.renew_deadline_s : -std::numeric_limits<double>::infinity();
  }

  // leaseTransitions of our tenure: grows with every tenure of anyone. 0 before the first. Meaningful while leading.
  [[nodiscard]] std::int64_t term() const { return term_; }

  // Stops leading at once and, if we held the lease, gives it back so that a rival need not wait.
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
  double last_renewal_s_ = -std::numeric_limits<double>::infinity();  // start of the last renewal that succeeded
  std::int64_t term_ = 0;
  std::int64_t highest_term_seen_ = 0;
  std::string acquire_time_;  // of the tenure that this process began; marks the record as ours

  // What the lease looked like when we last saw it change, and when that was on our clock.
  bool exists_ = false;
  nlohmann::json observed_metadata_;  // others' labels and annotations are kept when we write
  std::string observed_version_;
  std::string observed_holder_;
  std::string observed_acquire_time_;
  std::int64_t observed_transitions_ = 0;
  double observed_duration_s_ = 0;
  // Dated by the step after the one that saw it: within a step nobody knows how long an answer took, and a record that looks
  // older than it is would be taken from a leader that lives.
  std::optional<double> observed_at_s_;

  double next_step_at_ = -std::numeric_limits<double>::infinity();
  std::optional<Error> last_error_;
};

}  // namespace windlass::kube
