// See plan_scenario.h.
#include "planner/whatif/plan_scenario.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "planner/base/yaml_reader.h"
#include "planner/deployment/pool_name.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/whatif/scenario_models.h"
#include "planner/whatif/scenario_requests.h"

namespace windlass::search {
namespace {

// A scenario's requests at any rate.
class ScenarioRequestsAt final : public Requests {
 public:
  explicit ScenarioRequestsAt(sim::ScenarioRequests requests) : requests_(std::move(requests)) {}

  [[nodiscard]] std::unique_ptr<workload::RequestSource> source(std::uint64_t seed, double requests_per_s,
                                                                std::int64_t count) const override {
    return std::make_unique<CountedSource>(requests_.source(seed, requests_per_s / requests_.rate_per_s()), count);
  }
  [[nodiscard]] double mean_input_tokens() const override { return requests_.mean_input_tokens(); }
  [[nodiscard]] double mean_output_tokens() const override { return requests_.mean_output_tokens(); }

 private:
  sim::ScenarioRequests requests_;
};

// Fills in what the file leaves open of the network from measurements, with a note.
void set_measured(Problem& problem, const PlanNetwork& network, const MeasuredTransfers& transfers,
                  std::vector<std::string>& notes) {
  for (WorkerKind& kind : problem.kinds) {
    const auto measured = measured_paths(problem, kind, transfers);
    if (!measured) continue;
    const std::string whose =
        fmt::format("to decode workers of {} (measured)", planner::pool_name(problem.spec(kind).name, kind.gpus()));
    const auto path = [&](planner::KvTransferPath of, const planner::KvTransferPath& as_measured, const char* where,
                          bool bandwidth_is_given, bool latency_is_given) {
      if (!bandwidth_is_given) {
        of.bandwidth_bytes_per_s = as_measured.bandwidth_bytes_per_s;
        notes.push_back(fmt::format("network.{}GBps: {:.6g} {}", where, of.bandwidth_bytes_per_s / 1e9, whose));
      }
      if (!latency_is_given) {
        of.latency_s = as_measured.latency_s;
        notes.push_back(fmt::format("network.{}Latency: {} {}", where, duration_text(of.latency_s), whose));
      }
      return of;
    };
    kind.within_node = path(problem.within_node, measured->within_node, "withinNode",
                            network.within_node_bytes_per_s.has_value(), network.within_node_latency_s.has_value());
    kind.between_nodes = path(problem.between_nodes, measured->between_nodes, "betweenNodes",
                              network.between_nodes_bytes_per_s.has_value(), network.between_nodes_latency_s.has_value());
  }
}

Result<void> set_network(Problem& problem, const PlanScenario& plan, const MeasuredTransfers& transfers,
                         std::vector<std::string>& defaults) {
  const PlanNetwork& network = plan.network;
  const bool all_measured =
      !problem.kinds.empty() && std::all_of(problem.kinds.begin(), problem.kinds.end(), [&](const auto& kind) {
        return transfers.contains({problem.spec(kind).name, kind.gpus()});
      });
  const auto told = [&](const char* key, double bytes_per_s) {
    if (all_measured) return bytes_per_s;
    defaults.push_back(fmt::format("network.{}: {:.6g} (the slowest accelerator's)", key, bytes_per_s / 1e9));
    return bytes_per_s;
  };
  const auto highest_latency = [&](double planner::AcceleratorSpec::*member) {
    double highest = 0;
    for (const AcceleratorChoice& choice : problem.accelerators) highest = std::max(highest, choice.spec.*member);
    return highest;
  };
  using Spec = planner::AcceleratorSpec;
  const double within = slowest(problem, &Spec::intra_link_bandwidth_bytes_per_s);
  const double between = slowest(problem, &Spec::inter_link_bandwidth_bytes_per_s);
  // A bandwidth of 0 would count as unlimited.
  const bool no_within = !network.within_node_bytes_per_s && !(within > 0);
  const bool no_between = !network.between_nodes_bytes_per_s && !(between > 0);
  if ((no_within || no_between) && !all_measured) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}: network: must have {}{}{}, because an accelerator has no such link in a data sheet; an "
                             "AcceleratorClass states them as intraNodeLink and interNodeLink",
                             plan.scenario.source, no_within ? "withinNodeGBps" : "", no_within && no_between ? " and " : "",
                             no_between ? "betweenNodesGBps" : "")};
  }
  const int layers = network.layer_wise ? problem.shape.layers : 0;
  problem.within_node.bandwidth_bytes_per_s =
      network.within_node_bytes_per_s ? *network.within_node_bytes_per_s : told("withinNodeGBps", within);
  problem.within_node.latency_s = network.within_node_latency_s.value_or(highest_latency(&Spec::intra_link_latency_s));
  problem.within_node.layers = layers;
  problem.between_nodes.bandwidth_bytes_per_s =
      network.between_nodes_bytes_per_s ? *network.between_nodes_bytes_per_s : told("betweenNodesGBps", between);
  problem.between_nodes.latency_s = network.between_nodes_latency_s.value_or(highest_latency(&Spec::inter_link_latency_s));
  problem.between_nodes.layers = layers;
  set_measured(problem, network, transfers, defaults);
  return {};
}

