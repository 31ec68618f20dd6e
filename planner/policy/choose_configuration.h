// Chooses a configuration: the accelerator and the number of GPUs per worker. It depends on the spec's assumed workload, so
// load never restarts a worker. The choice is sticky: the running configuration stays unless it misses the objective, or
// another costs clearly less and pays for the change.
//
// A class without room for one worker is skipped if another has room. A service runs on two classes only during a change.
// choose_whole.cc chooses whole workers, split.cc split phases; Auto compares the two.
#pragma once

#include "planner/policy/configuration.h"

namespace windlass::planner {

// While the class of the running workers cannot be read, nothing is chosen and they stay (RunningClassUnknown): a class that
// disappears for a moment must not restart every worker elsewhere.
//
// A change that only saves money is made if it saves more within its horizon than running both costs (otherwise
// ChangeDoesNotPayBack), if new workers can start next to the old ones (otherwise NoRoomForChange), and never while signals are
// missing (HeldOnMissingSignals), because then nobody can tell whether the new workers handle the load.
[[nodiscard]] ConfigurationChoice choose_configuration(const ConfigurationInput& input);

// Chooses workers that each process whole requests.
[[nodiscard]] ConfigurationChoice choose_whole(const ConfigurationInput& input);

}  // namespace windlass::planner
