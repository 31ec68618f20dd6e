// The passes of make_plan(), in their order. Each is one decision for all services; what it decides it writes into the draft,
// and what a person should know of it into the plan's reasons. Pure.
#pragma once

#include <span>

#include "planner/policy/passes/draft.h"

namespace windlass::planner {

// "Demand": what may be believed of the signals, and the memory of arrivals.
void believe_demand(FleetDraft& fleet);

// "Configuration": on which accelerator, with how many GPUs each, the workers run; and what runs now.
void choose_configurations(FleetDraft& fleet);

// "Target": how many workers each service should have, before it competes with others.
void set_targets(FleetDraft& fleet);

// "Change": pools of an earlier configuration that stay a while. They go one for one as workers of the new one become ready;
// but never do they keep the first new worker from its GPUs or its money. While signals are missing only those go that the spec
// no longer allows. What others drain is no reason to let more of them go.
void change_pools(FleetDraft& fleet);

// "Arbitration": who gets the GPUs; what stays as it is holds its own before anybody grows.
void share_gpus(FleetDraft& fleet);

// "SecondClass": services whose class has no GPUs for what they need take workers of a second one, the cheapest by what it
// serves first. What runs there goes again as workers of the chosen class become ready (change_pools). Not while signals are
// missing, and not where the cluster refuses new workers.
void take_second_classes(FleetDraft& fleet);

// "Advice": what Apply would do for services in mode Recommend or Paused, with their own GPUs and what is left.
void advise_without_acting(FleetDraft& fleet);

// "Pools": the pools of the plan, and the memory for the next one.
void write_pools(FleetDraft& fleet);

// "Prediction": what the plan is expected to give, and what each configuration that was weighed would need.
void predict_plans(FleetDraft& fleet);

// "Conditions": MetricsFresh, SLOMet and AbleToScale.
void write_conditions(FleetDraft& fleet);

// "Denials": what limits and a lack of GPUs withheld, and who has them.
void explain_denials(FleetDraft& fleet);

struct Pass {
  const char* name;
  void (*run)(FleetDraft& fleet);
};

[[nodiscard]] std::span<const Pass> passes();

}  // namespace windlass::planner
