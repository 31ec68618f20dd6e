// question_of() for a ModelService, and what all kinds of questions share: see question.h.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "planner/deployment/engine_space.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/worker_kinds.h"
#include "planner/whatif/question.h"

namespace windlass::search {
namespace {

constexpr double kLengthCv = 1;

// GPUs of a class available to this service: those held by nobody else.
int free_gpus(const planner::AcceleratorState& state) {
  if (state.mode == planner::CapacityMode::kElastic) return state.max_gpus.value_or(std::numeric_limits<int>::max());
  const int free = std::max(0, state.allocatable_gpus - state.used_by_others);
  return state.max_gpus ? std::min(free, *state.max_gpus) : free;
}

// The classes that the service names, otherwise all, with the GPUs available to it.
Result<std::vector<AcceleratorChoice>> choices_of(const planner::Service& service,
                                                  std::span<const planner::AcceleratorState> accelerators) {
  std::vector<AcceleratorChoice> choices;
  for (const planner::AllowedAccelerator& allowed : service.accelerators) {
    const auto state = std::find_if(accelerators.begin(), accelerators.end(),
                                    [&](const auto& each) { return each.spec.name == allowed.accelerator; });
    if (state == accelerators.end()) {
      return Error{
          ErrorCode::kInvalidArgument,
          fmt::format("spec.accelerators: must be existing AcceleratorClasses or catalog names (got {})", allowed.accelerator)};
    }
    choices.push_back({state->spec, std::min(allowed.max_gpus.value_or(free_gpus(*state)), free_gpus(*state))});
  }
  if (!service.accelerators.empty()) return choices;
  for (const planner::AcceleratorState& state : accelerators) choices.push_back({state.spec, free_gpus(state)});
  return choices;
}

Result<workload::LengthDistribution> lengths_of(const planner::Service& service, int context_tokens) {
  const auto around = [&](double mean) -> workload::TokenDistribution {
    return workload::LogNormalTokens{mean, kLengthCv, std::max(1, context_tokens - 1)};
  };
  return workload::LengthDistribution::independent(around(service.workload.input_tokens),
                                                   around(service.workload.output_tokens),
                                                   workload::ContextLimit{context_tokens, true});
}

// Links from data sheets, replaced by measurements where they exist.
void set_paths(Problem& problem, const planner::Service& service) {
  using Spec = planner::AcceleratorSpec;
  problem.within_node.bandwidth_bytes_per_s = slowest(problem, &Spec::intra_link_bandwidth_bytes_per_s);
  problem.between_nodes.bandwidth_bytes_per_s = slowest(problem, &Spec::inter_link_bandwidth_bytes_per_s);
  MeasuredTransfers transfers;
  for (const planner::TransferToWorker& transfer : service.transfers) {
    transfers[{transfer.accelerator, transfer.gpus_per_worker}] = transfer.measured;
  }
  for (WorkerKind& kind : problem.kinds) {
    const auto paths = measured_paths(problem, kind, transfers);
    if (!paths) continue;
    kind.within_node = paths->within_node;
    kind.between_nodes = paths->between_nodes;
  }
}

}  // namespace

double slowest(const Problem& problem, double planner::AcceleratorSpec::*figure) {
  double least = std::numeric_limits<double>::infinity();
  for (const AcceleratorChoice& choice : problem.accelerators) least = std::min(least, choice.spec.*figure);
  return least;
}

std::optional<MeasuredPaths> measured_paths(const Problem& problem, const WorkerKind& kind,
                                            const MeasuredTransfers& transfers) {
  const auto found = transfers.find({problem.spec(kind).name, kind.gpus()});
  if (found == transfers.end()) return std::nullopt;
  const planner::KvTransferPath measured = planner::path_of(found->second, planner::kv_bytes_per_token(problem.shape));
  const auto over = [&](planner::KvTransferPath path) {
    path.bandwidth_bytes_per_s = measured.bandwidth_bytes_per_s;
    path.latency_s = measured.latency_s;
    return path;
  };
  return MeasuredPaths{over(problem.within_node), over(problem.between_nodes)};
}

Result<Question> question_of(const planner::Service& service, std::span<const planner::AcceleratorState> accelerators) {
  Problem problem;
  problem.name = fmt::format("{}/{}", service.id.name_space, service.id.name);
  const auto wrong = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("ModelService {}: {}", problem.name, what)};
  };
  if (!service.shape) return wrong("spec.model: the model's shape is unknown: " + service.shape_unknown_reason);
  problem.shape = *service.shape;
  problem.requests_per_s = service.workload.requests_per_s;
  if (!(problem.requests_per_s > 0)) return wrong("spec.workload.requestsPerSecond: must be above 0 (got 0)");

  auto choices = choices_of(service, accelerators);
  if (!choices.ok()) return wrong(choices.error().message);
  problem.accelerators = std::move(choices).value();

  const int context = service.max_context_tokens > 0 ? service.max_context_tokens : problem.shape.max_context_tokens;
  auto drawn = lengths_of(service, context);
  if (!drawn.ok()) return wrong("spec.workload: " + drawn.error().message);
  WINDLASS_ASSIGN_OR_RETURN(auto made, DrawnRequests::make(std::move(drawn).value()));
  auto requests = std::make_unique<const DrawnRequests>(std::move(made));
  problem.requests = requests.get();

  KindSpace space;
  space.least_kv_tokens = context;  // a worker must hold one request of this length
  space.max_gpus = service.max_gpus_per_worker.value_or(0);
  Kinds kinds = worker_kinds(problem.shape, problem.accelerators, space, linear_models(problem.shape, service.estimates));
  problem.kinds = std::move(kinds.kinds);
  problem.unfit = std::move(kinds.unfit);
  problem.objectives.both = sim::ServingObjectives{service.slo.ttft_s, service.slo.tpot_s};
  problem.objectives.attainment = service.slo.percentile / 100;
  problem.max_cost_per_hour = service.scaling.max_cost_per_hour.value_or(problem.max_cost_per_hour);
  problem.engines = planner::space_of(service.engine);
  set_paths(problem, service);
  WINDLASS_RETURN_IF_ERROR(validate(problem));
  return Question(std::move(requests), std::move(problem));
}

}  // namespace windlass::search
