// From demand to a number of workers.
#include "planner/policy/target.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "planner/policy/tuning.h"
#include "planner/search/worker_count.h"

namespace windlass::planner {
namespace {

// No plan asks for more; the arithmetic stays inside int.
constexpr int kMostWorkers = 100'000;

int to_int(double workers) { return static_cast<int>(std::clamp(workers, 0.0, static_cast<double>(kMostWorkers))); }

// The largest and smallest recommendation in force at any time of the last `window_s` seconds.
std::pair<int, int> range_over(const PolicyMemory& memory, double now_s, double window_s) {
  int smallest = kMostWorkers;
  int largest = 0;
  const auto& entries = memory.recommendations;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    // Entry i holds until entry i + 1.
    if (i + 1 < entries.size() && entries[i + 1].at_s <= now_s - window_s) continue;
    smallest = std::min(smallest, entries[i].workers);
    largest = std::max(largest, entries[i].workers);
  }
  return {smallest, largest};
}

// A memory from the future is another clock's: it counts as none.
PolicyMemory sane(const PolicyMemory& memory, double now_s) {
  PolicyMemory kept = memory;
  const auto from_future = [&](const Recommendation& r) { return !(r.at_s <= now_s); };
  if ((kept.history_since_s && !(*kept.history_since_s <= now_s)) ||
      std::any_of(kept.recommendations.begin(), kept.recommendations.end(), from_future)) {
    kept = PolicyMemory{};
  }
  if (!kept.history_since_s) kept.history_since_s = now_s;
  return kept;
}

// What the service's own limits leave of `wanted`.
void apply_limits(const Service& service, const Configuration& configuration, const Retiring& retiring, Target& target) {
  target.allowed = std::max(target.wanted, target.floor);
  auto limit = [&](double most, const char* code, const std::string& message) {
    if (most >= target.allowed) return;
    target.allowed = to_int(std::floor(most + 1e-9));
    target.limited_by = code;
    target.limit_message = message;
  };
  const Scaling& scaling = service.scaling;
  const int needed = target.allowed;
  if (scaling.max_workers) {
    limit(*scaling.max_workers, "MaxWorkers",
          fmt::format("{} workers are needed, maxWorkers allows {}", needed, *scaling.max_workers));
  }
  if (configuration.max_gpus) {
    const int left = std::max(0, *configuration.max_gpus - retiring.gpus_of_class);
    const int gpus = std::max(1, configuration.pool.gpus_per_worker);
    limit(left / gpus, "MaxGpus",
          fmt::format("{} workers of {} GPUs are needed, maxGPUs of {} leaves {} GPUs", needed, gpus,
                      configuration.pool.accelerator, left));
  }
  if (scaling.max_cost_per_hour && configuration.price_per_hour > 0) {
    const double left = std::max(0.0, *scaling.max_cost_per_hour - retiring.cost_per_hour);
    limit(std::floor(left / configuration.price_per_hour + 1e-9), "MaxCost",
          fmt::format("{} workers at {:.4g} an hour are needed, maxCostPerHour leaves {:.4g}", needed,
                      configuration.price_per_hour, left));
  }
  target.floor = std::min(target.floor, target.allowed);
  if (!target.limited_by.empty()) {
    target.reasons.push_back(Reason{target.limited_by, target.limit_message, {{"allowed", std::to_string(target.allowed)}}});
  }
}

}  // namespace

int current_workers(const Service& service) {
  if (service.memory.desired) return *service.memory.desired;
  if (service.last_desired) return *service.last_desired;
  return static_cast<int>(std::count_if(service.workers.begin(), service.workers.end(),
                                        [](const Worker& w) { return w.state != WorkerState::kDraining; }));
}

