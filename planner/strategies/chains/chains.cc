// See chains.h.
#include "planner/strategies/chains/chains.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "planner/chain/compose.h"
#include "planner/chain/gbp_cr.h"
#include "planner/sizing/worker_config.h"
#include "planner/strategies/core/plan_parts.h"
#include "planner/strategies/core/stage_cost.h"
#include "planner/strategies/core/staged_model.h"
#include "planner/strategies/core/trial.h"

namespace windlass::hetero {
namespace {

using planner::Chain;
using planner::Deployment;
using search::Offer;
using search::Problem;

constexpr double kGb = 1e9;

// The times of one request of mean lengths on a node, next to others.
struct NodeTimes {
  int tensor_parallel = 1;
  double prefill_s = 0;       // of all layers
  double decode_token_s = 0;  // of all layers, for each output token after the first
};

int degree_on(const Problem& problem, const ClusterNode& node, int tensor_parallel) {
  return planner::tensor_parallel_degrees(problem.shape, std::min(tensor_parallel, node.gpus)).back();
}

// The slowest link to one of these nodes that a request's tokens may come over.
planner::HopTimes slowest_hop(const Problem& problem, const std::vector<int>& nodes, int node, bool alone_on_node) {
  const GpuCluster& cluster = *problem.cluster;
  planner::HopTimes slowest;
  const auto consider = [&](const Link& link) {
    const planner::HopTimes times = hop_times(problem.shape, link);
    slowest.latency_s = std::max(slowest.latency_s, times.latency_s);
    slowest.s_per_token = std::max(slowest.s_per_token, times.s_per_token);
  };
  for (const int other : nodes) {
    if (other != node || !alone_on_node) consider(cluster.link(node, other));
  }
  return slowest;
}

// Chains of one degree and number of requests, in the order of GBP-CR.
struct ChainCandidate {
  ChainServers of;
  int tensor_parallel = 1;
  int capacity = 1;
  std::vector<std::vector<int>> chains;
  chain::Placement placement;
  std::size_t fewest = 0;  // chains whose rates together reach the problem's; all, if none do
  double cost = 0;         // of the fewest

  [[nodiscard]] Deployment deployment(const Problem& problem, std::size_t chains) const;
};

Deployment ChainCandidate::deployment(const Problem& problem, std::size_t count) const {
  Deployment deployment;
  deployment.dispatch.policy = dispatch::kDefaultPolicy;
  for (std::size_t k = 0; k < count; ++k) {
    Chain chain;
    chain.batch = capacity;
    std::vector<planner::WorkerSpec> specs;
    int done = 0;
    for (const int server : chains[k]) {
      const ChainServer& at = of.servers[static_cast<std::size_t>(server)];
      const int last = placement[static_cast<std::size_t>(server)].last();
      planner::Hop& hop = chain.hops.emplace_back();
      hop.layers = last - done;
      hop.gpus = at.gpus;
      done = last;
      const double gpus = static_cast<double>(at.gpus.size());
      specs.push_back({problem.cluster->nodes[static_cast<std::size_t>(at.node)].accelerator.name, static_cast<int>(gpus), 1,
                       problem.engine});
      const chain::Server& times = of.instance.servers[static_cast<std::size_t>(server)];
      chain.latency_s += times.communication_s + hop.layers * times.block_s;
    }
    chain.requests_per_s = capacity / chain.latency_s;
    add_chain(deployment, std::move(chain), specs);
  }
  return deployment;
}

// Rates of the first chains together.
double rate_of(const Deployment& deployment) {
  double rate_per_s = 0;
  for (const Chain& chain : deployment.chains) rate_per_s += chain.requests_per_s;
  return rate_per_s;
}

class ChainPlanning {
 public:
  ChainPlanning(const Problem& problem, const search::Effort& effort)
      : problem_(problem), effort_(effort), trial_{problem.requests_per_s, problem.requests_per_trial, problem.seed, true} {}

  Result<Offer> plan() {
    WINDLASS_RETURN_IF_ERROR(collect());
    if (candidates_.empty()) return nothing_fits();
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const ChainCandidate& a, const ChainCandidate& b) { return a.cost < b.cost; });
    for (std::size_t i = 0; i < candidates_.size(); ++i) {
      if (effort_.progress) effort_.progress("chains", static_cast<double>(i) / static_cast<double>(candidates_.size()));
      if (candidates_[i].cost >= best_worth_) break;
      WINDLASS_RETURN_IF_ERROR(try_candidate(candidates_[i]));
      if (stopped_) break;
    }
    return best_ ? offer(*best_, capacity_, problem_.requests_per_s) : nearest();
  }

 private:
  Result<void> collect() {
    for (const std::set<std::string>& classes : sets_of_classes()) WINDLASS_RETURN_IF_ERROR(collect(classes));
    return {};
  }

