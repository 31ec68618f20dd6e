// Huawei's planner for a heterogeneous cluster: it chooses the tensor-parallel degree of each machine (Xiong et al. 2025,
// "High-Throughput LLM inference on Heterogeneous Clusters", Section 3). A machine with u GPUs runs u / t instances of degree
// t; the degree with the highest total throughput wins. The paper compares throughputs by Alg. 1, for static batches; the plan
// compares what continuous batching serves by the same coefficients (huawei_estimate.h).
//
// An instance uses one machine. A machine has GPUs of one kind and instances of one degree, which divides its GPUs and cuts the
// model evenly. The paper looks for the best combination of degrees over all machines. The code need not enumerate them:
// throughputs of machines add up, and a machine uses the same GPUs, money and power at any degree. So the best degree of each
// machine is part of the best plan. Identical machines are evaluated once.
//
// All machines that can serve do so. If the problem limits GPUs or cost, a small integer program chooses the machines that
// serve most within the limits. docs/algorithms/huawei.md lists differences from the paper. Pure.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/engine_overhead.h"
#include "planner/strategies/core/strategy.h"
#include "planner/strategies/huawei/huawei_estimate.h"

namespace windlass::hetero {

// p1 to p8 of an instance with this many of the machine's GPUs, whose caches hold `kv_tokens`. Must be safe to call
// concurrently.
using BatchTimesOf =
    std::function<Result<dispatch::BatchTimes>(const ClusterNode& machine, int tensor_parallel, double kv_tokens)>;

// Fitted to roofline_instance() with that overhead.
[[nodiscard]] BatchTimesOf roofline_batch_times(const planner::ModelShape& shape, const planner::EngineOverhead& overhead = {});

struct HuaweiOptions {
  MemoryRules memory;
  int sampled_requests = 200;  // drawn with the problem's seed, for Alg. 1; the paper's number
  int max_input_tokens = 0;    // I_max and O_max of Eq. 2; 0: the longest sampled request
  int max_output_tokens = 0;
  BatchTimesOf times_of;  // empty: roofline_batch_times()
};

// One degree on one machine.
struct InstanceOption {
  int tensor_parallel = 1;
  int instances = 1;  // u / t
  double kv_bytes = 0;
  double kv_tokens = 0;
  dispatch::BatchTimes times;
  ThroughputEstimate static_batches;  // of each instance
  ContinuousEstimate continuous;      // the same
  std::string unfit;                  // why it cannot be deployed; empty if it can

  [[nodiscard]] double requests_per_s() const { return instances * continuous.requests_per_s; }
  [[nodiscard]] double tokens_per_s() const { return instances * continuous.tokens_per_s; }
  [[nodiscard]] double static_tokens_per_s() const { return instances * static_batches.tokens_per_s; }
};

// Identical machines: same accelerator, number of GPUs, and link between them.
struct MachineKind {
  std::vector<int> nodes;               // indices in GpuCluster
  std::vector<InstanceOption> options;  // by degree
  int best = -1;                        // index in `options`: the highest throughput, ties by smallest degree; -1: none can be
                                        // deployed
};

struct DeploymentSearch {
  std::vector<MachineKind> machines;  // in order of their first nodes
  double log10_configurations = 0;    // number of products of deployable degrees over the machines
};

// Errors: kInvalidArgument if validate() rejects the cluster or shape, there are no requests, or options are out of range;
// kCancelled.
[[nodiscard]] Result<DeploymentSearch> search_tensor_parallel(const search::Problem& problem, const search::Effort& effort,
                                                              const HuaweiOptions& options = {});

// Capacities are those of continuous batching. A chain is an instance; its latency is a request's mean time in it. Errors: as
// search_tensor_parallel(); kNotFound if no machine can hold the model, or none fits the bounds, with what is missing.
[[nodiscard]] Result<search::Offer> huawei_plan(const search::Problem& problem, const search::Effort& effort,
                                                const HuaweiOptions& options);
[[nodiscard]] inline Result<search::Offer> huawei_plan(const search::Problem& problem, const search::Effort& effort) {
  return huawei_plan(problem, effort, {});
}

}  // namespace windlass::hetero
