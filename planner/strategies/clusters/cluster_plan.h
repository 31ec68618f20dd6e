// A placement on a GpuCluster: groups of GPUs that serve a copy of the model each, and how requests flow through them.
//
// Strategies for heterogeneous clusters (HexGen-2, Huawei's) are functions from a ClusterProblem to a ClusterPlan, as
// search::Strategy is from a Problem to an Offer. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/sim/serving_options.h"
#include "planner/strategies/clusters/gpu_cluster.h"
#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::hetero {

struct ClusterProblem {
  // Of the same file: shape, requests, rate, objectives, seed, and the cluster's classes with their GPUs as accelerators, so
  // that every search::Strategy can be asked beside. Its kinds know nothing of the network.
  const search::Problem* search = nullptr;  // borrowed
  GpuCluster cluster;
};

// Consecutive layers on GPUs of one node that cut each of them (tensor parallelism over all of them).
struct Stage {
  std::vector<int> gpus;  // of GpuCluster
  int layers = 0;
};

struct Group {
  dispatch::Role role = dispatch::Role::kUnified;
  std::vector<Stage> stages;  // in the order of the layers
  double capacity_requests_per_s = 0;
  double latency_s = 0;  // of one request's phase, alone (prefill) or in the largest batch (decode)
  int batch = 1;         // requests at once

  [[nodiscard]] int gpus() const;
  // Of every stage, or the largest where they differ.
  [[nodiscard]] int tensor_parallel() const;
};

// What a pair of groups shares: requests prefilled by `from` and decoded by `to`, both indices in ClusterPlan::groups.
struct FlowEdge {
  int from = 0;
  int to = 0;
  double requests_per_s = 0;
  double capacity_requests_per_s = 0;
  double share = 0;  // of the whole flow
};

struct ClusterPlan {
  std::string strategy;
  bool holds = false;  // serves the problem's rate; otherwise the most that was found, and `reasons` say how much is missing
  std::vector<Group> groups;
  std::vector<FlowEdge> flow;          // none for unified groups
  double capacity_requests_per_s = 0;  // the value of the flow; of unified groups the sum
  double cost_per_hour = 0;            // of the GPUs in groups
  double power_watts = 0;
  int gpus = 0;
  std::int64_t iterations = 0;       // refinements that were tried
  std::vector<std::string> reasons;  // why this: a sentence each
  struct Runner {
    std::string what;  // in words
    double capacity_requests_per_s = 0;
    double cost_per_hour = 0;
    std::string rejected_because;
  };
  std::vector<Runner> considered;  // at most search::kMaxConsidered
  bool stopped = false;            // by Effort::stop, before the search was through
};

// Errors: as search::Strategy; a model that fits nowhere says what would fit where and how many bytes are missing.
using ClusterStrategy = std::function<Result<ClusterPlan>(const ClusterProblem&, const search::Effort&)>;

}  // namespace windlass::hetero
