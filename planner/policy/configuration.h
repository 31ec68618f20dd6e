// Configuration: one kind of worker for a service, with its slots and the best known times (measured, otherwise from the data
// sheet).
//
// Measurements on a class replace its data sheet, for any number of its GPUs. The batch limit of a worker depends only on its
// memory, so what is learned later never restarts a worker. Slots limit how many requests the gateways send to a worker.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/perf/time_errors.h"
#include "planner/policy/capacity.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"
#include "planner/sizing/worker_config.h"

namespace windlass::planner {

struct Configuration {
  Pool pool;                          // workers is 0
  WorkerTimes times;                  // at pool.each.slots, for the lengths believed now
  double price_per_hour = 0;          // per worker
  double rate_within_tpot_per_s = 0;  // requests/s of one worker at which slo.percentile of the requests meet
                                      // timePerOutputToken; 0: unknown
  std::optional<int> max_gpus;        // of the class, for the whole service
  // Upper bound (one-sided, 90 %) of the relative error of `times` for a decode iteration at `pool.each.slots`. None: nothing
  // was measured.
  std::optional<double> uncertainty = {};
  TimeErrors errors = {};       // of `times`
  bool keeps_objective = true;  // a request running alone meets it, for the lengths believed now
  double load_share = 1;        // of the requests of its role, if several pools share them
  double capacity_ratio = 1;    // OfferedPool::capacity_ratio; 1: closed forms alone
};

// Requests per second of one worker with all slots taken, while the percentile keeps timePerOutputToken where that rate is
// known; times what the simulator found.
[[nodiscard]] double requests_per_s(const Configuration& configuration);

// The same workers if their times are `longer` times as long (below 1: shorter), and TTFT at the worker `longer_ttft` times.
// REQUIRES: the service's shape and the accelerator's spec are known.
[[nodiscard]] Configuration at_end(const Service& service, const AcceleratorSpec& spec, const Lengths& lengths,
                                   const Configuration& expected, double longer, double longer_ttft);

// Seconds that one of the service's requests takes of a slot, as the simulator found, if the pool serves a share of them.
[[nodiscard]] double effective_service_s(const Configuration& configuration);

// A pool next to the chosen one, in proportion to it: prefill workers next to decode workers, or a second kind in a mix.
struct SidePool {
  Configuration configuration;
  double share = 1;                   // workers per worker of the chosen pool
  std::optional<Reading> lower = {};  // SideShare::lower

  // Its workers for this many of the chosen pool.
  [[nodiscard]] int workers(int chosen) const;
  [[nodiscard]] bool is_prefill() const { return configuration.pool.role == dispatch::Role::kPrefill; }
};

// All pools next to the chosen one. A unit is one chosen worker and its share of each side pool. If a whole unit does not fit,
// one chosen worker still runs with the side workers that fit; a decode worker then computes the other prompts itself.
struct SidePools {
  std::vector<SidePool> pools;

  [[nodiscard]] bool empty() const { return pools.empty(); }
  [[nodiscard]] bool split() const;  // whether there are prefill workers
  // Of each pool for this many chosen workers; and of all pools together with the chosen one.
  [[nodiscard]] std::vector<int> workers(int chosen) const;
  [[nodiscard]] int total(int chosen) const;
  // The most chosen workers if `total_workers` are allowed, at least one if any are; and the fewest for a minimum total.
  [[nodiscard]] int chosen_within(int total_workers) const;
  [[nodiscard]] int chosen_from(int total_workers) const;
};

// A configuration that was compared. It has no slots if it misses the objective.
struct Weighed {
  Configuration configuration;
  std::string rejected = {};  // why it was rejected, for people
  bool outbid = false;        // feasible and with room, but more expensive: the reason is written from the costs
};

struct ConfigurationChoice {
  std::optional<Configuration> chosen;  // the decode workers, if phases are split
  SidePools sides;
  std::optional<Offer> offer;  // that was taken; none: closed forms
  // Strategy Auto: the best feasible configuration of every other allowed class, cheapest per request first. Workers go there
  // while the chosen class is short of GPUs.
  std::vector<Configuration> others;
  Hint feasible;
  std::vector<Reason> reasons;
  std::vector<Weighed> weighed;
};

// Input of a choice, besides the spec.
struct ConfigurationInput {
  const Service* service = nullptr;
  const Snapshot* snapshot = nullptr;
  const CapacityByClass* capacities = nullptr;
  const PolicyMemory* memory = nullptr;  // the previous choice and its workers' slots
  Lengths believed;                      // for slots and rates; the configuration itself depends on the spec's lengths
  bool signals_complete = true;          // DemandView::complete
  bool requests_wait = false;            // at the gateways
  bool lengths_observed = true;          // `believed` was observed; otherwise it is the spec's
};

// Workers of one kind, with times and slots for the lengths believed now. `batch`: the most requests one may run at once.
// `slots_ratio`: OfferedPool::slots_ratio; times stay those of the closed forms' slots.
[[nodiscard]] Configuration make_configuration(const ConfigurationInput& input, const AcceleratorSpec& spec,
                                               const GpuSplit& split, int batch, std::string pool,
                                               dispatch::Role role = dispatch::Role::kUnified, double slots_ratio = 1);
// The most requests that whole workers with this KV cache may run at once. Depends on the spec only.
[[nodiscard]] int max_concurrency_of(const Service& service, double kv_capacity_tokens);

[[nodiscard]] Objective objective_of(const Service& service);

// Whether the spec allows the accelerator. True if the name is empty: a worker of unknown class need not go.
[[nodiscard]] bool may_use(const Service& service, const std::string& accelerator);
// The classes that the spec allows, or all.
[[nodiscard]] std::vector<AllowedAccelerator> allowed_of(const Service& service, const Snapshot& snapshot);

// Describes a running configuration, whether or not the search would choose it.
[[nodiscard]] Configuration describe_running(const ConfigurationInput& input, const Worker& worker);

// Formats a number for Reason::inputs.
[[nodiscard]] std::string figure(double value);

}  // namespace windlass::planner