  // All of them; with many classes, each alone and all together. Chains of cheap servers may be too slow, and those of fast
  // ones too dear.
  [[nodiscard]] std::vector<std::set<std::string>> sets_of_classes() const {
    constexpr std::size_t kFew = 3;
    std::set<std::string> all;
    for (const ClusterNode& node : problem_.cluster->nodes) all.insert(node.accelerator.name);
    const std::vector<std::string> names(all.begin(), all.end());
    std::vector<std::set<std::string>> sets = {all};
    for (std::size_t i = 0; i < names.size() && all.size() > 1; ++i) {
      sets.push_back({names[i]});
      for (std::size_t j = i + 1; j < names.size() && all.size() == kFew; ++j) sets.push_back({names[i], names[j]});
    }
    return sets;
  }

  Result<void> collect(const std::set<std::string>& classes) {
    int most_gpus = 1;
    for (const ClusterNode& node : problem_.cluster->nodes) {
      if (classes.contains(node.accelerator.name)) most_gpus = std::max(most_gpus, node.gpus);
    }
    for (const int degree : planner::tensor_parallel_degrees(problem_.shape, most_gpus)) {
      for (int capacity = 1; capacity <= std::max(1, problem_.engine.max_sequences); capacity *= 2) {
        WINDLASS_ASSIGN_OR_RETURN(ChainServers servers, chain_servers(problem_, classes, degree, capacity));
        auto composed = chain::compose(servers.instance, capacity, chain::Servers::kAll);
        if (!composed.ok()) {
          if (why_not_.empty()) why_not_ = composed.error().message;
          break;  // more requests need more memory
        }
        ChainCandidate made{std::move(servers), degree, capacity, std::move(composed->disjoint_chains),
                            std::move(composed->placement)};
        for (made.fewest = 1; made.fewest < made.chains.size(); ++made.fewest) {
          if (rate_of(made.deployment(problem_, made.fewest)) >= problem_.requests_per_s) break;
        }
        made.cost = search::worth_of(problem_, made.deployment(problem_, made.fewest));
        candidates_.push_back(std::move(made));
      }
    }
    return {};
  }

  // Finds the fewest of its chains that hold, if they cost less than the best.
  Result<void> try_candidate(const ChainCandidate& candidate) {
    std::size_t too_few = candidate.fewest - 1, enough = candidate.fewest;
    for (;; enough = std::min(candidate.chains.size(), enough + std::max<std::size_t>(1, enough - too_few))) {
      WINDLASS_ASSIGN_OR_RETURN(const std::optional<bool> held, holds(candidate, enough));
      if (!held) return {};  // too expensive, or stopped
      if (*held) break;
      too_few = enough;
      if (enough == candidate.chains.size()) return {};
    }
    while (enough - too_few > 1) {
      const std::size_t middle = too_few + (enough - too_few) / 2;
      WINDLASS_ASSIGN_OR_RETURN(const std::optional<bool> held, holds(candidate, middle));
      if (stopped_) return {};
      (held.value_or(true) ? enough : too_few) = middle;
    }
    best_ = candidate.deployment(problem_, enough);
    best_worth_ = search::worth_of(problem_, *best_);
    capacity_ = candidate.capacity;
    return {};
  }

  // Whether the first `chains` hold in a trial; none if that would cost as much as the best, or the budget is spent.
  Result<std::optional<bool>> holds(const ChainCandidate& candidate, std::size_t chains) {
    const Deployment deployment = candidate.deployment(problem_, chains);
    if (search::worth_of(problem_, deployment) >= best_worth_) return std::optional<bool>();
    if (gpus_of(deployment) > problem_.max_gpus || search::cost_per_hour(problem_, deployment) > problem_.max_cost_per_hour) {
      return std::optional<bool>();
    }
    stopped_ = stop_requested(effort_.stop) || iterations_ >= effort_.max_iterations;
    if (stopped_) return std::optional<bool>();
    WINDLASS_ASSIGN_OR_RETURN(const auto result, search::try_out(problem_, deployment, trial_));
    ++trials_;
    iterations_ += result.iterations;
    const search::Verdict verdict = search::judge(problem_, result);
    // A trial that ends early says only that it missed. The nearest is the one with the fastest chain among those that are
    // large enough, or else the largest.
    const std::pair nearness(std::min(rate_of(deployment), problem_.requests_per_s), -deployment.chains.front().latency_s);
    if (!verdict.holds && (!nearest_ || nearness > nearness_)) {
      nearness_ = nearness;
      nearest_ = deployment;
      nearest_capacity_ = candidate.capacity;
    }
    return std::optional<bool>(verdict.holds);
  }

