// huawei_plan(): see huawei.h. Turns the best degree of each kind of machine into a plan with reasons.
#include "planner/strategies/huawei/huawei.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "planner/mip/mixed_integer_program.h"
#include "planner/strategies/core/deployment.h"

namespace windlass::hetero {
namespace {

class Planning {
 public:
  Planning(const search::Problem& problem, const DeploymentSearch& found)
      : problem_(problem), found_(found), used_(found.machines.size(), 0) {}

  Result<search::Offer> run() {
    WINDLASS_RETURN_IF_ERROR(choose_machines());
    plan_.strategy = "huawei";
    add_chains();
    plan_.holds = capacity_ >= problem_.requests_per_s;
    plan_.predicted.capacity_requests_per_s = capacity_;
    say_why();
    list_considered();
    for (const MachineKind& machine : found_.machines) plan_.iterations += static_cast<std::int64_t>(machine.options.size());
    return std::move(plan_);
  }

 private:
  [[nodiscard]] const ClusterNode& node_of(const MachineKind& machine) const {
    return problem_.cluster->nodes[static_cast<std::size_t>(machine.nodes.front())];
  }
  [[nodiscard]] static const InstanceOption& best_of(const MachineKind& machine) {
    return machine.options[static_cast<std::size_t>(machine.best)];
  }
  // "8 x v100-32gb (n0, n1 and 3 more)"
  [[nodiscard]] std::string name_of(const MachineKind& machine) const {
    constexpr std::size_t kNamed = 3;
    std::vector<std::string> names;
    for (std::size_t i = 0; i < std::min(kNamed, machine.nodes.size()); ++i) {
      names.push_back(problem_.cluster->nodes[static_cast<std::size_t>(machine.nodes[i])].name);
    }
    const std::string more = machine.nodes.size() > kNamed ? fmt::format(" and {} more", machine.nodes.size() - kNamed) : "";
    const ClusterNode& node = node_of(machine);
    return fmt::format("{} x {} ({}{})", node.gpus, node.accelerator.name, fmt::join(names, ", "), more);
  }

  [[nodiscard]] Error not_found(const std::string& what) const {
    return Error{ErrorCode::kNotFound, fmt::format("{}: {}", problem_.name, what)};
  }

  // "16 GPUs and 20.00 per hour"; "any limits" if there are none.
  [[nodiscard]] std::string limits() const {
    std::vector<std::string> parts;
    if (problem_.max_gpus < std::numeric_limits<int>::max()) parts.push_back(fmt::format("{} GPUs", problem_.max_gpus));
    if (std::isfinite(problem_.max_cost_per_hour)) parts.push_back(fmt::format("{:.2f} per hour", problem_.max_cost_per_hour));
    return parts.empty() ? "any limits" : fmt::format("{}", fmt::join(parts, " and "));
  }
  [[nodiscard]] bool inside(int gpus, double cost_per_hour) const {
    return gpus <= problem_.max_gpus && cost_per_hour <= problem_.max_cost_per_hour * (1 + 1e-9);
  }

  // Decides how many machines of each kind serve.
  Result<void> choose_machines() {
    int gpus = 0;
    double cost = 0;
    std::vector<std::string> unfit;
    bool any = false;
    for (std::size_t m = 0; m < found_.machines.size(); ++m) {
      const MachineKind& machine = found_.machines[m];
      if (machine.best < 0) {
        for (const InstanceOption& option : machine.options) {
          unfit.push_back(
              fmt::format("{} with tensor parallelism {}: {}", name_of(machine), option.tensor_parallel, option.unfit));
        }
        continue;
      }
      any = true;
      used_[m] = static_cast<int>(machine.nodes.size());
      gpus += used_[m] * node_of(machine).gpus;
      cost += used_[m] * cost_of(machine);
    }
    if (!any) return not_found(fmt::format("no machine can hold the model: {}", fmt::join(unfit, "; ")));
    if (inside(gpus, cost)) return {};
    return choose_inside();
  }

  [[nodiscard]] double cost_of(const MachineKind& machine) const {
    return node_of(machine).gpus * node_of(machine).accelerator.price_per_hour;
  }

