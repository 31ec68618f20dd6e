// See start_log.h.
#include "controller/reconcile/start_log.h"

#include <algorithm>
#include <cmath>

namespace windlass::controller {

void StartLog::observe(const std::vector<Worker>& workers) {
  std::set<std::string> there;
  for (const Worker& worker : workers) {
    there.insert(worker.uid);
    if (settled_.contains(worker.uid)) continue;
    const bool waits_for_room = worker.trouble == planner::WorkerTrouble::kUnschedulable;
    const bool spoiled = worker.failed || worker.finished || worker.terminating || worker.draining_since_s ||
                         (worker.trouble != planner::WorkerTrouble::kNone && !waits_for_room);
    if (worker.ready && !spoiled && starting_.contains(worker.uid) && worker.ready_s) {
      const double took_s = *worker.ready_s - worker.created_s;
      if (std::isfinite(took_s) && took_s >= 0) seconds_.push_back(took_s);
      if (seconds_.size() > kMost) seconds_.pop_front();
    }
    if (worker.ready || spoiled) {
      starting_.erase(worker.uid);
      settled_.insert(worker.uid);
    } else {
      starting_.insert(worker.uid);
    }
  }
  const auto gone = [&](const std::string& uid) { return !there.contains(uid); };
  std::erase_if(starting_, gone);
  std::erase_if(settled_, gone);
}

std::optional<planner::StartTimes> StartLog::times() const {
  if (seconds_.empty()) return std::nullopt;
  std::vector<double> sorted(seconds_.begin(), seconds_.end());
  std::sort(sorted.begin(), sorted.end());
  const auto rank = static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(sorted.size())));
  return planner::StartTimes{sorted[rank - 1], static_cast<int>(sorted.size())};
}

}  // namespace windlass::controller
