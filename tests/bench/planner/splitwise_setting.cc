// Implements splitwise_setting.h.
#include "tests/bench/planner/splitwise_setting.h"

#include <utility>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/linear_model.h"
#include "planner/perf/profile_table.h"
#include "planner/strategies/splitwise/splitwise.h"
#include "planner/workload/trace.h"
#include "tests/bench/fidelity/operator_data.h"

namespace windlass::bench {

Result<SplitwiseSetting> splitwise_setting(const std::string& data, const std::string& model, const std::string& trace,
                                           double requests_per_s) {
  constexpr int kGpus = 8;
  SplitwiseSetting setting;
  search::Problem& problem = setting.problem;
  problem.name = model + ", " + trace;
  WINDLASS_ASSIGN_OR_RETURN(problem.shape, planner::model_shape_by_name(model));
  WINDLASS_ASSIGN_OR_RETURN(const std::string csv, read_text(data + "/profiles/splitwise/perf_model.csv"));
  WINDLASS_ASSIGN_OR_RETURN(const auto rows, planner::parse_profile_csv(csv));
  for (const auto& [name, cost, power] : {std::tuple("a100-80gb", 1.0, 1.0), {"h100-80gb", kH100Cost, kH100Power}}) {
    WINDLASS_ASSIGN_OR_RETURN(planner::AcceleratorSpec spec, planner::accelerator_by_name(name));
    spec.price_per_hour = cost / kGpus;
    spec.power_watts = power / kGpus;
    // As `windlass simulate` does for a profile.
    const double kv_tokens =
        planner::linear_coefficients(problem.shape, spec, kGpus, planner::EngineType::kWindlass).kv_capacity_tokens;
    WINDLASS_ASSIGN_OR_RETURN(
        auto table, planner::ProfileTable::make(rows, {model, name, kGpus}, planner::ProfileReading::kBatchTokens, kv_tokens));
    search::WorkerKind kind;
    kind.accelerator = static_cast<int>(problem.accelerators.size());
    kind.tensor_parallel = kGpus;
    kind.model = std::make_shared<planner::ProfileTable>(std::move(table));
    kind.kv_capacity_tokens = kv_tokens;
    problem.kinds.push_back(std::move(kind));
    problem.accelerators.push_back({std::move(spec)});
  }
  problem.slowdown_reference = problem.kinds[kA100Machine].model;
  WINDLASS_ASSIGN_OR_RETURN(const std::string text, read_text(data + "/traces/AzureLLMInferenceTrace_" + trace + ".csv"));
  WINDLASS_ASSIGN_OR_RETURN(const auto trace_rows, workload::parse_azure_trace(text));
  WINDLASS_ASSIGN_OR_RETURN(auto lengths, workload::LengthDistribution::empirical(workload::lengths_of(trace_rows)));
  WINDLASS_ASSIGN_OR_RETURN(auto requests, search::DrawnRequests::make(std::move(lengths)));
  setting.requests = std::make_unique<search::DrawnRequests>(std::move(requests));
  problem.requests = setting.requests.get();
  problem.requests_per_s = requests_per_s;
  problem.objectives.limits = search::splitwise_objectives();
  problem.between_nodes = {200e9, 5e-6, 0, 0};
  problem.within_node = problem.between_nodes;
  return setting;
}

}  // namespace windlass::bench
