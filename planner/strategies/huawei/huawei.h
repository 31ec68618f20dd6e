// Huawei's deployment for a heterogeneous cluster: Xiong et al. 2025 ("High-Throughput LLM inference on Heterogeneous
// Clusters"), Section 3: of every machine the degree of tensor parallelism t with which its u / t instances serve most.
//
// An instance stands on one machine; a machine has GPUs of one kind and instances of one degree, which divides its GPUs and
// cuts the model evenly. The plan is the best of all products of degrees over the machines. The product is not walked:
// throughputs of machines add, and a machine takes the same GPUs, money and power whatever its degree, so the best degree of
// each machine dominates its others in every product, and products of dominated ones are pruned. Machines that are alike are
// estimated once. All machines serve that can; where the problem bounds GPUs or cost, those that serve most inside of the
// bounds (a small integer program). docs/algorithms/huawei.md says where this differs from the paper. Pure.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/perf/operator_model.h"
#include "planner/strategies/core/strategy.h"
#include "planner/strategies/huawei/huawei_estimate.h"

namespace windlass::hetero {

// p1 to p8 of an instance of so many GPUs of the machine, whose caches hold `kv_tokens`. Called side by side.
using BatchTimesOf =
    std::function<Result<dispatch::BatchTimes>(const ClusterNode& machine, int tensor_parallel, double kv_tokens)>;

// An instance by the machine's data sheet and its own link (planner/perf/operator_model.h). `overhead`: what the engine adds;
// its memory decides nothing here. Errors: those of OperatorModel.
[[nodiscard]] Result<std::shared_ptr<const planner::IterationModel>> roofline_instance(
    const planner::ModelShape& shape, const ClusterNode& machine, int tensor_parallel,
    const planner::EngineOverhead& overhead = {});
// Fitted on that roofline.
[[nodiscard]] BatchTimesOf roofline_batch_times(const planner::ModelShape& shape, const planner::EngineOverhead& overhead = {});

struct HuaweiOptions {
  MemoryRules memory;
  int sampled_requests = 200;  // of the problem's seed, for Alg. 1; the paper's number
  int most_requests = 256;     // in a batch: vLLM's limit
  int max_input_tokens = 0;    // I_max and O_max of Eq. 2; 0: the longest of the sampled requests
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
  ThroughputEstimate one;  // of each instance
  std::string unfit;       // why it cannot be deployed; empty: it can

  [[nodiscard]] double requests_per_s() const { return instances * one.requests_per_s; }
  [[nodiscard]] double tokens_per_s() const { return instances * one.tokens_per_s; }
};

// Machines that are alike but for their names: accelerator, GPUs, and the link between these.
struct MachineKind {
  std::vector<int> nodes;               // of GpuCluster
  std::vector<InstanceOption> options;  // by degree
  int best = -1;                        // of options: serves most, of equals the smallest degree; -1: none can be deployed
};

struct DeploymentSearch {
  std::vector<MachineKind> machines;  // in the order of their first nodes
  double log10_configurations = 0;    // products of degrees that can be deployed, over the machines
};

// Errors: kInvalidArgument: what validate() refuses of the cluster or shape, no requests, options that are out of range;
// kCancelled.
[[nodiscard]] Result<DeploymentSearch> search_tensor_parallel(const search::Problem& problem, const search::Effort& effort,
                                                              const HuaweiOptions& options = {});

// Capacities are Alg. 1's, of static batches; a chain is an instance, its latency is a batch's mean time in it. Errors: as
// search_tensor_parallel(); kNotFound: no machine can hold the model, or none fits the bounds, with what is missing.
[[nodiscard]] Result<search::Offer> huawei_plan(const search::Problem& problem, const search::Effort& effort,
                                                const HuaweiOptions& options);
[[nodiscard]] inline Result<search::Offer> huawei_plan(const search::Problem& problem, const search::Effort& effort) {
  return huawei_plan(problem, effort, {});
}

}  // namespace windlass::hetero
