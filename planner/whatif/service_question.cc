// question_of() for a ModelService, and what all kinds of questions share: see question.h.
#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <tuple>

#include <fmt/format.h>

#include "planner/deployment/engine_space.h"
#include "planner/policy/capacity.h"
#include "planner/sizing/worker_config.h"
#include "planner/sizing/worker_count.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/core/worker_kinds.h"
#include "planner/whatif/question.h"

namespace windlass::search {
namespace {

constexpr double kLengthCv = 1;
constexpr std::size_t kMaxLinkedNodes = 500;  // with more nodes, every pair has the slowest link

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
    const planner::AcceleratorState* state = planner::find_accelerator(accelerators, allowed.accelerator);
    if (state == nullptr) {
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

hetero::Link link_between(const planner::AcceleratorSpec& a, const planner::AcceleratorSpec& b) {
  return {std::min(a.inter_link_bandwidth_bytes_per_s, b.inter_link_bandwidth_bytes_per_s),
          std::max(a.inter_link_latency_s, b.inter_link_latency_s)};
}

// The nodes with free GPUs of the allowed classes, and the links of their data sheets. If the service may have only some of a
// class's GPUs, it takes the nodes with the most free ones. Null: no such node is known.
std::shared_ptr<const hetero::GpuCluster> cluster_of(const Problem& problem, std::span<const planner::NodeState> nodes) {
  const auto free_on = [](const planner::NodeState* node) { return node->allocatable_gpus - node->used_by_others; };
  std::vector<std::pair<const planner::NodeState*, int>> taken;  // with their GPUs
  std::map<std::string, const planner::AcceleratorSpec*> specs;
  for (const AcceleratorChoice& choice : problem.accelerators) {
    specs[choice.spec.name] = &choice.spec;
    std::vector<const planner::NodeState*> of_class;
    for (const planner::NodeState& node : nodes) {
      if (node.accelerator == choice.spec.name && !node.unschedulable) of_class.push_back(&node);
    }
    std::stable_sort(of_class.begin(), of_class.end(), [&](const auto* a, const auto* b) { return free_on(a) > free_on(b); });
    int left = choice.gpus;
    for (const planner::NodeState* node : of_class) {
      const int gpus = std::min(left, free_on(node));
      if (gpus <= 0) break;
      taken.emplace_back(node, gpus);
      left -= gpus;
    }
  }
  if (taken.empty()) return nullptr;
  std::sort(taken.begin(), taken.end(), [](const auto& a, const auto& b) {
    return std::tie(a.first->name, a.first->accelerator) < std::tie(b.first->name, b.first->accelerator);
  });

  auto cluster = std::make_shared<hetero::GpuCluster>();
  std::set<std::string> names;
  for (const auto& [node, gpus] : taken) {
    const planner::AcceleratorSpec& spec = *specs.at(node->accelerator);
    // A node of several classes is one node for each.
    const std::string name = names.contains(node->name) ? fmt::format("{}/{}", node->name, node->accelerator) : node->name;
    names.insert(name);
    cluster->nodes.push_back({name, spec, gpus, {spec.intra_link_bandwidth_bytes_per_s, spec.intra_link_latency_s}});
  }
  const planner::AcceleratorSpec& first = cluster->nodes.front().accelerator;
  cluster->default_link = link_between(first, first);
  for (const auto& node : cluster->nodes) {
    cluster->default_link.bytes_per_s =
        std::min(cluster->default_link.bytes_per_s, node.accelerator.inter_link_bandwidth_bytes_per_s);
    cluster->default_link.latency_s = std::max(cluster->default_link.latency_s, node.accelerator.inter_link_latency_s);
  }
  if (cluster->nodes.size() > kMaxLinkedNodes) return cluster;
  for (int a = 0; a < static_cast<int>(cluster->nodes.size()); ++a) {
    for (int b = a + 1; b < static_cast<int>(cluster->nodes.size()); ++b) {
      const hetero::Link link = link_between(cluster->nodes[static_cast<std::size_t>(a)].accelerator,
                                             cluster->nodes[static_cast<std::size_t>(b)].accelerator);
      if (link != cluster->default_link) cluster->between.emplace(std::pair(a, b), link);
    }
  }
  return cluster;
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

Result<Question> question_of(const planner::Service& service, std::span<const planner::AcceleratorState> accelerators,
                             std::span<const planner::NodeState> nodes) {
  Problem problem;
  problem.name = fmt::format("{}/{}", service.id.name_space, service.id.name);
  const auto wrong = [&](const std::string& what) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("ModelService {}: {}", problem.name, what)};
  };
  if (!service.shape) return wrong("spec.model: the model's shape is unknown: " + service.shape_unknown_reason);
  problem.shape = *service.shape;
  problem.requests_per_s = planner::kDesignHeadroom * service.workload.requests_per_s;
  if (!(problem.requests_per_s > 0)) return wrong("spec.workload.requestsPerSecond: must be above 0 (got 0)");

  auto choices = choices_of(service, accelerators);
  if (!choices.ok()) return wrong(choices.error().message);
  problem.accelerators = std::move(choices).value();
  problem.cluster = cluster_of(problem, nodes);

  const int context = service.max_context_tokens > 0 ? service.max_context_tokens : problem.shape.max_context_tokens;
  auto drawn =
      workload::LengthDistribution::around(service.workload.input_tokens, service.workload.output_tokens, kLengthCv, context);
  if (!drawn.ok()) return wrong("spec.workload: " + drawn.error().message);
  WINDLASS_ASSIGN_OR_RETURN(auto made, DrawnRequests::make(std::move(drawn).value()));
  auto requests = std::make_unique<const DrawnRequests>(std::move(made));
  problem.requests = requests.get();

  KindSpace space;
  space.least_kv_tokens = context;  // a worker must hold one request of this length
  space.max_gpus = service.max_gpus_per_worker.value_or(0);
  constexpr double kBatch = 8;  // that errors refer to; what a worker gets is not known yet
  const planner::WorkerLoad load{kBatch,
                                 service.workload.input_tokens + planner::kContextGrowth * service.workload.output_tokens,
                                 service.workload.input_tokens};
  Kinds kinds = worker_kinds(problem.shape, problem.accelerators, space,
                             linear_models(problem.shape, service.engine, service.estimates, load));
  problem.kinds = std::move(kinds.kinds);
  problem.unfit = std::move(kinds.unfit);
  problem.objectives.both = sim::ServingObjectives{service.slo.ttft_s, service.slo.tpot_s};
  problem.objectives.attainment = service.slo.percentile / 100;
  problem.max_cost_per_hour = service.scaling.max_cost_per_hour.value_or(problem.max_cost_per_hour);
  problem.engines = planner::space_of(service.engine);
  problem.engine = planner::own_settings(service.engine);
  set_paths(problem, service);
  // Strategies for clusters split a model that fits no worker.
  WINDLASS_RETURN_IF_ERROR(problem.cluster == nullptr ? validate(problem) : validate_question(problem));
  return Question(std::move(requests), std::move(problem));
}

}  // namespace windlass::search
