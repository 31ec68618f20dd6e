// See backoff.h.
#include "controller/reconcile/backoff.h"

#include <algorithm>

namespace windlass::controller {
namespace {

struct Bounds {
  double min_s;
  double max_s;
};

Bounds bounds_of(FailureKind kind) {
  switch (kind) {
    case FailureKind::kQuota:
    case FailureKind::kTemplate:
    case FailureKind::kCreate: return {1, 60};  // a retry costs one request
    case FailureKind::kEnded: return {1, 300};
    case FailureKind::kFailing: return {120, 1800};  // the kubelet retries meanwhile, and a new pod loads everything again
  }
  return {1, 60};
}

constexpr double kMinuteS = 60;

bool is_refusal(FailureKind kind) {
  return kind == FailureKind::kQuota || kind == FailureKind::kTemplate || kind == FailureKind::kCreate;
}

}  // namespace

const Backoff& Backoffs::failed(const Place& place, double now_s, std::string code, std::string message, double at_least_s) {
  const Bounds bounds = bounds_of(place.kind);
  Backoff& entry = entries_[place];
  entry.delay_s = std::clamp(entry.delay_s * 2, bounds.min_s, bounds.max_s);
  entry.until_s = now_s + std::max(entry.delay_s, std::min(at_least_s, bounds.max_s));
  entry.code = std::move(code);
  entry.message = std::move(message);
  entry.failed_s = now_s;
  if (is_refusal(place.kind)) {
    while (!refused_s_.empty() && refused_s_.front() <= now_s - kMinuteS) refused_s_.pop_front();
    refused_s_.push_back(now_s);
    if (refused_s_.size() >= kRefusalsAMinute) {
      paced_until_s_ = now_s + kRefusalPaceS;
      entry.until_s = std::max(entry.until_s, paced_until_s_);
    }
  }
  return entry;
}

bool Backoffs::holds(const planner::PoolId& pool, double now_s) const {
  if (now_s < paced_until_s_) return true;
  return std::any_of(entries_.begin(), entries_.end(), [&](const auto& one) {
    return one.first.pool == pool && one.first.slot == kWholePool && now_s < one.second.until_s;
  });
}

std::set<int> Backoffs::held_slots(const planner::PoolId& pool, double now_s) const {
  std::set<int> held;
  for (const auto& [place, entry] : entries_) {
    if (place.pool == pool && place.slot != kWholePool && place.kind != FailureKind::kFailing && now_s < entry.until_s)
      held.insert(place.slot);
  }
  return held;
}

const Backoff* Backoffs::find(const Place& place) const {
  const auto found = entries_.find(place);
  return found == entries_.end() ? nullptr : &found->second;
}

void Backoffs::accepted(const planner::PoolId& pool, int slot) {
  std::erase_if(entries_, [&](const auto& one) {
    return is_refusal(one.first.kind) && one.first.pool == pool && (one.first.slot == kWholePool || one.first.slot == slot);
  });
}

void Backoffs::forget_refusals(double now_s) {
  std::erase_if(entries_,
                [&](const auto& one) { return is_refusal(one.first.kind) && now_s >= one.second.until_s + kMinuteS; });
}

void Backoffs::expire(double now_s) {
  std::erase_if(entries_, [&](const auto& one) { return now_s >= one.second.until_s + kStableS; });
}

const Backoff* Backoffs::worst() const {
  const std::pair<const Place, Backoff>* found = nullptr;
  for (const auto& one : entries_) {
    const bool refusal = is_refusal(one.first.kind);
    if (found == nullptr || refusal > is_refusal(found->first.kind) ||
        (refusal == is_refusal(found->first.kind) && one.second.failed_s > found->second.failed_s)) {
      found = &one;
    }
  }
  return found == nullptr ? nullptr : &found->second;
}

const Backoff* Backoffs::refusal(double now_s) const {
  const Backoff* found = nullptr;
  for (const auto& [place, entry] : entries_) {
    if (!is_refusal(place.kind) || now_s >= entry.until_s) continue;
    if (found == nullptr || entry.until_s > found->until_s) found = &entry;
  }
  return found;
}

}  // namespace windlass::controller
