// Computes the capacity of each class from the nodes' figures and the workers' states.
#include "planner/policy/capacity.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "planner/policy/trouble.h"

namespace windlass::planner {
namespace {

// Whether it takes GPUs of its node, if it has one.
bool on_node(const Worker& worker) {
  return holds_gpus(worker) || (worker.state == WorkerState::kDraining && trouble_of(worker) != WorkerTrouble::kNodeLost);
}

// The nodes of classes whose nodes are known and cannot be added.
void add_nodes(const Snapshot& snapshot, CapacityByClass& capacities) {
  std::map<std::string, CapacityMode> modes;
  for (const AcceleratorState& state : snapshot.accelerators) modes[state.spec.name] = state.mode;
  for (const NodeState& node : snapshot.nodes) {
    const auto mode = modes.find(node.accelerator);
    if (mode == modes.end() || mode->second == CapacityMode::kElastic) continue;
    auto& nodes = capacities[node.accelerator].nodes;
    if (!nodes) nodes.emplace();
    if (!node.unschedulable) (*nodes)[node.name].limit = std::max(0, node.allocatable_gpus - node.used_by_others);
  }
}

// Calls see(node, GPUs there) for each server of the worker.
template <class See>
void for_each_server(const Worker& worker, const See& see) {
  const int gpus = worker.split().tensor_parallel;
  see(worker.node, gpus);
  for (const std::string& node : worker.later_nodes) see(node, gpus);
}

void add_to_nodes(const Worker& worker, ClassCapacity& capacity) {
  if (!capacity.nodes) return;
  for_each_server(worker, [&](const std::string& name, int gpus) {
    if (name.empty()) {
      if (holds_gpus(worker)) capacity.pending.push_back(gpus);
    } else if (const auto node = capacity.nodes->find(name); node != capacity.nodes->end()) {
      node->second.held += gpus;
    }
  });
}

// Servers of this many GPUs on nodes, those with the fewest free GPUs first.
int place_servers(FreeByNode& free, int gpus_per_server, int servers) {
  std::vector<int*> nodes;
  for (auto& [name, gpus] : free) {
    if (gpus >= gpus_per_server) nodes.push_back(&gpus);
  }
  std::stable_sort(nodes.begin(), nodes.end(), [](const int* a, const int* b) { return *a < *b; });
  int placed = 0;
  for (int* gpus : nodes) {
    const int here = std::clamp(servers - placed, 0, *gpus / gpus_per_server);
    *gpus -= here * gpus_per_server;
    placed += here;
  }
  return placed;
}

}  // namespace

CapacityByClass capacity_by_class(const Snapshot& snapshot) {
  CapacityByClass capacities;
  std::map<std::string, int> serving;
  for (const AcceleratorState& state : snapshot.accelerators) capacities[state.spec.name];
  add_nodes(snapshot, capacities);
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
      if (on_node(worker)) add_to_nodes(worker, found->second);
    }
  }
  for (const AcceleratorState& state : snapshot.accelerators) {
    ClassCapacity& capacity = capacities[state.spec.name];
    const int observed = std::max(state.allocatable_gpus - state.used_by_others, serving[state.spec.name] + capacity.draining);
    const int hard = state.max_gpus ? *state.max_gpus - state.used_by_others : observed;
    if (state.mode == CapacityMode::kElastic)
      capacity.coming = capacity.draining;  // elastic capacity is a limit, wherever
                                            // GPUs are held
    if (capacity.nodes) {
      for (const auto& [name, node] : *capacity.nodes)
        capacity.largest_free = std::max(capacity.largest_free, node.limit - node.held);
    }
    capacity.limit = std::max(0, state.mode == CapacityMode::kElastic ? hard : std::min(observed, hard));
  }
  return capacities;
}

int available_to(const Service& service, const CapacityByClass& capacities, const std::string& accelerator) {
  const ClassCapacity& capacity = capacities.at(accelerator);
  return std::max(0, capacity.limit - capacity.draining - (capacity.held - live_gpus(service, accelerator)));
}

int available_to_worker(const Service& service, const CapacityByClass& capacities, const std::string& accelerator) {
  return std::min(available_to(service, capacities, accelerator),
                  largest_on_one_node(service, capacities.at(accelerator), accelerator));
}

int live_gpus(const Service& service, const std::string& accelerator) {
  int gpus = 0;
  for (const Worker& worker : service.workers) {
    if (holds_gpus(worker) && worker.accelerator == accelerator) gpus += worker.gpus;
  }
  return gpus;
}

int count_existing(const Service& service, const PoolId& pool) {
  return static_cast<int>(std::count_if(service.workers.begin(), service.workers.end(),
                                        [&](const Worker& worker) { return worker.pool_id() == pool && holds_gpus(worker); }));
}

int place_workers(FreeByNode& free, const GpuSplit& each, int workers) {
  if (each.gpus() <= 0 || workers <= 0) return std::max(0, workers);
  int complete = workers;  // only complete chains take GPUs
  if (each.stages > 1) {
    std::int64_t servers = 0;
    for (const auto& [name, gpus] : free) servers += std::max(0, gpus) / each.tensor_parallel;
    complete = static_cast<int>(std::min<std::int64_t>(workers, servers / each.stages));
  }
  return place_servers(free, each.tensor_parallel, complete * each.stages) / each.stages;
}

void take_its_nodes(const Worker& worker, FreeByNode& free) {
  for_each_server(worker, [&](const std::string& name, int gpus) {
    if (name.empty()) {
      place_workers(free, gpus, 1);
    } else if (const auto node = free.find(name); node != free.end()) {
      node->second -= gpus;
    }
  });
}

void give_its_nodes_back(const Worker& worker, FreeByNode& free) {
  for_each_server(worker, [&](const std::string& name, int gpus) {
    if (const auto node = free.find(name); node != free.end()) node->second += gpus;
  });
}

int workers_that_fit(const ClassCapacity& capacity, const GpuSplit& each) {
  const int most = std::max(0, capacity.limit - capacity.draining - capacity.held) / std::max(1, each.gpus());
  if (!capacity.nodes) return most;
  FreeByNode free;
  for (const auto& [name, node] : *capacity.nodes) free[name] = node.limit - node.held;
  std::vector<int> pending = capacity.pending;
  std::sort(pending.rbegin(), pending.rend());
  for (const int gpus : pending) place_workers(free, gpus, 1);
  return place_workers(free, each, most);
}

int largest_on_one_node(const Service& service, const ClassCapacity& capacity, const std::string& accelerator) {
  if (!capacity.nodes) return std::numeric_limits<int>::max();
  std::map<std::string, int> own;
  for (const Worker& worker : service.workers) {
    if (!holds_gpus(worker) || worker.accelerator != accelerator) continue;
    for_each_server(worker, [&](const std::string& node, int gpus) { own[node] += gpus; });
  }
  // Only the nodes of its own workers can have more than nobody holds. Looking at all nodes for each service would be
  // quadratic.
  int largest = capacity.largest_free;
  for (const auto& [name, gpus] : own) {
    const auto node = capacity.nodes->find(name);
    if (node != capacity.nodes->end()) largest = std::max(largest, node->second.limit - node->second.held + gpus);
  }
  return largest;
}

const AcceleratorState* find_accelerator(std::span<const AcceleratorState> accelerators, const std::string& name) {
  for (const AcceleratorState& state : accelerators) {
    if (state.spec.name == name) return &state;
  }
  return nullptr;
}

const AcceleratorState* find_accelerator(const Snapshot& snapshot, const std::string& name) {
  return find_accelerator(std::span(snapshot.accelerators), name);
}

}  // namespace windlass::planner
