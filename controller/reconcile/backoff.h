// Backoffs remembers recent failures to create or run workers, and says when to try again.
//
// A failure is identified by its kind and its place. The place is a slot of a pool, or the whole pool if the cluster would
// refuse all of its workers for the same reason. Each repeat doubles the delay, up to the kind's limit, and delays only this
// place. A failure is forgotten if nothing more happens for kStableS after its delay has ended. Refusals also share a rate
// limit: otherwise many places, each with its own delay, would together send requests all the time. Pure: monotonic seconds are
// arguments.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "planner/deployment/pool_name.h"

namespace windlass::controller {

enum class FailureKind {
  kQuota,     // a ResourceQuota has no room; applies to the whole pool
  kTemplate,  // the API server rejects the pod itself; applies to the whole pool
  kCreate,    // any other refusal
  kEnded,     // a worker ended for good: evicted, rejected by its node
  kFailing,   // a worker exists but does not become ready: crash loop, out of memory, image, configuration
};

struct Backoff {
  double until_s = 0;  // monotonic
  double delay_s = 0;  // doubles with each failure
  std::string code;    // CamelCase
  std::string message;
  double failed_s = 0;  // time of the last failure
};

inline constexpr int kWholePool = -1;

class Backoffs {
 public:
  static constexpr double kStableS = 300;
  // After kRefusalsAMinute refusals within a minute, in any places, the next attempt comes kRefusalPaceS after the last
  // refusal.
  static constexpr int kRefusalsAMinute = 6;
  static constexpr double kRefusalPaceS = 10;

  struct Place {
    planner::PoolId pool;
    int slot = kWholePool;
    FailureKind kind = FailureKind::kCreate;

    auto operator<=>(const Place&) const = default;
  };

  // Records a failure. `at_least_s`: the other side's requested delay. Returns the entry in force.
  const Backoff& failed(const Place& place, double now_s, std::string code, std::string message, double at_least_s = 0);

  // Whether the whole pool must not create workers now, for its own failure or the shared pace.
  [[nodiscard]] bool holds(const planner::PoolId& pool, double now_s) const;
  // Slots in which no worker may be created now. kFailing blocks no slot: its back-off only delays replacing a worker that
  // still exists. If somebody deletes that worker's pod, they want a new one immediately.
  [[nodiscard]] std::set<int> held_slots(const planner::PoolId& pool, double now_s) const;
  [[nodiscard]] const Backoff* find(const Place& place) const;

  // The cluster accepted a worker in this slot: forgets its refusals for the pool and the slot.
  void accepted(const planner::PoolId& pool, int slot);
  // Forgets refusals whose delay ended at least a minute ago. Failures of existing workers and the shared rate limit stay.
  // Newer refusals stay even if all wanted workers are ready, because the plan may want fewer workers due to the refusal.
  void forget_refusals(double now_s);
  // Forgets failures that have been quiet for long enough.
  void expire(double now_s);

  // The failure to report first: refusals before failed workers, then the latest. nullptr: none.
  [[nodiscard]] const Backoff* worst() const;
  // A current refusal by the cluster.
  [[nodiscard]] const Backoff* refusal(double now_s) const;

 private:
  std::map<Place, Backoff> entries_;
  std::deque<double> refused_s_;  // times of refusals within the last minute
  double paced_until_s_ = 0;
};

}  // namespace windlass::controller
