// Problems for the strategies' tests: Llama 3.1 8B on data sheets, small enough for a search to take milliseconds.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/catalog/model_shape.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/problem.h"
#include "planner/strategies/core/worker_kinds.h"

namespace windlass::search {

struct ProblemSpec {
  std::string model = "llama3.1-8b";
  std::vector<std::string> accelerators = {"a100-80gb", "h100-80gb"};
  std::vector<int> tensor_parallel = {1, 2, 4};
  std::vector<int> pipeline_stages = {1};
  double requests_per_s = 8;
  double ttft_s = 0.5;
  double tpot_s = 0.03;
  double attainment = 0.95;
  workload::TokenDistribution input = workload::LogNormalTokens{512, 0.8, 4096};
  workload::TokenDistribution output = workload::LogNormalTokens{128, 0.8, 1024};
};

// A problem with the requests it borrows.
struct OwnedProblem {
  std::unique_ptr<DrawnRequests> requests;
  Problem problem;
};

inline OwnedProblem make_problem(const ProblemSpec& spec = {}) {
  OwnedProblem owned;
  Problem& problem = owned.problem;
  problem.name = "test";
  problem.shape = planner::model_shape_by_name(spec.model).value();
  for (const std::string& name : spec.accelerators) {
    problem.accelerators.push_back({planner::accelerator_by_name(name).value()});
  }
  KindSpace space;
  space.tensor_parallel = spec.tensor_parallel;
  space.pipeline_stages = spec.pipeline_stages;
  Kinds kinds = worker_kinds(problem.shape, problem.accelerators, space, roofline_models(problem.shape));
  problem.kinds = std::move(kinds.kinds);
  problem.unfit = std::move(kinds.unfit);
  owned.requests = std::make_unique<DrawnRequests>(
      DrawnRequests::make(workload::LengthDistribution::independent(spec.input, spec.output).value()).value());
  problem.requests = owned.requests.get();
  problem.requests_per_s = spec.requests_per_s;
  problem.objectives.both = sim::ServingObjectives{spec.ttft_s, spec.tpot_s};
  problem.objectives.attainment = spec.attainment;
  problem.within_node = {300e9, 5e-6, 0, 0};
  problem.between_nodes = {25e9, 1e-4, 0, 0};
  problem.requests_per_trial = 500;
  return owned;
}

}  // namespace windlass::search
