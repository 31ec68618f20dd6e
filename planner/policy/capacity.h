// Computes how many GPUs of each AcceleratorClass our workers may use.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "planner/policy/snapshot.h"

namespace windlass::planner {

// GPUs of one node.
struct NodeRoom {
  int limit = 0;  // GPUs that our workers may hold: allocatable ones minus what others use
  int held = 0;   // by our workers, including draining ones
};

struct ClassCapacity {
  int limit = 0;     // GPUs that our workers may hold, including draining ones
  int draining = 0;  // part of it held by draining workers
  int coming = 0;    // part of `draining` that others can use afterwards: not on a node that is being emptied
  int held = 0;      // held by all other workers, of any service
  // The nodes that take new workers, by name. Absent if no node of the class is known, or if nodes can be added (Elastic).
  std::optional<std::map<std::string, NodeRoom>> nodes = {};
  int largest_free = 0;           // GPUs that nobody holds on one of them, where most are free
  std::vector<int> pending = {};  // GPUs of each server in `held` that has no node yet
};

using CapacityByClass = std::map<std::string, ClassCapacity>;

// Observed: what the nodes offer minus what others use, but at least what serving and draining workers hold, since the node
// count may dip while they run. Elastic: maxGPUs minus what others use, so workers may be pending while nodes are added.
[[nodiscard]] CapacityByClass capacity_by_class(const Snapshot& snapshot);

// GPUs of a class held by `service`'s workers, without draining ones.
[[nodiscard]] int live_gpus(const Service& service, const std::string& accelerator);
// Workers of a pool that hold GPUs, without draining ones.
[[nodiscard]] int count_existing(const Service& service, const PoolId& pool);
// GPUs available to this service: the class's total minus what other services' workers hold.
[[nodiscard]] int available_to(const Service& service, const CapacityByClass& capacities, const std::string& accelerator);
// The part of them that one worker, or one server of a chain, can have: those on one node.
[[nodiscard]] int available_to_worker(const Service& service, const CapacityByClass& capacities,
                                      const std::string& accelerator);

// A server needs all its GPUs on one node: eight free GPUs on eight nodes have no room for a worker of two. Most workers are
// one server; a chain has several, each on any node.

using FreeByNode = std::map<std::string, int>;  // free GPUs, by node

// Puts up to `workers` workers on nodes, those with the fewest free GPUs first, and takes their GPUs from `free`. Returns how
// many found room.
int place_workers(FreeByNode& free, const GpuSplit& each, int workers);

// Takes the worker's GPUs from its nodes; for servers without a node, from any.
void take_its_nodes(const Worker& worker, FreeByNode& free);
// Gives the GPUs of those that have a node back.
void give_its_nodes_back(const Worker& worker, FreeByNode& free);

// Workers that can start now, next to all that exist; those that have no node yet come first.
[[nodiscard]] int workers_that_fit(const ClassCapacity& capacity, const GpuSplit& each);

// GPUs that one worker of `service` can get on one node if the service's other workers leave; "any number" if no node is known.
[[nodiscard]] int largest_on_one_node(const Service& service, const ClassCapacity& capacity, const std::string& accelerator);

// nullptr: there is none of this name.
[[nodiscard]] const AcceleratorState* find_accelerator(std::span<const AcceleratorState> accelerators, const std::string& name);
[[nodiscard]] const AcceleratorState* find_accelerator(const Snapshot& snapshot, const std::string& name);

}  // namespace windlass::planner
