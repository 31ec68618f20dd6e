// drain decides which of a group of workers to remove first, and starts draining them.
#include <algorithm>

#include <fmt/format.h>

#include "controller/reconcile/apply/step.h"
#include "controller/reconcile/routes.h"

namespace windlass::controller {
namespace {

double running_requests(const Signals& signals, const Worker& worker) {
  const WorkerLoad* load = signals.worker_load(worker.uid);
  const auto inside = load == nullptr ? std::nullopt : load->requests();
  return inside ? inside->value : 0.0;
}

void drain(ApplyStep& step, const api::ModelService& service, const Worker& worker) {
  if (!step.may_write()) return;
  WorkerRuntime& runtime = step.context.runtime;
  // A worker that never became ready has nothing in flight.
  const auto result =
      worker.ready_s || worker.ready ? runtime.begin_drain(worker, step.context.now) : runtime.terminate(worker, kQuietGraceS);
  step.note(result, "draining " + chain_id(worker));
  if (result.ok()) {
    step.applied.happenings.push_back({&service, false, "WorkerDraining", fmt::format("draining worker {}", worker.name)});
  }
}

}  // namespace

// In trouble, not ready, then fewest requests, then the highest slot.
void sort_for_draining(const ApplyStep& step, std::vector<const Worker*>& workers) {
  const Signals& signals = step.context.signals;
  std::sort(workers.begin(), workers.end(), [&](const Worker* a, const Worker* b) {
    const bool trouble_a = a->trouble != planner::WorkerTrouble::kNone, trouble_b = b->trouble != planner::WorkerTrouble::kNone;
    if (trouble_a != trouble_b) return trouble_a;
    if (a->serves_its_role() != b->serves_its_role()) return !a->serves_its_role();
    const double load_a = running_requests(signals, *a), load_b = running_requests(signals, *b);
    if (load_a != load_b) return load_a < load_b;
    return a->slot > b->slot;
  });
}

void drain_some(ApplyStep& step, const api::ModelService& service, std::vector<const Worker*> candidates, int count) {
  sort_for_draining(step, candidates);
  for (int i = 0; i < count && i < static_cast<int>(candidates.size()); ++i) {
    drain(step, service, *candidates[static_cast<std::size_t>(i)]);
  }
}

}  // namespace windlass::controller