int workers_for(const Service& service, const Configuration& configuration, double arrivals_per_s, double queued) {
  SizingInput sizing;
  sizing.arrival_rate_per_s = arrivals_per_s;
  sizing.service_time_s = configuration.times.service_s;
  sizing.slots_per_worker = configuration.pool.slots;
  sizing.wait_budget_s = service.slo.ttft_s - configuration.times.ttft_s;
  sizing.percentile = service.slo.percentile;
  sizing.max_utilisation = kMaxUtilisation;
  const auto steady = workers_needed(sizing, kMostWorkers);
  // What waits may use the headroom that the steady state keeps.
  const double worker_rate = configuration.pool.slots / configuration.times.service_s;
  const double backlog = queued > 0 ? std::ceil((arrivals_per_s + queued / kBacklogDrainS) / worker_rate) : 0;
  return std::max(static_cast<int>(steady), to_int(backlog));
}

PolicyMemory remember(const PolicyMemory& memory, const Scaling& scaling, double now_s, int workers) {
  PolicyMemory next = sane(memory, now_s);
  auto& entries = next.recommendations;
  if (!entries.empty() && entries.back().at_s == now_s) entries.pop_back();  // planned twice at one time: the later counts
  if (entries.empty() || entries.back().workers != workers) entries.push_back(Recommendation{now_s, workers});
  const double horizon_s = now_s - std::max(scaling.scale_down_stabilization_s, scaling.scale_up_stabilization_s);
  std::size_t outdated = 0;
  while (outdated + 1 < entries.size() && entries[outdated + 1].at_s <= horizon_s) ++outdated;
  entries.erase(entries.begin(), entries.begin() + static_cast<std::ptrdiff_t>(outdated));
  return next;
}