using Texts = std::map<std::string, std::string>;

std::string_view text_of(const Texts& texts, const std::string& path) {
  const auto text = texts.find(path);
  return text == texts.end() ? std::string_view() : std::string_view(text->second);
}

Result<planner::ModelShape> shape_of(const sim::ScenarioService& service, const Texts& texts) {
  if (service.model.shape) return *service.model.shape;
  auto shape = planner::model_shape_from_config_json(text_of(texts, service.model.config_file));
  if (!shape.ok()) return shape.error().within(service.model.config_file);
  return shape;
}

// The requests of a trial. Their rate can be chosen.
Result<sim::ScenarioRequests> free_requests(const PlanScenario& plan, const planner::ModelShape& shape, const Texts& texts) {
  const sim::ScenarioService& service = plan.scenario.services.front();
  const std::string& lengths =
      service.workload.trace_file.empty() ? service.workload.lengths_file : service.workload.trace_file;
  WINDLASS_ASSIGN_OR_RETURN(auto requests, sim::ScenarioRequests::make(plan.scenario, service, text_of(texts, lengths),
                                                                       sim::context_limit(service.model, shape)));
  if (!requests.rate_is_free()) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("{}:{}: workload: must have a rate (got requests that all arrive at the same time)",
                             plan.scenario.source, service.workload.line)};
  }
  return requests;
}

void add_accelerators(Problem& problem, const sim::ScenarioService& service) {
  for (const sim::ScenarioPool& pool : service.pools) {
    AcceleratorChoice choice{pool.accelerator};
    if (pool.workers < sim::kMaxWorkers) choice.gpus = pool.workers;
    choice.spec.price_per_hour = pool.price_per_gpu_hour;
    problem.accelerators.push_back(std::move(choice));
  }
}

