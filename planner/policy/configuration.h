// Configuration: one kind of worker for a service, with its slots and the best known times (measured, otherwise from the data
// sheet).
//
// Measurements on a class replace its data sheet, for any number of its GPUs. The batch limit of a worker depends only on its
// memory, so what is learned later never restarts a worker. Slots limit how many requests the gateways send to a worker.
#pragma once

#include <optional>
#include <string>
#include <vector>

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
  bool keeps_objective = true;  // a request running alone meets it, for the lengths believed now
};

// Requests per second of one worker with all slots taken, while the percentile keeps timePerOutputToken where that rate is
// known.
[[nodiscard]] double requests_per_s(const Configuration& configuration);

// The prefill workers of a service with split phases. If a whole unit (one decode worker and its prefill workers) does not fit,
// one decode worker still runs with the prefill workers that fit; it computes the other prompts itself.
struct PrefillSide {
  Configuration configuration;
  double share = 1;  // prefill workers per decode worker

  // Prefill workers for this many decode workers; then both kinds together.
  [[nodiscard]] int workers(int answering) const;
  [[nodiscard]] int total(int answering) const { return answering + workers(answering); }
  // The most decode workers if `total_workers` are allowed, at least one if any are; and the fewest for a minimum total.
  [[nodiscard]] int answering_within(int total_workers) const;
  [[nodiscard]] int answering_from(int total_workers) const;
};

// A configuration that was compared. It has no slots if it misses the objective.
struct Weighed {
  Configuration configuration;
  std::string rejected = {};  // why it was rejected, for people
  bool outbid = false;        // feasible and with room, but more expensive: the reason is written from the costs
};

struct ConfigurationChoice {
  std::optional<Configuration> chosen;  // the decode workers, if phases are split
  std::optional<PrefillSide> prefill;   // only if phases are split
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
};

// Workers of one kind, with times and slots for the lengths believed now. `batch`: the most requests one may run at once.
[[nodiscard]] Configuration make_configuration(const ConfigurationInput& input, const AcceleratorSpec& spec, int gpus,
                                               int batch, std::string pool, dispatch::Role role = dispatch::Role::kUnified);

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