Target decide_target(const Service& service, double now_s, const DemandView& view, const Configuration& configuration,
                     const Retiring& retiring) {
  const Scaling& scaling = service.scaling;
  const PolicyMemory memory = sane(service.memory, now_s);
  const int current = current_workers(service);
  const bool first_plan = !service.last_desired && service.workers.empty() && !service.memory.history_since_s;
  const int previous = memory.recommendations.empty() ? current : memory.recommendations.back().workers;
  Target target;
  target.floor = scaling.max_workers ? std::min(scaling.min_workers, *scaling.max_workers) : scaling.min_workers;

  // A rise counts when it is beyond the noise of a Poisson count; then it counts in full.
  const double noise_per_s = std::sqrt(view.arrivals_per_s / view.arrivals_window_s);
  const double sure_per_s =
      std::max(0.0, std::min(view.arrivals_per_s * (1 - kRiseTolerance), view.arrivals_per_s - kRiseSigmas * noise_per_s));
  const int needed = workers_for(service, configuration, view.arrivals_per_s, view.queued);
  const int surely_needed = workers_for(service, configuration, sure_per_s, view.queued);
  int recommended = surely_needed > previous ? needed : std::min(needed, previous);
  if (view.any_demand()) recommended = std::max(recommended, 1);
  target.reasons.push_back(
      Reason{"Demand",
             fmt::format("{:.4g} requests/s arrive and {:.0f} wait: {} workers", view.arrivals_per_s, view.queued, needed),
             {{"arrivalsPerS", figure(view.arrivals_per_s)},
              {"queued", figure(view.queued)},
              {"inputTokens", figure(view.lengths.input_tokens)},
              {"outputTokens", figure(view.lengths.output_tokens)},
              {"lengths", view.lengths_observed ? "observed" : "assumed"},
              {"slots", std::to_string(configuration.pool.slots)},
              {"serviceS", figure(configuration.times.service_s)},
              {"workers", std::to_string(needed)}}});

  // Workers that are busy are needed, whatever the arrival rate promises: a model that flatters its workers must not take them
  // away.
  const double in_system = view.in_workers + view.queued;
  const int occupied = to_int(std::ceil(in_system / (configuration.pool.slots * kMaxUtilisation)));
  if (const int kept = std::min(occupied, current); kept > recommended) {
    recommended = kept;
    target.reasons.push_back(
        Reason{"Occupied",
               fmt::format("{:.0f} requests are inside: {} workers are kept for them", in_system, kept),
               {{"inWorkers", figure(view.in_workers)}, {"silentWorkers", std::to_string(view.silent_workers)}}});
  }

  // To zero only after the idle time has passed before our own eyes.
  bool idle = false;
  if (scaling.min_workers == 0 && scaling.idle_to_zero_after_s && recommended == 0 && current > 0) {
    const double quiet_since_s =
        std::max(service.demand.last_arrival_at_s.value_or(*memory.history_since_s), *memory.history_since_s);
    idle = view.complete && now_s - quiet_since_s >= *scaling.idle_to_zero_after_s;
    if (!idle) {
      recommended = 1;
      target.reasons.push_back(Reason{"NotIdleLongEnough",
                                      fmt::format("one worker stays until no request came for {:.0f} s; it is {:.0f} s now",
                                                  *scaling.idle_to_zero_after_s, now_s - quiet_since_s),
                                      {}});
    }
  }

  if (first_plan) {
    const int assumed = workers_for(service, configuration, service.workload.requests_per_s, 0);
    if (assumed > recommended) {
      recommended = assumed;
      target.reasons.push_back(Reason{"AssumedWorkload",
                                      fmt::format("nothing has been observed yet; {:.4g} requests/s are assumed: {} workers",
                                                  service.workload.requests_per_s, assumed),
                                      {{"requestsPerS", figure(service.workload.requests_per_s)}}});
    }
    target.wanted = recommended;
    target.memory = remember(service.memory, scaling, now_s, recommended);
  } else if (!view.complete) {
    target.wanted = std::max(current, recommended);
    target.memory = remember(service.memory, scaling, now_s, target.wanted);
    if (current > recommended) {
      target.reasons.push_back(Reason{"HeldOnMissingSignals",
                                      fmt::format("{} workers are held: {}", current, view.problem),
                                      {{"workers", std::to_string(current)}}});
    }
  } else {
    target.memory = remember(service.memory, scaling, now_s, recommended);
    const int up = range_over(target.memory, now_s, scaling.scale_up_stabilization_s).first;
    const int down = std::max(recommended, range_over(target.memory, now_s, scaling.scale_down_stabilization_s).second);
    target.wanted = current;
    if (idle) {
      target.wanted = 0;
      target.reasons.push_back(
          Reason{"IdleToZero", fmt::format("no request came for {:.0f} s", *scaling.idle_to_zero_after_s), {}});
    } else if (up > current) {
      target.wanted = up;
      target.reasons.push_back(Reason{current == 0 ? "ScaleFromZero" : "ScaleUp",
                                      fmt::format("from {} to {} workers", current, up),
                                      {{"from", std::to_string(current)}, {"to", std::to_string(up)}}});
    } else if (recommended > current) {
      target.reasons.push_back(
          Reason{"ScaleUpStabilising",
                 fmt::format("{} workers are needed, but not yet for {:.0f} s", recommended, scaling.scale_up_stabilization_s),
                 {}});
    } else if (recommended < current && now_s - *memory.history_since_s < scaling.scale_down_stabilization_s) {
      target.reasons.push_back(
          Reason{"HeldOnShortHistory",
                 fmt::format("{} workers are held: the demand is known for {:.0f} s, and {:.0f} s must be seen before "
                             "fewer are kept",
                             current, now_s - *memory.history_since_s, scaling.scale_down_stabilization_s),
                 {{"workers", std::to_string(current)}}});
    } else if (down < current) {
      target.wanted = down;
      target.reasons.push_back(Reason{"ScaleDown",
                                      fmt::format("from {} to {} workers, the most that was needed within {:.0f} s", current,
                                                  down, scaling.scale_down_stabilization_s),
                                      {{"from", std::to_string(current)}, {"to", std::to_string(down)}}});
    } else if (recommended < current) {
      target.reasons.push_back(Reason{"ScaleDownStabilising",
                                      fmt::format("{} workers would do, but {} were needed within the last {:.0f} s",
                                                  recommended, down, scaling.scale_down_stabilization_s),
                                      {}});
    }
  }
  apply_limits(service, configuration, retiring, target);
  return target;
}

}  // namespace windlass::planner