  // Takes the machines that serve most within the bounds on GPUs and cost.
  Result<void> choose_inside() {
    mip::MixedIntegerProgram program;
    std::vector<mip::Term> gpus, cost;
    for (const MachineKind& machine : found_.machines) {
      const double most = machine.best < 0 ? 0 : static_cast<double>(machine.nodes.size());
      const double worth = machine.best < 0 ? 0 : best_of(machine).requests_per_s();
      const int variable = program.add_variable({0, most, -worth, true});
      gpus.push_back({variable, static_cast<double>(node_of(machine).gpus)});
      cost.push_back({variable, cost_of(machine)});
    }
    if (problem_.max_gpus < std::numeric_limits<int>::max()) program.add_at_most(gpus, problem_.max_gpus);
    if (std::isfinite(problem_.max_cost_per_hour)) program.add_at_most(cost, problem_.max_cost_per_hour);
    WINDLASS_ASSIGN_OR_RETURN(const mip::Solution solution, mip::solve(program));
    int machines = 0;
    for (std::size_t m = 0; m < used_.size(); ++m) {
      used_[m] = solution.values.empty() ? 0 : static_cast<int>(std::lround(solution.values[m]));
      machines += used_[m];
    }
    if (machines == 0) {
      std::vector<std::string> sizes;
      for (const MachineKind& machine : found_.machines) {
        if (machine.best < 0) continue;
        sizes.push_back(
            fmt::format("{} takes {} GPUs and {:.2f} per hour", name_of(machine), node_of(machine).gpus, cost_of(machine)));
      }
      return not_found(fmt::format("limits: must allow at least one machine (got {}): {}", limits(), fmt::join(sizes, "; ")));
    }
    bounded_ = true;
    return {};
  }

  void add_chains() {
    plan_.deployment.dispatch = search::dispatch_of_chains(problem_, true);
    std::vector<int> first_gpu;
    int next = 0;
    for (const ClusterNode& node : problem_.cluster->nodes) {
      first_gpu.push_back(next);
      next += node.gpus;
    }
    std::vector<std::pair<int, const InstanceOption*>> served;  // node
    for (std::size_t m = 0; m < found_.machines.size(); ++m) {
      const MachineKind& machine = found_.machines[m];
      for (int i = 0; i < used_[m]; ++i) served.emplace_back(machine.nodes[static_cast<std::size_t>(i)], &best_of(machine));
    }
    std::sort(served.begin(), served.end());
    for (const auto& [n, option] : served) {
      const auto node = static_cast<std::size_t>(n);
      for (int instance = 0; instance < option->instances; ++instance) {
        planner::Chain chain;
        planner::Hop& hop = chain.hops.emplace_back();
        hop.layers = problem_.shape.layers;
        for (int i = 0; i < option->tensor_parallel; ++i) {
          hop.gpus.push_back(first_gpu[node] + instance * option->tensor_parallel + i);
        }
        chain.requests_per_s = option->continuous.requests_per_s;
        chain.latency_s = option->continuous.batch / option->continuous.requests_per_s;
        chain.batch = problem_.engine.max_sequences;
        const std::string& accelerator = problem_.cluster->nodes[node].accelerator.name;
        add_chain(plan_.deployment, std::move(chain), {{accelerator, option->tensor_parallel, 1, problem_.engine}});
      }
      const ClusterNode& machine = problem_.cluster->nodes[node];
      capacity_ += option->requests_per_s();
      tokens_per_s_ += option->tokens_per_s();
      static_tokens_per_s_ += option->static_tokens_per_s();
      plan_.gpus += machine.gpus;
      plan_.cost_per_hour += machine.gpus * machine.accelerator.price_per_hour;
      plan_.power_watts += machine.gpus * machine.accelerator.power_watts;
    }
  }

  void say_why() {
    std::size_t estimated = 0, deployable = 0, kinds = 0;
    for (const MachineKind& machine : found_.machines) {
      estimated += machine.options.size();
      if (machine.best >= 0) ++kinds;
      for (const InstanceOption& option : machine.options) deployable += option.unfit.empty() ? 1 : 0;
    }
    plan_.reasons.push_back(
        fmt::format("{} degrees of tensor parallelism on {} kinds of machines were estimated; {} can be deployed, which gives "
                    "{} configurations of {} machines",
                    estimated, found_.machines.size(), deployable, count_text(found_.log10_configurations),
                    problem_.cluster->nodes.size()));
    plan_.reasons.push_back(fmt::format(
        "machines are independent: throughputs add up, and a machine takes the same GPUs, cost and power at any degree; so {} "
        "degrees are dominated by another one of the same machine, and all configurations but one were pruned",
        deployable - kinds));
    for (std::size_t m = 0; m < found_.machines.size(); ++m) say_why(found_.machines[m], used_[m]);
    if (bounded_) {
      plan_.reasons.push_back(fmt::format("these machines serve most within {}", limits()));
    }
    plan_.reasons.push_back(
        fmt::format("the estimate is for continuous batching: {:.2f} requests/s or {:.0f} tokens/s; in static batches, which "
                    "the paper estimates, the same machines serve {:.0f} tokens/s",
                    capacity_, tokens_per_s_, static_tokens_per_s_));
    if (!plan_.holds) {
      plan_.reasons.push_back(fmt::format("{:.2f} requests/s are required; by the estimate, {:.2f} are missing",
                                          problem_.requests_per_s, problem_.requests_per_s - capacity_));
    }
  }

