// Acquires, renews and releases the Lease.
#include "controller/kube/lease.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "controller/kube/events.h"
#include "controller/kube/json_path.h"

namespace windlass::kube {
namespace {

using nlohmann::json;

constexpr double kLongestBelievableLease_s = 3600;  // a longer duration in a record is not believed: ours applies

std::int64_t integer_at(const json& object, const char* key) {
  auto it = object.find(key);
  return it != object.end() && it->is_number_integer() ? it->get<std::int64_t>() : 0;
}

}  // namespace

LeaderElector::LeaderElector(KubeClient& client, LeaseOptions options)
    : client_(client), options_(std::move(options)), random_(options_.seed, "lease " + options_.identity) {}

Result<void> LeaderElector::validate(const LeaseOptions& options) {
  auto refuse = [](std::string message) { return Error{ErrorCode::kInvalidArgument, "lease: " + message}; };
  if (options.name_space.empty()) return refuse("namespace: must be set (got nothing)");
  if (options.name.empty()) return refuse("name: must be set (got nothing)");
  if (options.identity.empty()) return refuse("identity: must be set (got nothing)");
  if (!(options.retry_period_s > 0))
    return refuse(fmt::format("retry period: must be more than 0 (got {} s)", options.retry_period_s));
  if (!(options.renew_deadline_s > options.retry_period_s)) {
    return refuse(fmt::format("renew deadline: must be more than the retry period of {} s (got {} s)", options.retry_period_s,
                              options.renew_deadline_s));
  }
  if (!(options.lease_duration_s > options.renew_deadline_s)) {
    return refuse(fmt::format("lease duration: must be more than the renew deadline of {} s (got {} s)",
                              options.renew_deadline_s, options.lease_duration_s));
  }
  return {};
}

bool LeaderElector::ours() const {
  return exists_ && !acquire_time_.empty() && observed_holder_ == options_.identity && observed_acquire_time_ == acquire_time_;
}

bool LeaderElector::expired(double monotonic_s) const {
  double duration_s = options_.lease_duration_s;
  if (observed_duration_s_ <= kLongestBelievableLease_s) duration_s = std::max(duration_s, observed_duration_s_);
  return observed_at_s_ && monotonic_s >= *observed_at_s_ + duration_s;
}

WriteOptions LeaderElector::lease_write() const {
  WriteOptions write;
  write.passes_gate = true;  // the gate depends on this lease, so gating the write would lock us out for good
  write.timeout_s = options_.request_timeout_s;
  return write;
}

json LeaderElector::lease_object(double wall_s, std::int64_t transitions) const {
  json lease;
  if (exists_) lease["metadata"] = observed_metadata_;  // includes the resourceVersion, so one of two rivals is refused
  lease["metadata"]["namespace"] = options_.name_space;
  lease["metadata"]["name"] = options_.name;
  lease["spec"] = {{"holderIdentity", options_.identity},
                   {"leaseDurationSeconds", static_cast<std::int64_t>(std::ceil(options_.lease_duration_s))},
                   {"acquireTime", acquire_time_},
                   {"renewTime", rfc3339_micro(wall_s)},
                   {"leaseTransitions", transitions}};
  return lease;
}

void LeaderElector::observe(const json& lease) {
  exists_ = true;
  json metadata = lease.value("metadata", json::object());
  std::string version = text_at(metadata, {"resourceVersion"});
  if (version == observed_version_) return;
  json spec = lease.contains("spec") && lease["spec"].is_object() ? lease["spec"] : json::object();
  metadata.erase("managedFields");
  observed_metadata_ = std::move(metadata);
  observed_version_ = version;
  observed_holder_ = text_at(spec, {"holderIdentity"});
  observed_acquire_time_ = text_at(spec, {"acquireTime"});
  observed_transitions_ = integer_at(spec, "leaseTransitions");
  observed_duration_s_ = static_cast<double>(integer_at(spec, "leaseDurationSeconds"));
  observed_at_s_.reset();  // the response may have come long after the step began; the next step's time is safe
  highest_term_seen_ = std::max(highest_term_seen_, observed_transitions_);
}

Result<void> LeaderElector::read() {
  ApiResult<json> lease = client_.get(resources::kLeases, options_.name_space, options_.name, options_.request_timeout_s);
  if (!lease.ok() && lease.error().code == ErrorCode::kNotFound) {
    exists_ = false;
    observed_version_.clear();
    observed_holder_.clear();
    observed_acquire_time_.clear();
    return {};
  }
  if (!lease.ok()) return lease.error();
  observe(*lease);
  return {};
}

Result<void> LeaderElector::renew(Instant now) {
  std::int64_t transitions = observed_transitions_;
  ApiResult<json> written = client_.update(resources::kLeases, lease_object(now.wall_s, transitions), lease_write());
  if (!written.ok()) return written.error();
  observe(*written);
  last_renewal_s_ = now.monotonic_s;
  term_ = transitions;
  leading_ = true;
  return {};
}

Result<void> LeaderElector::acquire(Instant now) {
  // Saved before the request: if the response is lost, the next read still recognizes the term as ours.
  acquire_time_ = rfc3339_micro(now.wall_s);
  std::int64_t transitions = std::max(observed_transitions_, highest_term_seen_) + 1;
  json lease = lease_object(now.wall_s, transitions);
  ApiResult<json> written = exists_ ? client_.update(resources::kLeases, lease, lease_write())
                                    : client_.create(resources::kLeases, lease, lease_write());
  if (!written.ok()) return written.error();
  observe(*written);
  last_renewal_s_ = now.monotonic_s;
  term_ = transitions;
  leading_ = true;
  return {};
}

void LeaderElector::step(Instant now) {
  if (!observed_at_s_) observed_at_s_ = now.monotonic_s;
  if (now.monotonic_s < next_step_at_) return;
  if (leading_ && !leading(now.monotonic_s)) leading_ = false;
  next_step_at_ = now.monotonic_s + (leading_ ? 1.0 : random_.uniform(0.8, 1.2)) * options_.retry_period_s;

  Result<void> outcome;
  if (leading_) {
    outcome = renew(now);  // the usual case: one request, with the version that we wrote last as precondition
    if (outcome.ok()) {
      last_error_.reset();
      return;
    }
  }
  if (outcome.ok() || outcome.error().code == ErrorCode::kConflict || outcome.error().code == ErrorCode::kNotFound) {
    outcome = read();
    if (outcome.ok()) {
      if (ours()) {
        outcome = renew(now);
      } else {
        leading_ = false;
        if (observed_holder_.empty() || expired(now.monotonic_s)) outcome = acquire(now);
      }
    }
  }
  if (outcome.ok()) {
    last_error_.reset();
  } else {
    last_error_ = outcome.error();
  }
}

Result<void> LeaderElector::release(Instant now) {
  leading_ = false;  // before the lease is free: a rival may take it as soon as the server has our request
  if (!ours()) return {};
  json lease = lease_object(now.wall_s, observed_transitions_);
  lease["spec"].erase("holderIdentity");
  lease["spec"]["leaseDurationSeconds"] = 1;
  acquire_time_.clear();
  ApiResult<json> written = client_.update(resources::kLeases, lease, lease_write());
  next_step_at_ = now.monotonic_s + options_.lease_duration_s;  // after a release, give the others a chance first
  if (!written.ok()) return written.error();
  observe(*written);
  return {};
}

}  // namespace windlass::kube
