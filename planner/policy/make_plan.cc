// make_plan: runs the passes in order; see make_plan.h.
#include "planner/policy/make_plan.h"

#include <array>
#include <utility>
#include <vector>

#include "planner/policy/passes/passes.h"

namespace windlass::planner {

namespace {

// Names the pass that has just run in the reasons it added.
void name_pass(std::vector<Reason>& reasons, const char* pass) {
  for (Reason& reason : reasons) {
    if (reason.pass.empty()) reason.pass = pass;
  }
}

}  // namespace

std::span<const Pass> passes() {
  static constexpr std::array kPasses = {Pass{"Demand", believe_demand},        Pass{"Configuration", choose_configurations},
                                         Pass{"Target", set_targets},           Pass{"Change", change_pools},
                                         Pass{"Arbitration", share_gpus},       Pass{"SecondClass", take_second_classes},
                                         Pass{"Advice", advise_without_acting}, Pass{"Pools", write_pools},
                                         Pass{"Roles", change_roles},           Pass{"Prediction", predict_plans},
                                         Pass{"Conditions", write_conditions},  Pass{"Denials", explain_denials}};
  return kPasses;
}

Plan make_plan(const Snapshot& snapshot) {
  FleetDraft fleet = draft_of(snapshot);
  for (const Pass& pass : passes()) {
    pass.run(fleet);
    for (Draft& draft : fleet.services) name_pass(draft.plan.reasons, pass.name);
  }
  Plan plan;
  plan.at_s = snapshot.now_s;
  plan.denied = std::move(fleet.denied);
  for (Draft& draft : fleet.services) plan.services.push_back(std::move(draft.plan));
  return plan;
}

}  // namespace windlass::planner
