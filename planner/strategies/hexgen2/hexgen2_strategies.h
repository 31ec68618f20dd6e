// HexGen-2's second phase, first step: finds the best parallel strategy of a group of GPUs, for each phase of inference.
//
// A group is a composition: the number of GPUs per node (those of one node are interchangeable). The search tries every way to
// divide each node's share into tensor-parallel stages. Degrees may differ between stages, and the stages of a node are
// adjacent. Table 1 adds up the times of the stages. So the best split of layers gives the fastest stages as many as their
// memory allows, equally fast ones the same number, and every stage at least one.
//
// Prefill: the least latency of one request. Decode: the largest batch that fits or is allowed, then the most requests/s. Among
// node orders with the least communication between stages, the KV transfer decides (hexgen2_placement.h). Groups of equivalent
// composition (same accelerators and links) share their strategies, which are computed once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_map>
#include <utility>
#include <vector>

#include "planner/deployment/gpu_cluster.h"
#include "planner/deployment/link_table.h"
#include "planner/strategies/core/stage_cost.h"

namespace windlass::hetero {

struct NodeShare {
  int node = 0;
  int gpus = 0;
  auto operator<=>(const NodeShare&) const = default;
};
// Ascending by node, each at most once, gpus >= 1.
using Composition = std::vector<NodeShare>;

struct OrderedStage {
  int slot = 0;  // index in GroupEntry::nodes
  int tensor_parallel = 1;
  int first_layer = 0;
  int layers = 0;
};

// How a group serves one phase; capacity 0: it cannot serve it.
struct PhaseStrategy {
  double capacity_requests_per_s = 0;
  double latency_s = 0;
  int batch = 0;
  std::vector<std::vector<OrderedStage>> orders;  // of the same stages; at most kMaxOrders
};
inline constexpr std::size_t kMaxOrders = 24;

struct GroupStrategies {
  PhaseStrategy prefill;
  PhaseStrategy decode;
  PhaseStrategy unified;  // both phases on one group (HexGen): the most requests/s of 1 / (prefill + decode / batch)
};

struct GroupEntry {
  std::vector<int> nodes;  // by slot
  const GroupStrategies* strategies = nullptr;
  std::int64_t prefill_units = 0, decode_units = 0;  // both capacities in flow units (hexgen2_flow.h)
};

// Upper bounds of a group's capacities, in flow units.
struct GroupBound {
  std::int64_t prefill_units = 0, decode_units = 0;
};

// Which of GroupStrategies to compute.
enum class Service { kDisaggregated, kUnified };

// Caches its results, so use each table from one thread at a time. Borrows the cluster and the task.
class StrategyTable {
 public:
  StrategyTable(const GpuCluster& cluster, const InferenceTask& task, Service service = Service::kDisaggregated);
  StrategyTable(const StrategyTable&) = delete;
  StrategyTable& operator=(const StrategyTable&) = delete;

  // The reference stays valid. An empty group serves nothing. REQUIRES: nodes and GPUs that the cluster has.
  const GroupEntry& of(const Composition& group);
  // Bounds what of() gives for gpus[i] GPUs (0: none) on each node nodes[i]. It costs far less, because groups on different
  // links share it: the best cuts with free hops between nodes, and then the least hops. Exact for prefill on up to three
  // nodes, except for rounding (10^-9). REQUIRES: Service::kDisaggregated, different nodes.
  GroupBound bound(const std::vector<int>& nodes, const std::vector<int>& gpus);

  // Between a GPU of node `a` and a different GPU of node `b`.
  [[nodiscard]] const Link& link(int a, int b) const { return links_.of(a, b); }
  [[nodiscard]] const LinkTable& links() const { return links_; }
  // Nodes with the same number have the same accelerator and internal links.
  [[nodiscard]] int kind(int node) const { return kind_of_[static_cast<std::size_t>(node)]; }
  [[nodiscard]] int kinds() const { return static_cast<int>(figures_.size()); }
  // Between GPUs of one node.
  [[nodiscard]] const Link& within(int kind) const { return within_[static_cast<std::size_t>(kind)]; }
  // For a stage of `tensor_parallel` GPUs. REQUIRES: a degree of the task.
  [[nodiscard]] const StageFigures& figures(int kind, int tensor_parallel) const;
  [[nodiscard]] const GpuCluster& cluster() const { return cluster_; }
  [[nodiscard]] const InferenceTask& task() const { return task_; }

 private:
  struct Hash {
    std::size_t operator()(const std::vector<std::uint32_t>& key) const;
    std::size_t operator()(const Composition& key) const;
  };

  // Seconds for one request: prefill, and its share of a decode batch.
  struct Times {
    double prefill_s = kInfinite, decode_s = kInfinite;
  };

  GroupStrategies solve(const std::vector<int>& kinds, const std::vector<int>& gpus,
                        const std::vector<const Link*>& links) const;
  Times without_hops(const std::vector<int>& nodes, const std::vector<int>& gpus) const;

  const GpuCluster& cluster_;
  const InferenceTask& task_;
  Service service_;
  LinkTable links_;
  std::vector<int> kind_of_;
  std::vector<Link> within_;                        // by kind
  std::vector<std::vector<StageFigures>> figures_;  // by kind and index in the task's degrees
  std::unordered_map<Composition, GroupEntry, Hash> entries_;
  std::unordered_map<std::vector<std::uint32_t>, const GroupStrategies*, Hash> solved_;
  std::deque<GroupStrategies> strategies_;
  std::vector<Times> hops_;                           // by link: the least that a hop over it adds
  std::unordered_map<std::uint64_t, Times> cuts_of_;  // by the group's kinds and numbers of GPUs: the best cuts with free hops
};

}  // namespace windlass::hetero
