// ProbeSchedule: which workers are asked for their health now. Pure: time is an argument; the Prober asks.
//
// A worker that holds requests of ours and says nothing is asked every kProbePeriodS, so that one which vanishes is noticed
// within 2 s (contact.h), whatever the table's size; one that sends bytes is not asked at all. Those that hold none share
// kIdleProbesPerS between them, and those that do not answer as many again: in a table of up to a hundred that is the full pace
// too, in one of ten thousand each has its turn every 40 s. Nobody waits for these: the first request that such a worker gets
// makes it one of the former, and it is asked at the next look. One thread.
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
  static constexpr double kLookEveryS = ContactTracker::kProbePeriodS / 4;  // how often due() is to be called
  static constexpr double kIdleProbesPerS = 250;

  struct Target {
    Target(std::string name, double now_s) : address(std::move(name)), tracker(now_s), asked_s(now_s) {}

    const std::string address;
    ContactTracker tracker;
    double asked_s;       // when a probe last began
    bool asking = false;  // one is on its way; set by due(), cleared by done()
    bool wanted = true;   // in the set of addresses
    int in_use = 0;       // requests of ours that it holds
    bool among_busy = false;
    bool among_failing = false;
  };
  using TargetPtr = std::shared_ptr<Target>;

  // These and no others. `removed` is told of each that was there and is no more.
  void set_addresses(const std::set<std::string>& addresses, double now_s, const std::function<void(const Target&)>& removed);

  // nullptr: unknown.
  [[nodiscard]] TargetPtr find(const std::string& address) const;

  // A request is at that worker for as long as what is returned lives; it may outlive the schedule. Null for an unknown one.
  [[nodiscard]] std::shared_ptr<void> use(const std::string& address);

  // Who is to be asked now; each is `asking` from here on, until done().
  [[nodiscard]] std::vector<TargetPtr> due(double now_s);

  // What a probe came to that ended now; nullopt: it says nothing. A first failure wants a second probe at once, which
  // tracker.in_doubt() says: then the target stays `asking`.
  void done(const TargetPtr& target, double now_s, std::optional<Probe> outcome);

  [[nodiscard]] std::size_t size() const { return targets_.size(); }

 private:
  // Who takes turns, and how many may be asked by now.
  struct Ring {
    std::vector<TargetPtr> targets;
    std::size_t next = 0;
    double allowance = 0;
  };
  static void take_turns(Ring& ring, double now_s, double passed_s, bool answering, std::vector<TargetPtr>& out);
  static bool take(const TargetPtr& target, double now_s, std::vector<TargetPtr>& out);

  std::map<std::string, TargetPtr> targets_;
  Ring all_;
  Ring failing_;                 // that do not answer, and hold no request
  std::vector<TargetPtr> busy_;  // that hold requests; those that no longer do are dropped by due()
  double looked_s_ = 0;
};

}  // namespace windlass::gateway