  Result<Offer> nearest() {
    if (nearest_) return offer(*nearest_, nearest_capacity_, 0);
    if (stopped_) return Error{ErrorCode::kCancelled, "stopped before any chain was tried"};
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{}: chains: the cheapest costs {:.4g} per hour and takes {} GPUs, which exceeds the limits", problem_.name,
                    candidates_.front().cost, gpus_of(candidates_.front().deployment(problem_, candidates_.front().fewest)))};
  }

  // `served_per_s`: what it is known to serve.
  Offer offer(Deployment deployment, int capacity, double served_per_s) {
    Offer plan = search::plan_of(problem_, "chains", std::move(deployment));
    plan.predicted.capacity_requests_per_s = std::max(served_per_s, rate_of(plan.deployment));
    plan.holds = plan.predicted.capacity_requests_per_s >= problem_.requests_per_s;
    search::confirm(problem_, plan);
    plan.trials = trials_ + 1;
    plan.iterations = iterations_;
    plan.stopped = stopped_;
    std::size_t servers = 0;
    for (const Chain& chain : plan.deployment.chains) servers += chain.hops.size();
    plan.reasons.push_back(fmt::format("{} chain{} of {} server{}, each for up to {} requests at once",
                                       plan.deployment.chains.size(), plan.deployment.chains.size() == 1 ? "" : "s", servers,
                                       servers == 1 ? "" : "s", capacity));
    return plan;
  }

  [[nodiscard]] Error nothing_fits() const {
    return {ErrorCode::kNotFound, fmt::format("{}: chains: {}", problem_.name, why_not_)};
  }

  const Problem& problem_;
  const search::Effort& effort_;
  search::Trial trial_;
  std::vector<ChainCandidate> candidates_;
  std::string why_not_;
  std::optional<Deployment> best_, nearest_;  // nearest: of those that missed
  double best_worth_ = std::numeric_limits<double>::infinity();
  std::pair<double, double> nearness_;
  int capacity_ = 1, nearest_capacity_ = 1;
  std::int64_t trials_ = 0, iterations_ = 0;
  bool stopped_ = false;
};

}  // namespace

Result<ChainServers> chain_servers(const Problem& problem, const std::set<std::string>& classes, int tensor_parallel,
                                   int capacity) {
  const planner::ModelShape& shape = problem.shape;
  const GpuCluster& cluster = *problem.cluster;
  const double input = problem.requests->mean_input_tokens(), output = problem.requests->mean_output_tokens();
  const double later = std::max(0.0, output - 1);
  ChainServers made;
  chain::Instance& instance = made.instance;
  instance.blocks = shape.layers;
  instance.block_gb = stage_bytes(shape, 1, 1).weights / kGb;
  instance.arrival_rate_per_s = problem.requests_per_s;
  std::vector<int> nodes;
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    if (classes.contains(cluster.nodes[n].accelerator.name)) nodes.push_back(static_cast<int>(n));
  }
  int gpu = 0;
  std::map<std::pair<std::string, int>, NodeTimes> known;  // by class and link: nodes of one class are alike
  for (std::size_t n = 0; n < cluster.nodes.size(); ++n) {
    const ClusterNode& node = cluster.nodes[n];
    const int first_gpu = std::exchange(gpu, gpu + node.gpus);
    if (!classes.contains(node.accelerator.name)) continue;
    const int degree = degree_on(problem, node, tensor_parallel);
    const auto [times, added] =
        known.try_emplace({fmt::format("{} {}", node.accelerator.name, node.within.bytes_per_s), degree});
    if (added) {
      WINDLASS_ASSIGN_OR_RETURN(const auto model, roofline_instance(shape, node, degree));
      times->second = {degree, model->iteration_s(planner::prefill_batch(1, input)),
                       model->iteration_s(planner::decode_batch(capacity, input + output / 2))};
    }
    const planner::HopTimes hop = slowest_hop(problem, nodes, static_cast<int>(n), node.gpus < 2 * degree);
    const StageBytes bytes = stage_bytes(shape, 1, degree);
    // A cache that the GPUs of a server cannot divide further takes more of its memory.
    instance.cache_gb = std::max(instance.cache_gb, bytes.per_token * degree * (input + output) / kGb);
    for (int first = 0; first + degree <= node.gpus; first += degree) {
      chain::Server server;
      server.name = fmt::format("{}[{}]", node.name, first);
      server.memory_gb = degree * kMemoryShare * node.accelerator.memory_bytes / kGb;
      server.block_s = (times->second.prefill_s + later * times->second.decode_token_s) / shape.layers;
      server.communication_s = hop.at(input) + later * hop.at(capacity);
      instance.servers.push_back(std::move(server));
      ChainServer& at = made.servers.emplace_back();
      at.node = static_cast<int>(n);
      for (int i = 0; i < degree; ++i) at.gpus.push_back(first_gpu + first + i);
    }
  }
  return made;
}

Result<Offer> chains_plan(const Problem& problem, const search::Effort& effort) {
  WINDLASS_RETURN_IF_ERROR(search::validate_cluster(problem));
  if (problem.requests == nullptr || !(problem.requests_per_s > 0)) {
    return Error{ErrorCode::kInvalidArgument, fmt::format("{}: workload: must have requests at a rate above 0", problem.name)};
  }
  return ChainPlanning(problem, effort).plan();
}

}  // namespace windlass::hetero
