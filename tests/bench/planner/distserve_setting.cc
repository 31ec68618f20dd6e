// Implements distserve_setting.h.
#include "tests/bench/planner/distserve_setting.h"

#include <utility>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/distserve_model.h"
#include "planner/strategies/core/worker_kinds.h"
#include "tests/bench/fidelity/operator_data.h"
#include "tests/bench/fidelity/orderings.h"
#include "tests/bench/planner/distserve_measured.h"

namespace windlass::bench {
namespace {

constexpr int kContextTokens = 2048;
constexpr double kBetweenNodes_bytes_per_s = 25e9 / 8;
constexpr double kLatency_s = 5e-6;

}  // namespace

Result<DistServeSetting> distserve_setting(const std::string& data, const DistServeSpec& spec) {
  const std::string folder = data + "/profiles/distserve/";
  WINDLASS_ASSIGN_OR_RETURN(const std::string capacity_text, read_text(folder + "max_num_tokens.csv"));
  WINDLASS_ASSIGN_OR_RETURN(const auto capacities, planner::parse_distserve_capacities(capacity_text));
  const std::string engine = spec.engine == ProfiledEngine::kVllm ? "vllm" : "distserve";
  WINDLASS_ASSIGN_OR_RETURN(const std::string profile_text, read_text(folder + "profiler-a100-80g." + engine + ".json"));
  WINDLASS_ASSIGN_OR_RETURN(const auto profile, planner::parse_distserve_profile(profile_text));

  DistServeSetting setting;
  search::Problem& problem = setting.problem;
  problem.name = spec.model;
  WINDLASS_ASSIGN_OR_RETURN(problem.shape, planner::model_shape_by_name(spec.model));
  WINDLASS_ASSIGN_OR_RETURN(planner::AcceleratorSpec a100, planner::accelerator_by_name("a100-80gb"));
  a100.gpus_per_node = spec.gpus_per_node;
  problem.accelerators = {{a100, spec.nodes * spec.gpus_per_node}};
  search::KindSpace space;
  space.tensor_parallel = {1, 2, 3, 4, 5, 6, 8};
  space.pipeline_stages = {1, 2, 4, 5, 8};
  space.max_gpus = spec.nodes * spec.gpus_per_node;
  space.least_kv_tokens = kContextTokens;
  const auto model_of = [&](const planner::AcceleratorSpec&, int tensor_parallel, int stages) -> Result<search::KindModel> {
    WINDLASS_ASSIGN_OR_RETURN(auto model,
                              planner::DistServeModel::make(profile, capacities, spec.model, {tensor_parallel, stages}));
    auto shared = std::make_shared<const planner::DistServeModel>(std::move(model));
    const double kv_capacity_tokens = shared->kv_capacity_tokens();
    return search::KindModel{std::move(shared), kv_capacity_tokens};
  };
  search::Kinds kinds = search::worker_kinds(problem.shape, problem.accelerators, space, model_of);
  // A microbatch's cache is its stage's share and must hold the longest request.
  for (const search::WorkerKind& kind : kinds.kinds) {
    if (kind.kv_capacity_tokens >= kContextTokens * kind.pipeline_stages) problem.kinds.push_back(kind);
  }
  problem.unfit = std::move(kinds.unfit);

  std::vector<workload::TokenPair> pairs;
  if (spec.lengths == DistServeLengths::kShareGpt) {
    WINDLASS_ASSIGN_OR_RETURN(pairs, sharegpt_lengths(data, kContextTokens));
  } else {
    for (const MeasuredRequest& request : kDistServeMeasured) pairs.push_back({request.input_tokens, request.output_tokens});
  }
  WINDLASS_ASSIGN_OR_RETURN(auto lengths, workload::LengthDistribution::empirical(std::move(pairs)));
  WINDLASS_ASSIGN_OR_RETURN(auto requests, search::DrawnRequests::make(std::move(lengths)));
  setting.requests = std::make_unique<search::DrawnRequests>(std::move(requests));
  problem.requests = setting.requests.get();
  problem.requests_per_s = 1;
  const bool small = spec.model == "opt-13b";
  problem.objectives.both = sim::ServingObjectives{small ? 0.2 : 0.4, 0.1};
  problem.objectives.attainment = 0.9;
  problem.goal = search::Goal::kThroughput;
  problem.within_node = {a100.intra_link_bandwidth_bytes_per_s, kLatency_s, 0, 0};
  problem.between_nodes = {kBetweenNodes_bytes_per_s, kLatency_s, 0, 0};
  return setting;
}

}  // namespace windlass::bench