  void say_why(const MachineKind& machine, int used) {
    for (const InstanceOption& option : machine.options) {
      if (option.unfit.empty()) continue;
      plan_.reasons.push_back(
          fmt::format("{}: tensor parallelism {} {}", name_of(machine), option.tensor_parallel, option.unfit));
    }
    if (machine.best < 0) {
      plan_.reasons.push_back(fmt::format("{}: not used, the model does not fit", name_of(machine)));
      return;
    }
    std::vector<const InstanceOption*> ranked;
    for (const InstanceOption& option : machine.options) {
      if (option.unfit.empty()) ranked.push_back(&option);
    }
    std::stable_sort(ranked.begin(), ranked.end(),
                     [](const auto* a, const auto* b) { return a->requests_per_s() > b->requests_per_s(); });
    std::vector<std::string> others;
    for (std::size_t i = 1; i < ranked.size(); ++i) {
      others.push_back(fmt::format("{}: {:.0f}", ranked[i]->tensor_parallel, ranked[i]->tokens_per_s()));
    }
    const InstanceOption& best = *ranked.front();
    plan_.reasons.push_back(
        fmt::format("{}, {} of {} used: tensor parallelism {}, {} instances of {:.0f} cache tokens, {:.0f} "
                    "tokens/s on each machine{}",
                    name_of(machine), used, machine.nodes.size(), best.tensor_parallel, best.instances, best.kv_tokens,
                    best.tokens_per_s(), others.empty() ? "" : fmt::format(" ({})", fmt::join(others, ", "))));
  }

  // Lists every dominated degree, on all serving machines of its kind.
  void list_considered() {
    for (std::size_t m = 0; m < found_.machines.size(); ++m) {
      const MachineKind& machine = found_.machines[m];
      if (machine.best < 0 || used_[m] == 0) continue;
      const InstanceOption& best = best_of(machine);
      for (const InstanceOption& option : machine.options) {
        if (&option == &best || !option.unfit.empty()) continue;
        search::Rejection& other = plan_.considered.emplace_back();
        other.what =
            fmt::format("{}: tensor parallelism {}, {} instances", name_of(machine), option.tensor_parallel, option.instances);
        other.predicted.capacity_requests_per_s = capacity_ + used_[m] * (option.requests_per_s() - best.requests_per_s());
        other.cost_per_hour = plan_.cost_per_hour;
        other.rejected_because =
            fmt::format("each of these machines serves {:.2f} requests/s; with tensor parallelism {} it serves {:.2f}",
                        option.requests_per_s(), best.tensor_parallel, best.requests_per_s());
      }
    }
    std::stable_sort(plan_.considered.begin(), plan_.considered.end(), [](const auto& a, const auto& b) {
      return a.predicted.capacity_requests_per_s > b.predicted.capacity_requests_per_s;
    });
    if (plan_.considered.size() > search::kMaxConsidered) plan_.considered.resize(search::kMaxConsidered);
  }

  static std::string count_text(double log10) {
    return log10 < 9 ? fmt::format("{:.0f}", std::pow(10, log10)) : fmt::format("about 10^{:.0f}", log10);
  }

  const search::Problem& problem_;
  const DeploymentSearch& found_;
  std::vector<int> used_;  // machines of each kind
  bool bounded_ = false;
  double capacity_ = 0;  // requests per second
  double tokens_per_s_ = 0;
  double static_tokens_per_s_ = 0;
  search::Offer plan_;
};

}  // namespace

Result<search::Offer> huawei_plan(const search::Problem& problem, const search::Effort& effort, const HuaweiOptions& options) {
  WINDLASS_ASSIGN_OR_RETURN(const DeploymentSearch found, search_tensor_parallel(problem, effort, options));
  return Planning(problem, found).run();
}

}  // namespace windlass::hetero
