// See costly_change.h.
#include "planner/policy/costly_change.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "planner/policy/arrivals.h"
#include "planner/policy/trouble.h"
#include "planner/policy/tuning.h"

namespace windlass::planner {
namespace {

// Why the new configuration's first workers cannot start next to the running ones; empty if they can.
std::string lack_of_room(const ConfigurationInput& input, const CostlyChange& change) {
  const Service& service = *input.service;
  double own_cost = 0;
  for (const Worker& worker : service.workers) {
    if (!holds_gpus(worker)) continue;
    if (const AcceleratorState* state = find_accelerator(*input.snapshot, worker.accelerator)) {
      own_cost += worker.gpus * state->spec.price_per_hour;
    }
  }
  bool no_gpus = false, no_node = false, no_share = false;
  std::map<std::string, int> gpus;
  for (const FirstWorker& first : change.first) {
    const int wanted = gpus[first.accelerator] += first.split.gpus();
    own_cost += first.price_per_hour;
    const ClassCapacity& capacity = input.capacities->at(first.accelerator);
    no_gpus = no_gpus || capacity.limit - capacity.draining - capacity.held < wanted;
    no_node = no_node || workers_that_fit(capacity, first.split) == 0;
    no_share = no_share || (first.max_gpus && *first.max_gpus - live_gpus(service, first.accelerator) < wanted);
  }
  const bool no_money = service.scaling.max_cost_per_hour && own_cost > *service.scaling.max_cost_per_hour + 1e-9;
  return no_gpus    ? "too few GPUs are free"
         : no_node  ? "no node has enough free GPUs"
         : no_share ? "maxGPUs is reached"
         : no_money ? "maxCostPerHour is reached"
                    : "";
}

}  // namespace

FirstWorker first_of(const Configuration& of) {
  return {of.pool.spec.accelerator, of.pool.spec.split(), of.price_per_hour, of.max_gpus};
}

Reason objection_to_change(const ConfigurationInput& input, const CostlyChange& change) {
  const Service& service = *input.service;
  const PolicyMemory& memory = *input.memory;
  const std::string& names = change.names;
  if (!input.signals_complete) {
    return Reason{"HeldOnMissingSignals",
                  fmt::format("no change {} while the arrival rate or queue length is missing or stale", names),
                  {}};
  }
  const double start_s = start_time_s(service);
  const double drain_s = std::min(service.scaling.drain_timeout_s, change.drain_s);
  const auto& since_s = memory.configuration.empty() ? memory.history_since_s : memory.configuration_since_s;
  const double horizon_s = std::clamp(since_s ? input.snapshot->now_s - *since_s : 0.0, 0.0, kPaybackS);
  const double saved_per_hour = change.running_cost_per_hour - change.winner_cost_per_hour;
  const double saved = saved_per_hour * horizon_s / 3600;
  const double spent = (change.winner_cost_per_hour * start_s + change.running_cost_per_hour * drain_s) / 3600;
  if (!(saved > spent)) {
    return Reason{"ChangeDoesNotPayBack",
                  fmt::format("a change {} would save {:.4g} within {:.0f} s but cost {:.4g} while both run", names, saved,
                              horizon_s, spent),
                  {{"saved", figure(saved)}, {"spent", figure(spent)}, {"horizonS", figure(horizon_s)}}};
  }
  return objection_to_room(input, change, fmt::format("would save {:.4g} per hour", saved_per_hour));
}

Reason objection_to_room(const ConfigurationInput& input, const CostlyChange& change, const std::string& gain) {
  const std::string lack = lack_of_room(input, change);
  if (lack.empty()) return {};
  return Reason{
      "NoRoomForChange",
      fmt::format("a change {} {}, but no new worker can start next to the running ones: {}", change.names, gain, lack),
      {}};
}

}  // namespace windlass::planner
