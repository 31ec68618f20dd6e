// Clusters, tasks and problems for the tests of strategies for clusters: HexGen-2's settings (tests/bench/heterogeneous) and
// small ones.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/catalog/model_shape.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/stage_cost.h"
#include "tests/bench/heterogeneous/hexgen2_setting.h"

namespace windlass::hetero {

inline InferenceTask make_task(const std::string& model, const bench::HexGenWorkload& workload, double memory_share = 0.9) {
  return inference_task(planner::model_shape_by_name(model).value(), workload.input_tokens, workload.output_tokens, 8,
                        memory_share)
      .value();
}

// A random cluster with one of the paper's models and workloads at random.
struct RandomCase {
  GpuCluster cluster;
  InferenceTask task;
};

inline RandomCase random_case(std::uint64_t seed, int least_gpus, int max_gpus) {
  Rng rng(seed, "random case");
  RandomCase made;
  made.cluster = bench::random_cluster(static_cast<int>(rng.integer(least_gpus, max_gpus)), rng);
  const auto& workload = bench::kHexGenWorkloads[static_cast<std::size_t>(rng.integer(0, 3))];
  made.task = make_task(rng.integer(0, 1) == 0 ? "opt-30b" : "llama2-70b", workload);
  if (rng.integer(0, 1) == 0) made.task.max_batch = static_cast<int>(rng.integer(1, 256));
  return made;
}

// A problem with the requests it borrows.
struct OwnedClusterProblem {
  std::unique_ptr<search::DrawnRequests> requests;
  search::Problem problem;
};

inline OwnedClusterProblem make_cluster_problem(GpuCluster cluster, const std::string& model, int input_tokens,
                                                int output_tokens, double requests_per_s) {
  OwnedClusterProblem owned;
  owned.requests = std::make_unique<search::DrawnRequests>(
      search::DrawnRequests::make(workload::LengthDistribution::empirical({{input_tokens, output_tokens}}).value()).value());
  owned.problem.name = "test";
  owned.problem.shape = planner::model_shape_by_name(model).value();
  owned.problem.requests = owned.requests.get();
  owned.problem.requests_per_s = requests_per_s;
  owned.problem.cluster = std::make_shared<const GpuCluster>(std::move(cluster));
  return owned;
}

}  // namespace windlass::hetero
