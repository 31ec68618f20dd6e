// search_tensor_parallel(): see huawei.h. Evaluates every degree of every kind of machine, by Eq. 1 to 4 and Alg. 1.
#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "planner/sizing/worker_config.h"
#include "planner/strategies/core/staged_model.h"
#include "planner/strategies/huawei/huawei.h"
#include "planner/strategies/huawei/huawei_latency.h"

namespace windlass::hetero {
namespace {

bool alike(const ClusterNode& a, const ClusterNode& b) {
  return a.gpus == b.gpus && a.within == b.within && a.accelerator == b.accelerator;
}

constexpr int kRequestsForMeans = 10'000;

struct Sampled {
  std::vector<Lengths> requests;
  search::LengthMoments means;  // of more requests, because means of a few hundred are 10 % off
  int max_input = 0, max_output = 0;
};

Result<Sampled> sampled(const search::Problem& problem, const HuaweiOptions& options) {
  const auto wrong = [&](const std::string& what) { return Error{ErrorCode::kInvalidArgument, problem.name + ": " + what}; };
  if (problem.requests == nullptr) return wrong("workload: must be set (got none)");
  if (!(problem.requests_per_s > 0) || !std::isfinite(problem.requests_per_s)) {
    return wrong(fmt::format("requestsPerSecond: must be a number above 0 (got {})", problem.requests_per_s));
  }
  if (options.sampled_requests < 1) {
    return wrong(fmt::format("sampled requests: must be at least 1 (got {})", options.sampled_requests));
  }
  if (!(options.memory.share > 0 && options.memory.share <= 1) || !(options.memory.engine_bytes >= 0)) {
    return wrong(
        fmt::format("memory: must be a share above 0 and at most 1, and at least 0 bytes for the engine (got {} and {})",
                    options.memory.share, options.memory.engine_bytes));
  }
  Sampled made;
  made.requests = search::lengths_of(*problem.requests, problem.seed, options.sampled_requests);
  if (made.requests.empty()) return wrong("workload: must have at least one request (got none)");
  made.means = search::length_moments(*problem.requests, problem.seed, kRequestsForMeans);
  for (const auto& [input, output] : made.requests) {
    made.max_input = std::max(made.max_input, input);
    made.max_output = std::max(made.max_output, output);
  }
  made.max_input = std::max(made.max_input, options.max_input_tokens);
  made.max_output = std::max(made.max_output, options.max_output_tokens);
  return made;
}

InstanceOption estimated(const planner::ModelShape& shape, const ClusterNode& machine, int tensor_parallel,
                         const Sampled& sample, const HuaweiOptions& options, int max_requests, const BatchTimesOf& times_of) {
  InstanceOption made;
  made.tensor_parallel = tensor_parallel;
  made.instances = machine.gpus / tensor_parallel;
  made.kv_bytes = kv_cache_bytes(shape, machine.accelerator, tensor_parallel, options.memory);
  const double token_bytes = kv_token_bytes(shape, tensor_parallel);
  made.kv_tokens = std::floor(made.kv_bytes / token_bytes);
  const double longest = static_cast<double>(sample.max_input) + sample.max_output;
  if (made.kv_bytes < longest * token_bytes) {  // Eq. 2
    made.unfit = fmt::format("needs {:.1f} GB more for weights of {:.1f} GB and the cache of one request of {:.0f} tokens",
                             (longest * token_bytes - made.kv_bytes) / 1e9, planner::weight_bytes(shape) / 1e9, longest);
    return made;
  }
  if (tensor_parallel > 1 && !(machine.within.bytes_per_s > 0)) {
    made.unfit = "has no link between its GPUs";
    return made;
  }
  const auto times = times_of(machine, tensor_parallel, made.kv_tokens);
  if (!times.ok()) {
    made.unfit = times.error().message;
    return made;
  }
  made.times = *times;
  const auto static_batches = estimate_throughput(made.times, made.kv_tokens, max_requests, sample.requests);
  if (!static_batches.ok()) {
    made.unfit = static_batches.error().message;
    return made;
  }
  made.static_batches = *static_batches;
  made.continuous = continuous_batching(made.times, made.kv_tokens, max_requests, sample.means);
  return made;
}

}  // namespace

BatchTimesOf roofline_batch_times(const planner::ModelShape& shape, const planner::EngineOverhead& overhead) {
  return [shape, overhead](const ClusterNode& machine, int tensor_parallel, double kv_tokens) -> Result<dispatch::BatchTimes> {
    WINDLASS_ASSIGN_OR_RETURN(const auto model, roofline_instance(shape, machine, tensor_parallel, overhead));
    WINDLASS_ASSIGN_OR_RETURN(const auto fit, fit_batch_times(profile_batches(*model, kv_tokens)));
    return fit.times;
  };
}

Result<DeploymentSearch> search_tensor_parallel(const search::Problem& problem, const search::Effort& effort,
                                                const HuaweiOptions& options) {
  WINDLASS_RETURN_IF_ERROR(search::validate_cluster(problem));
  WINDLASS_RETURN_IF_ERROR(planner::validate(problem.shape));
  WINDLASS_ASSIGN_OR_RETURN(const Sampled sample, sampled(problem, options));
  const BatchTimesOf times_of = options.times_of ? options.times_of : roofline_batch_times(problem.shape);
  const int max_requests = problem.engine.max_sequences;

  DeploymentSearch made;
  const auto& nodes = problem.cluster->nodes;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    const auto same = std::find_if(made.machines.begin(), made.machines.end(), [&](const MachineKind& machine) {
      return alike(nodes[static_cast<std::size_t>(machine.nodes.front())], nodes[node]);
    });
    if (same != made.machines.end()) {
      same->nodes.push_back(static_cast<int>(node));
    } else {
      made.machines.push_back({{static_cast<int>(node)}, {}, -1});
    }
  }
  struct Task {
    std::size_t machine;
    int tensor_parallel;
  };
  std::vector<Task> tasks;
  for (std::size_t m = 0; m < made.machines.size(); ++m) {
    const int gpus = nodes[static_cast<std::size_t>(made.machines[m].nodes.front())].gpus;
    for (const int degree : planner::tensor_parallel_degrees(problem.shape, gpus)) {
      if (gpus % degree == 0) tasks.push_back({m, degree});
    }
  }
  SerialExecutor serial;
  Executor& executor = effort.executor == nullptr ? serial : *effort.executor;
  if (effort.progress) effort.progress("degrees of tensor parallelism", 0);
  WINDLASS_ASSIGN_OR_RETURN(auto found, parallel_map<InstanceOption>(
                                            executor, tasks.size(),
                                            [&](std::size_t i) {
                                              const MachineKind& machine = made.machines[tasks[i].machine];
                                              return estimated(
                                                  problem.shape, nodes[static_cast<std::size_t>(machine.nodes.front())],
                                                  tasks[i].tensor_parallel, sample, options, max_requests, times_of);
                                            },
                                            effort.stop));
  if (effort.progress) effort.progress("degrees of tensor parallelism", 1);
  for (std::size_t i = 0; i < tasks.size(); ++i) made.machines[tasks[i].machine].options.push_back(std::move(found[i]));
  for (MachineKind& machine : made.machines) {
    int deployable = 0;
    for (std::size_t o = 0; o < machine.options.size(); ++o) {
      const InstanceOption& option = machine.options[o];
      if (!option.unfit.empty()) continue;
      ++deployable;
      const bool better = machine.best < 0 ||
                          option.requests_per_s() > machine.options[static_cast<std::size_t>(machine.best)].requests_per_s();
      if (better) machine.best = static_cast<int>(o);
    }
    if (deployable > 0) made.log10_configurations += static_cast<double>(machine.nodes.size()) * std::log10(deployable);
  }
  return made;
}

}  // namespace windlass::hetero
