// Backoffs: what failed lately, one by one, and when each is tried again.
//
// A failure is known by where it happened (a slot of a pool, or the whole pool where the cluster would refuse every one of its
// workers alike) and by its kind. Each doubles its own delay up to its kind's bound, holds up nothing but its own place, and is
// forgotten once nothing more happened for kStableS after it was due. Refusals have a joint pace besides: each place may wait
// for itself, but many together would still ask all the time. Pure: monotonic seconds come in as arguments.
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
  kQuota,     // a ResourceQuota has no room: of the whole pool
  kTemplate,  // the API server refuses the pod as such: of the whole pool
  kCreate,    // any other refusal
  kEnded,     // a worker ended for good: evicted, refused by its node
  kFailing,   // a worker is there but does not come to serve: crash loop, out of memory, image, configuration
};

struct Backoff {
  double until_s = 0;  // monotonic
  double delay_s = 0;  // doubles with every failure
  std::string code;    // CamelCase
  std::string message;
  double failed_s = 0;  // when it last failed
};

inline constexpr int kWholePool = -1;

class Backoffs {
 public:
  static constexpr double kStableS = 300;
  // After so many refusals within a minute, wherever they were, the next worker is tried so long after the last of them.
  static constexpr int kRefusalsAMinute = 6;
  static constexpr double kRefusalPaceS = 10;

  struct Place {
    planner::PoolId pool;
    int slot = kWholePool;
    FailureKind kind = FailureKind::kCreate;

    auto operator<=>(const Place&) const = default;
  };

  // Something failed there. `at_least_s`: the other side asked to wait that long. Returns the entry in force.
  const Backoff& failed(const Place& place, double now_s, std::string code, std::string message, double at_least_s = 0);

  // Whether nothing may be created in the whole pool now: for its own sake, or by the joint pace.
  [[nodiscard]] bool holds(const planner::PoolId& pool, double now_s) const;
  // Slots of the pool in which nothing may be created now. A worker that fails where it is holds nobody up once it is gone: its
  // back-off is the patience with it, and who deletes its pod wants another.
  [[nodiscard]] std::set<int> held_slots(const planner::PoolId& pool, double now_s) const;
  [[nodiscard]] const Backoff* find(const Place& place) const;

  // The cluster accepted a worker in this slot: what it had refused of the pool or the slot is forgotten.
  void accepted(const planner::PoolId& pool, int slot);
  // Forgets the refusals that have been due for a minute; failures of workers that were made stay, as does the joint pace. That
  // all who are wanted serve proves nothing of a later one: for its sake the service may want no more.
  void forget_refusals(double now_s);
  // Forgets what has been quiet for long enough.
  void expire(double now_s);

  // What a person should know first: a refusal before a worker that failed, the latest of equals. nullptr: nothing.
  [[nodiscard]] const Backoff* worst() const;
  // A refusal by the cluster that is in force.
  [[nodiscard]] const Backoff* refusal(double now_s) const;

 private:
  std::map<Place, Backoff> entries_;
  std::deque<double> refused_s_;  // when workers were refused within the last minute
  double paced_until_s_ = 0;
};

}  // namespace windlass::controller
