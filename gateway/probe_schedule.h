// ProbeSchedule: decides which workers to probe now. Pure: time is an argument; the Prober sends the probes.
//
// A worker that holds requests of ours and sends nothing is probed every kProbePeriodS, so that a dead worker is noticed
// within 2 s (contact.h), however large the table is. A worker that sends bytes is not probed. Workers without requests
// share kIdleProbesPerS, and workers that do not answer share the same rate again: up to a hundred workers get the full
// pace, and with ten thousand each is probed every 40 s. That delay costs little: an idle worker that gets a request is
// probed at the next check. One thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "gateway/contact.h"

namespace windlass::gateway {

class ProbeSchedule {
 public:
  static constexpr double kLookEveryS = ContactTracker::kProbePeriodS / 4;  // how often to call due()
  static constexpr double kIdleProbesPerS = 250;

  struct Target {
    Target(std::string name, double now_s) : address(std::move(name)), tracker(now_s), asked_s(now_s) {}

    const std::string address;
    ContactTracker tracker;
    double asked_s;       // when a probe last began
    bool asking = false;  // a probe is running; set by due(), cleared by done()
    bool wanted = true;   // in the set of addresses
    int in_use = 0;       // our requests at that worker
    bool among_busy = false;
    bool among_failing = false;
  };
  using TargetPtr = std::shared_ptr<Target>;

  // Replaces the set of addresses. Calls `removed` for each one that is no longer in it.
  void set_addresses(const std::set<std::string>& addresses, double now_s, const std::function<void(const Target&)>& removed);

  // nullptr when unknown.
  [[nodiscard]] TargetPtr find(const std::string& address) const;

  // Marks a request as being at that worker while the returned handle lives; it may outlive the schedule. Null when unknown.
  [[nodiscard]] std::shared_ptr<void> use(const std::string& address);

  // Workers to probe now; each is `asking` until done().
  [[nodiscard]] std::vector<TargetPtr> due(double now_s);

  // Records the result of a probe that ended now; nullopt means no result. After a first failure tracker.in_doubt() asks for a
  // second probe immediately; the target then stays `asking`.
  void done(const TargetPtr& target, double now_s, std::optional<Probe> outcome);

  [[nodiscard]] std::size_t size() const { return targets_.size(); }

 private:
  // Workers that take turns, and how many probes are allowed by now.
  struct Ring {
    std::vector<TargetPtr> targets;
    std::size_t next = 0;
    double allowance = 0;
  };
  static void take_turns(Ring& ring, double now_s, double passed_s, bool answering, std::vector<TargetPtr>& out);
  static bool take(const TargetPtr& target, double now_s, std::vector<TargetPtr>& out);

  std::map<std::string, TargetPtr> targets_;
  Ring all_;
  Ring failing_;                 // do not answer, and hold no request
  std::vector<TargetPtr> busy_;  // hold requests; due() drops those that no longer do
  double looked_s_ = 0;
};

}  // namespace windlass::gateway
