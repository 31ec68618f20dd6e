// Capacity per class from the nodes' figures and the workers' states.
#include "planner/policy/capacity.h"

#include <algorithm>

namespace windlass::planner {

CapacityByClass capacity_by_class(const Snapshot& snapshot) {
  CapacityByClass capacities;
  for (const AcceleratorState& state : snapshot.accelerators) {
    int ready = 0;
    ClassCapacity capacity;
    for (const Service& service : snapshot.services) {
      for (const Worker& worker : service.workers) {
        if (worker.accelerator != state.spec.name) continue;
        if (worker.state == WorkerState::kReady) ready += worker.gpus;
        if (worker.state == WorkerState::kDraining) capacity.draining += worker.gpus;
      }
    }
    const int observed = std::max(state.allocatable_gpus - state.used_by_others, ready + capacity.draining);
    const int hard = state.max_gpus ? *state.max_gpus - state.used_by_others : observed;
    capacity.limit = std::max(0, state.mode == CapacityMode::kElastic ? hard : std::min(observed, hard));
    capacities[state.spec.name] = capacity;
  }
  return capacities;
}

int live_gpus(const Service& service, const std::string& accelerator) {
  int gpus = 0;
  for (const Worker& worker : service.workers) {
    const bool live = worker.state == WorkerState::kStarting || worker.state == WorkerState::kReady;
    if (live && worker.accelerator == accelerator) gpus += worker.gpus;
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
