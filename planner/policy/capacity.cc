// Computes the capacity of each class from the nodes' figures and the workers' states.
#include "planner/policy/capacity.h"

#include <algorithm>

#include "planner/policy/trouble.h"

namespace windlass::planner {

CapacityByClass capacity_by_class(const Snapshot& snapshot) {
  CapacityByClass capacities;
  std::map<std::string, int> serving;
  for (const AcceleratorState& state : snapshot.accelerators) capacities[state.spec.name];
  for (const Service& service : snapshot.services) {
    for (const Worker& worker : service.workers) {
      const auto found = capacities.find(worker.accelerator);
      if (found == capacities.end()) continue;
      const bool gone = trouble_of(worker) == WorkerTrouble::kNodeLost;  // no node counts its GPUs
      if (worker.state == WorkerState::kDraining && !gone) {
        found->second.draining += worker.gpus;
        if (!worker.node_leaving) found->second.coming += worker.gpus;
      }
      if (serves(worker)) serving[worker.accelerator] += worker.gpus;
      if (holds_gpus(worker)) found->second.held += worker.gpus;
    }
  }
  for (const AcceleratorState& state : snapshot.accelerators) {
    ClassCapacity& capacity = capacities[state.spec.name];
    const int observed = std::max(state.allocatable_gpus - state.used_by_others, serving[state.spec.name] + capacity.draining);
    const int hard = state.max_gpus ? *state.max_gpus - state.used_by_others : observed;
    if (state.mode == CapacityMode::kElastic)
      capacity.coming = capacity.draining;  // elastic capacity is a limit, wherever
                                            // GPUs are held
    capacity.limit = std::max(0, state.mode == CapacityMode::kElastic ? hard : std::min(observed, hard));
  }
  return capacities;
}

int available_to(const Service& service, const CapacityByClass& capacities, const std::string& accelerator) {
  const ClassCapacity& capacity = capacities.at(accelerator);
  return std::max(0, capacity.limit - capacity.draining - (capacity.held - live_gpus(service, accelerator)));
}

int live_gpus(const Service& service, const std::string& accelerator) {
  int gpus = 0;
  for (const Worker& worker : service.workers) {
    if (holds_gpus(worker) && worker.accelerator == accelerator) gpus += worker.gpus;
  }
  return gpus;
}

const AcceleratorState* find_accelerator(const Snapshot& snapshot, const std::string& name) {
  for (const AcceleratorState& state : snapshot.accelerators) {
    if (state.spec.name == name) return &state;
  }
  return nullptr;
}

}  // namespace windlass::planner
