// See trouble.h.
#include "planner/policy/trouble.h"

#include <algorithm>
#include <map>
#include <string>

#include <fmt/format.h>

#include "planner/policy/tuning.h"

namespace windlass::planner {
namespace {

const char* reason_of(WorkerTrouble trouble) {
  switch (trouble) {
    case WorkerTrouble::kNone: break;
    case WorkerTrouble::kUnschedulable: return "WorkersUnschedulable";
    case WorkerTrouble::kImagePull: return "ImagePullFailing";
    case WorkerTrouble::kCrashLoop: return "WorkersCrashLooping";
    case WorkerTrouble::kOutOfMemory: return "WorkersOutOfMemory";
    case WorkerTrouble::kNodeLost: return "NodesLost";
    case WorkerTrouble::kFailed: return "WorkersFailing";
  }
  return "AsNeeded";
}

const char* words_for(WorkerTrouble trouble) {
  switch (trouble) {
    case WorkerTrouble::kNone: break;
    case WorkerTrouble::kUnschedulable: return "cannot be scheduled: no node has room";
    case WorkerTrouble::kImagePull: return "cannot pull their image";
    case WorkerTrouble::kCrashLoop: return "crash repeatedly";
    case WorkerTrouble::kOutOfMemory: return "were killed because they ran out of memory";
    case WorkerTrouble::kNodeLost: return "are on nodes that do not respond";
    case WorkerTrouble::kFailed: return "have failed";
  }
  return "are healthy";
}

}  // namespace

WorkerTrouble trouble_of(const Worker& worker) {
  if (worker.trouble != WorkerTrouble::kNone) return worker.trouble;
  if (worker.state == WorkerState::kUnschedulable) return WorkerTrouble::kUnschedulable;
  if (worker.state == WorkerState::kFailed) return WorkerTrouble::kFailed;
  return WorkerTrouble::kNone;
}

bool serves(const Worker& worker) { return worker.state == WorkerState::kReady && worker.trouble == WorkerTrouble::kNone; }

bool is_fresh(const Worker& worker, double now_s) {
  return worker.state == WorkerState::kStarting && !worker.ready_s && now_s - worker.created_s < kFreshS;
}

bool holds_gpus(const Worker& worker) {
  // Of a chain, the servers that have a node hold its GPUs although another one is waiting or gone.
  const bool part_placed = !worker.later_nodes.empty() &&
                           (!worker.node.empty() || std::any_of(worker.later_nodes.begin(), worker.later_nodes.end(),
                                                                [](const std::string& node) { return !node.empty(); }));
  if (part_placed) return worker.state != WorkerState::kDraining && worker.trouble != WorkerTrouble::kNodeLost;
  switch (worker.state) {
    case WorkerState::kStarting:
    case WorkerState::kReady: break;
    case WorkerState::kDraining:
    case WorkerState::kUnschedulable: return false;
    case WorkerState::kFailed:
      // A pod that has ended for good released its GPUs; one that is being restarted did not.
      return worker.trouble == WorkerTrouble::kImagePull || worker.trouble == WorkerTrouble::kCrashLoop ||
             worker.trouble == WorkerTrouble::kOutOfMemory;
  }
  return worker.trouble != WorkerTrouble::kUnschedulable && worker.trouble != WorkerTrouble::kNodeLost;
}

bool is_stranded(const Worker& worker, double now_s) {
  return worker.state != WorkerState::kDraining && trouble_of(worker) == WorkerTrouble::kUnschedulable &&
         now_s - worker.created_s > kUnschedulableGraceS;
}

std::optional<Hint> trouble_hint(const Service& service) {
  std::map<WorkerTrouble, int> counts;
  std::map<WorkerTrouble, const Worker*> first;
  for (const Worker& worker : service.workers) {
    if (worker.state == WorkerState::kDraining) continue;
    const WorkerTrouble trouble = trouble_of(worker);
    if (trouble == WorkerTrouble::kNone) continue;
    ++counts[trouble];
    first.emplace(trouble, &worker);
  }
  if (counts.empty()) return std::nullopt;
  WorkerTrouble most = counts.begin()->first;
  std::string message;
  for (const auto& [trouble, count] : counts) {
    if (count > counts[most]) most = trouble;
    const Worker& worker = *first[trouble];
    message += fmt::format("{}{} workers {} (first: {}{}{})", message.empty() ? "" : "; ", count, words_for(trouble),
                           worker.name, worker.trouble_message.empty() ? "" : ": ", worker.trouble_message);
  }
  return Hint{Truth::kFalse, reason_of(most), message};
}

}  // namespace windlass::planner
