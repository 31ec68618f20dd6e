// The passes of make_plan(), in the order in which they run. Each pass makes one decision for all services. It writes the
// decision into the draft, and the explanation into the reasons of the plan. All passes are pure.
#pragma once

#include <span>

#include "planner/policy/passes/draft.h"

namespace windlass::planner {

// "Demand": which signals can be trusted, and the memory of arrivals.
void believe_demand(FleetDraft& fleet);

// "Configuration": which accelerator the workers use, how many GPUs each, and what runs now.
void choose_configurations(FleetDraft& fleet);

// "Target": how many workers each service should have before it competes with others.
void set_targets(FleetDraft& fleet);

// "Change": which pools of an earlier configuration stay. They leave one by one as workers of the new configuration
// become ready, but never take GPUs or money that its first worker needs. While signals are missing, only workers that the spec
// no longer allows go. GPUs that others are draining never cause more workers to go.
void change_pools(FleetDraft& fleet);

// "Arbitration": divides the GPUs. Services that stay unchanged keep theirs before anyone grows.
void share_gpus(FleetDraft& fleet);

// "SecondClass": a service whose class is short of GPUs takes workers of a second class, the cheapest per request first. They
// go again as workers of the chosen class become ready (change_pools). Not while signals are missing, and not if the cluster
// rejects new workers.
void take_second_classes(FleetDraft& fleet);

// "Advice": what Apply would do for services in mode Recommend or Paused, with their own GPUs and the remaining ones.
void advise_without_acting(FleetDraft& fleet);

// "Pools": the pools of the plan, and the memory for the next one.
void write_pools(FleetDraft& fleet);

// "Roles": workers that take the other role of a split service while they run, if one pool has too many and the other of the
// same name too few. Also says what Splitwise's mixed pool served.
void change_roles(FleetDraft& fleet);

// "Prediction": the plan's predicted behaviour, and how many workers every compared configuration would need.
void predict_plans(FleetDraft& fleet);

// "Conditions": MetricsFresh, SLOMet, AbleToScale and TimesKnown.
void write_conditions(FleetDraft& fleet);

// "Denials": what limits and missing GPUs withheld, and who holds those GPUs.
void explain_denials(FleetDraft& fleet);

struct Pass {
  const char* name;
  void (*run)(FleetDraft& fleet);
};

[[nodiscard]] std::span<const Pass> passes();

}  // namespace windlass::planner
