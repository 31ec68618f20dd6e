// The "Demand" pass: decides which signals of each service can be trusted. See passes.h.
#include "planner/policy/asked_workload.h"
#include "planner/policy/passes/passes.h"

namespace windlass::planner {

void believe_demand(FleetDraft& fleet) {
  const double now_s = fleet.snapshot->now_s;
  for (Draft& draft : fleet.services) {
    draft.memory = advance_memory(*draft.service, now_s);
    draft.view = view_demand(*draft.service, draft.memory, now_s);
    follow_workload(draft.memory, *draft.service, draft.view, now_s);
    draft.plan.forecast = draft.view.forecast;
  }
}

}  // namespace windlass::planner
