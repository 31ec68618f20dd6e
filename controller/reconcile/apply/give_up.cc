// give up finds workers whose node no longer answers, and asks the runtime to end those that have been lost for too long or
// leave no room for their replacement.
//
// Kubernetes removes the pod of such a worker only when its node comes back or is removed. If most workers seem lost, none is
// given up, because the control plane has more likely lost its view of the cluster.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "controller/reconcile/apply/step.h"
#include "controller/reconcile/routes.h"

namespace windlass::controller {
namespace {

// a worker is given up if its node has not answered for this long, the same as Kubernetes' default
constexpr double kNodeLostS = 300;
constexpr double kMassLoss = 0.55;  // if a larger share of workers seems lost, the control plane has more likely lost its view
constexpr int kMassLossWorkers = 3;

}  // namespace

void look_for_lost_nodes(ApplyStep& step) {
  std::map<std::string, double>& lost_since_s = step.state.lost_since_s;
  std::set<std::string> lost;
  int placed = 0;
  for (const auto& [uid, workers] : step.context.observation.workers) {
    for (const Worker& worker : workers) {
      const std::vector<std::string> nodes = worker.nodes();
      const bool placed_somewhere =
          std::any_of(nodes.begin(), nodes.end(), [](const std::string& node) { return !node.empty(); });
      if (!placed_somewhere || worker.finished) continue;
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

// A pod that reports ready is not given up: Kubernetes clears readiness on lost nodes, so our data is late.
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
