// The "Target" pass: sets how many workers each service should have before it competes with others. See passes.h.
#include "planner/policy/passes/passes.h"

namespace windlass::planner {

void set_targets(FleetDraft& fleet) {
  for (Draft& draft : fleet.services) {
    if (draft.chosen) set_target(draft, fleet.snapshot->now_s);
  }
}

}  // namespace windlass::planner
