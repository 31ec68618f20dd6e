// Configuration: one kind of worker, with the slots and times that are believed of it now.
//
// What was measured on a class counts instead of its data sheet, for any number of its GPUs. How many requests a worker may run
// at once follows from its memory alone, so that learning restarts no worker; slots bound what it is sent.
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
  Pool pool;                  // workers: 0
  WorkerTimes times;          // at pool.each.slots, for the lengths that are believed now
  double price_per_hour = 0;  // of one worker
  double rate_within_tpot_per_s =
      0;                        // of one worker, at which slo.percentile of the requests keep timePerOutputToken; 0: unknown
  std::optional<int> max_gpus;  // of the class, for the whole service
  // By how much a decode iteration at `pool.each.slots` may take longer than `times` say, one-sided 90 %; none: nothing was
  // measured.
  std::optional<double> uncertainty = {};
  bool keeps_objective = true;  // a request alone is inside it, for the lengths that are believed now
};

// That one worker serves with all its slots taken, and timePerOutputToken kept for the percentile where that is known.
[[nodiscard]] double requests_per_s(const Configuration& configuration);

// Of a service with split phases: the workers that compute prompts for those that answer. Where there is no room for a whole
// unit, one that answers and as many of these as it asks for, one still answers, with those that there is room for: it computes
// the other prompts itself.
struct PrefillSide {
  Configuration configuration;
  double share = 1;  // of these for each worker that answers

  // Beside so many that answer; and both together.
  [[nodiscard]] int workers(int answering) const;
  [[nodiscard]] int total(int answering) const { return answering + workers(answering); }
  // The most that may answer where so many are allowed in all, one at least of any; and the fewest where so many are asked for.
  [[nodiscard]] int answering_within(int total_workers) const;
  [[nodiscard]] int answering_from(int total_workers) const;
};

// A configuration that was weighed. What does not meet the objective has no slots.
struct Weighed {
  Configuration configuration;
  std::string rejected = {};  // why, for a person
  bool outbid = false;        // it would do and has room: why it was not taken follows from the costs
};

struct ConfigurationChoice {
  std::optional<Configuration> chosen;  // of the workers that answer
  std::optional<PrefillSide> prefill;   // where others compute their prompts
  // Strategy Auto: of the other classes that the spec allows each with its best configuration inside the objective, the
  // cheapest by what it serves first: where workers go while the chosen class has no GPUs for them.
  std::vector<Configuration> others;
  Hint feasible;
  std::vector<Reason> reasons;
  std::vector<Weighed> weighed;
};

// What a choice is made of besides the spec.
struct ConfigurationInput {
  const Service* service = nullptr;
  const Snapshot* snapshot = nullptr;
  const CapacityByClass* capacities = nullptr;
  const PolicyMemory* memory = nullptr;  // what was chosen before, and the slots that its workers have
  Lengths believed;                      // lengths for slots and rates; the configuration itself follows the spec's
  bool signals_complete = true;          // DemandView::complete
  bool requests_wait = false;            // at the gateways
};

// Workers of a kind, with times and slots for the lengths that are believed now. `batch`: requests that one may run at once.
[[nodiscard]] Configuration make_configuration(const ConfigurationInput& input, const AcceleratorSpec& spec, int gpus,
                                               int batch, std::string pool, dispatch::Role role = dispatch::Role::kUnified);

[[nodiscard]] Objective objective_of(const Service& service);

// As the spec has it; of workers whose class is not even named nothing says that they must go.
[[nodiscard]] bool may_use(const Service& service, const std::string& accelerator);
// The classes that the spec allows, or all.
[[nodiscard]] std::vector<AllowedAccelerator> allowed_of(const Service& service, const Snapshot& snapshot);

// A configuration that runs already, whether or not the search would choose it.
[[nodiscard]] Configuration describe_running(const ConfigurationInput& input, const Worker& worker);

// A figure in Reason::inputs.
[[nodiscard]] std::string figure(double value);

}  // namespace windlass::planner
