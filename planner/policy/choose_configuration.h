// Chooses a configuration: the accelerator and the number of GPUs per worker. It depends on the spec's assumed workload, so
// load never restarts a worker. The choice is sticky: the running configuration stays unless it misses the objective, or
// another costs clearly less and pays for the change.
//
// Closed forms (choose_whole.cc, split.cc) start a new service. Offers that the simulator confirmed (choose_offer.h) replace
// them: at once where the same workers run, otherwise if the change pays back. A class without room for one worker is skipped
// if another has room.
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

// Chooses workers that each process whole requests, by closed forms.
[[nodiscard]] ConfigurationChoice choose_whole(const ConfigurationInput& input);

// The best configuration of every class but this one, by closed forms, cheapest per request first.
[[nodiscard]] std::vector<Configuration> other_classes(const ConfigurationInput& input, const std::string& accelerator);

}  // namespace windlass::planner
