// replace decides which workers are replaced: those that keep failing where they are, and those with an outdated configuration.
#include <algorithm>

#include <fmt/format.h>

#include "controller/reconcile/apply/step.h"
#include "controller/reconcile/routes.h"

namespace windlass::controller {
namespace {

// A worker that keeps failing where it is (crash loop, out of memory, image) is recreated after a separate back-off, because
// another node may do better. The kubelet keeps retrying meanwhile.
void replace_if_failing(ApplyStep& step, ServiceStep& own, const Worker& worker) {
  if (!worker.failed) {
    step.state.failing.erase(worker.uid);
    return;
  }
  const Backoffs::Place place{pool_of(worker), worker.slot, FailureKind::kFailing};
  const std::string code = planner::to_string(worker.trouble);
  Backoffs& backoffs = own.memory.backoffs;
  const Backoff* running = backoffs.find(place);
  if (step.state.failing.insert(worker.uid).second || running == nullptr) {
    (void)backoffs.failed(place, step.now_s(), code, worker.message);
    step.applied.happenings.push_back({&own.service, true, code, fmt::format("worker {}: {}", worker.name, worker.message)});
    return;
  }
  if (step.now_s() < running->until_s || !step.may_write()) return;
  const auto ended = step.context.runtime.terminate(worker, kQuietGraceS);
  step.note(ended, "replacing " + chain_id(worker));
  if (!ended.ok()) return;
  step.state.failing.erase(worker.uid);
  step.applied.happenings.push_back({&own.service, false, "WorkerReplaced",
                                     fmt::format("replacing worker {}, which has been failing for {:.0f} s: {}", worker.name,
                                                 step.now_s() - running->failed_s, worker.message)});
}

}  // namespace

void replace_failing(ApplyStep& step, ServiceStep& own) {
  for (const Worker* worker : own.active) replace_if_failing(step, own, *worker);
}

// Outdated workers go as new ones become ready. If there is no room for a new one, one outdated worker goes first, unless one
// is already going.
void replace_outdated(ApplyStep& step, const ServiceStep& own) {
  std::vector<const Worker*> outdated;
  int ready_outdated = 0;
  for (const Worker* worker : own.active) {
    if (own.current.contains(worker)) continue;
    outdated.push_back(worker);
    ready_outdated += worker->serves_its_role() ? 1 : 0;
  }
  if (outdated.empty()) return;
  const bool making_room = std::any_of(own.workers.begin(), own.workers.end(), [](const Worker& worker) {
    return !worker.finished && (worker.terminating || worker.draining_since_s);
  });
  const int not_ready = static_cast<int>(outdated.size()) - ready_outdated;
  const int spare = std::clamp(own.ready_current + ready_outdated - own.plan.desired_workers(), 0, ready_outdated);
  if (const int count = not_ready + spare; count > 0) {
    drain_some(step, own.service, outdated, count);
  } else if (own.wants_room && !making_room) {
    // Removing a worker from a node that is being emptied frees no room.
    std::erase_if(outdated, [](const Worker* worker) { return worker->node_leaving; });
    drain_some(step, own.service, outdated, 1);
  }
}

}  // namespace windlass::controller