// Adds the kinds of workers that the pools allow, with their models. Returns their measured transfers.
Result<MeasuredTransfers> add_kinds(Problem& problem, const PlanScenario& plan, const Texts& texts, Executor* executor) {
  const std::string& source = plan.scenario.source;
  const sim::ScenarioService& service = plan.scenario.services.front();
  MeasuredTransfers transfers;
  sim::ScenarioOperators operators(executor);
  const auto model_of = [&](const planner::AcceleratorSpec& spec, int tensor_parallel, int stages) -> Result<KindModel> {
    sim::ScenarioService of = service;
    of.latency.pipeline_parallel = stages;
    const bool splits = of.latency.source != sim::LatencySource::kProfile && of.latency.source != sim::LatencySource::kLinear;
    if (stages > 1 && !splits) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("latency.source {} does not support pipeline stages", sim::to_string(of.latency.source))};
    }
    const sim::ScenarioPool* pool = nullptr;
    for (const sim::ScenarioPool& each : service.pools) {
      if (each.accelerator.name == spec.name) pool = &each;
    }
    WINDLASS_ASSIGN_OR_RETURN(auto worker, sim::worker_model(source, of, problem.shape, texts, operators, pool->accelerator,
                                                             tensor_parallel * stages, plan.accelerators_field, pool->line));
    if (worker.transfer) transfers[{spec.name, tensor_parallel * stages}] = *worker.transfer;
    return KindModel{std::move(worker.model), worker.kv_capacity_tokens, worker.errors};
  };
  Kinds kinds = worker_kinds(problem.shape, problem.accelerators, plan.space, model_of);
  problem.kinds = std::move(kinds.kinds);
  problem.unfit = std::move(kinds.unfit);
  if (const auto& reference = service.slowdown_reference) {
    WINDLASS_ASSIGN_OR_RETURN(auto worker,
                              sim::worker_model(source, service, problem.shape, texts, operators, reference->accelerator,
                                                reference->gpus_per_worker, "slowdownReference", reference->line));
    problem.slowdown_reference = std::move(worker.model);
  }
  return transfers;
}

void add_objectives(Problem& problem, const PlanScenario& plan) {
  const sim::ScenarioService& service = plan.scenario.services.front();
  if (service.slo) {
    constexpr double kAny_s = std::numeric_limits<double>::infinity();
    problem.objectives.both =
        sim::ServingObjectives{service.slo->ttft_s.value_or(kAny_s), service.slo->tpot_s.value_or(kAny_s)};
    problem.objectives.attainment = service.slo->percentile / 100;
  }
  problem.objectives.limits = plan.limits;
  problem.engine = service.engine;
  problem.max_gpus = plan.max_gpus.value_or(problem.max_gpus);
  problem.max_cost_per_hour = plan.max_cost_per_hour.value_or(problem.max_cost_per_hour);
}

}  // namespace

Result<Question> question_of(PlanScenario plan, const std::map<std::string, std::string>& texts, Executor* executor) {
  WINDLASS_ASSIGN_OR_RETURN(Question made, question_without_kinds(std::move(plan), texts, executor));
  WINDLASS_RETURN_IF_ERROR(validate(made.problem()));
  return made;
}

Result<Question> question_without_kinds(PlanScenario plan, const std::map<std::string, std::string>& texts,
                                        Executor* executor) {
  Problem problem;
  sim::ScenarioService& service = plan.scenario.services.front();
  problem.name = plan.scenario.source;
  problem.seed = plan.scenario.seed;
  WINDLASS_ASSIGN_OR_RETURN(problem.shape, shape_of(service, texts));
  problem.requests_per_trial = plan.requests_per_trial.value_or(service.workload.requests.value_or(problem.requests_per_trial));
  // Trials end by their number of requests.
  service.workload.requests.reset();
  service.workload.duration_s.reset();
  WINDLASS_ASSIGN_OR_RETURN(auto made, free_requests(plan, problem.shape, texts));
  problem.requests_per_s = made.rate_per_s();
  auto requests = std::make_unique<const ScenarioRequestsAt>(std::move(made));
  problem.requests = requests.get();
  add_accelerators(problem, service);
  WINDLASS_ASSIGN_OR_RETURN(const MeasuredTransfers transfers, add_kinds(problem, plan, texts, executor));
  std::vector<std::string> notes = plan.scenario.defaults;
  WINDLASS_RETURN_IF_ERROR(set_network(problem, plan, transfers, notes));
  add_objectives(problem, plan);
  WINDLASS_RETURN_IF_ERROR(validate_question(problem));
  return Question(std::move(requests), std::move(problem), std::move(notes));
}

}  // namespace windlass::search
