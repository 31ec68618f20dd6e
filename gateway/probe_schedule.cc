// See probe_schedule.h.
#include "gateway/probe_schedule.h"

#include <algorithm>

namespace windlass::gateway {

void ProbeSchedule::set_addresses(const std::set<std::string>& addresses, double now_s,
                                  const std::function<void(const Target&)>& removed) {
  for (auto it = targets_.begin(); it != targets_.end();) {
    if (addresses.contains(it->first)) {
      ++it;
      continue;
    }
    it->second->wanted = false;
    removed(*it->second);
    it = targets_.erase(it);
  }
  for (const std::string& address : addresses) {
    auto& target = targets_[address];
    if (target == nullptr) target = std::make_shared<Target>(address, now_s);
  }
  all_.targets.clear();
  for (const auto& [address, target] : targets_) all_.targets.push_back(target);
}

ProbeSchedule::TargetPtr ProbeSchedule::find(const std::string& address) const {
  const auto found = targets_.find(address);
  return found == targets_.end() ? nullptr : found->second;
}

std::shared_ptr<void> ProbeSchedule::use(const std::string& address) {
  const TargetPtr target = find(address);
  if (target == nullptr) return nullptr;
  if (++target->in_use == 1 && !target->among_busy) {
    target->among_busy = true;
    busy_.push_back(target);
  }
  return {target.get(), [target](void*) { --target->in_use; }};
}

// Adds the target to `out` if it is due.
bool ProbeSchedule::take(const TargetPtr& target, double now_s, std::vector<TargetPtr>& out) {
  if (target->asking || now_s - target->asked_s < ContactTracker::kProbePeriodS || !target->tracker.probe_due(now_s))
    return false;
  target->asking = true;
  target->asked_s = now_s;
  out.push_back(target);
  return true;
}

void ProbeSchedule::take_turns(Ring& ring, double now_s, double passed_s, bool answering, std::vector<TargetPtr>& out) {
  // Unused allowance must not add up to a burst later.
  ring.allowance = std::min(ring.allowance + passed_s * kIdleProbesPerS, 2 * kLookEveryS * kIdleProbesPerS);
  for (std::size_t i = 0; i < ring.targets.size() && ring.allowance >= 1; ++i) {
    const TargetPtr& target = ring.targets[ring.next++ % ring.targets.size()];
    if (target->in_use > 0 || (target->tracker.contact() == Contact::kAnswers) != answering) continue;
    if (take(target, now_s, out)) ring.allowance -= 1;
  }
}

std::vector<ProbeSchedule::TargetPtr> ProbeSchedule::due(double now_s) {
  const double passed_s = now_s - looked_s_;
  looked_s_ = now_s;
  std::vector<TargetPtr> out;
  std::erase_if(busy_, [](const TargetPtr& target) {
    target->among_busy = target->in_use > 0 && target->wanted;
    return !target->among_busy;
  });
  for (const TargetPtr& target : busy_) (void)take(target, now_s, out);
  std::erase_if(failing_.targets, [](const TargetPtr& target) {
    target->among_failing = target->wanted && target->tracker.contact() != Contact::kAnswers;
    return !target->among_failing;
  });
  take_turns(failing_, now_s, passed_s, false, out);
  take_turns(all_, now_s, passed_s, true, out);
  return out;
}

void ProbeSchedule::done(const TargetPtr& target, double now_s, std::optional<Probe> outcome) {
  if (outcome) (void)target->tracker.probed(now_s, *outcome);
  target->asking = outcome.has_value() && target->tracker.in_doubt();
  if (target->among_failing || target->tracker.contact() == Contact::kAnswers) return;
  target->among_failing = true;
  failing_.targets.push_back(target);
}

}  // namespace windlass::gateway
