// give up: decides which workers' nodes are lost, and when such a worker is asked to end although nobody can see it.
//
// It ends when the node comes back or is removed. Nothing is given up while most nodes seem lost: then it is more likely that
// the cluster cannot see.
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>

#include "controller/reconcile/apply/step.h"
#include "controller/reconcile/routes.h"

namespace windlass::controller {
namespace {

constexpr double kNodeLostS = 300;  // a worker whose node does not answer for this long is given up, as Kubernetes does
constexpr double kMassLoss = 0.55;  // beyond this share of lost workers it is more likely the cluster that cannot see
constexpr int kMassLossWorkers = 3;

}  // namespace

void look_for_lost_nodes(ApplyStep& step) {
  std::map<std::string, double>& lost_since_s = step.state.lost_since_s;
  std::set<std::string> lost;
  int placed = 0;
  for (const auto& [uid, workers] : step.context.observation.workers) {
    for (const Worker& worker : workers) {
      if (worker.node.empty() || worker.finished) continue;
      ++placed;
      if (worker.trouble != planner::WorkerTrouble::kNodeLost) continue;
      lost.insert(worker.uid);
      lost_since_s.try_emplace(worker.uid, step.now_s());
    }
  }
  std::erase_if(lost_since_s, [&](const auto& one) { return !lost.contains(one.first); });
  const int count = static_cast<int>(lost.size());
  step.mass_loss = count >= kMassLossWorkers && count > kMassLoss * placed;
}

// A pod that says it is ready is not given up: Kubernetes takes that back from the pods of a lost node, so we know of one of
// them late.
void give_up(ApplyStep& step, const api::ModelService& service, const Worker& worker) {
  if (step.mass_loss || worker.says_ready || !step.may_write()) return;
  const auto ended = step.context.runtime.terminate(worker, std::nullopt);
  step.note(ended, "giving up " + chain_id(worker));
  if (ended.ok()) {
    step.applied.happenings.push_back(
        {&service, true, "WorkerLost", fmt::format("gave up worker {}: {}", worker.name, worker.message)});
  }
}

void give_up_long_lost(ApplyStep& step, const ServiceStep& own) {
  for (const Worker* worker : own.lost) {
    if (step.now_s() - step.state.lost_since_s[worker->uid] >= kNodeLostS) give_up(step, own.service, *worker);
  }
}

}  // namespace windlass::controller
