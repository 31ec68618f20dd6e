// The choice of a configuration: on which accelerator, with how many GPUs each, a service's workers run. For the spec's assumed
// workload, so that load never restarts a worker; and sticky: what runs is kept unless it breaks the objective or something
// costs clearly less and pays for the change.
//
// A class without room for one worker is passed over while another one has it; a service never runs on two classes at once but
// while it changes. Whole workers are chosen in choose_whole.cc, split phases in split.cc; Auto weighs the two.
#pragma once

#include "planner/policy/configuration.h"

namespace windlass::planner {

// While the class that a service's workers run on cannot be read, nothing is chosen and they stay as they are
// (RunningClassUnknown): a class that is missing for a moment must not restart every worker elsewhere.
//
// A change that only saves money is made if it saves more within its horizon than running both costs (ChangeDoesNotPayBack
// otherwise), if there is room to start new workers next to the old ones (NoRoomForChange), and never while signals are missing
// (HeldOnMissingSignals): nobody could tell whether the new workers carry what the old ones did.
[[nodiscard]] ConfigurationChoice choose_configuration(const ConfigurationInput& input);

// Workers that each have the whole of every request.
[[nodiscard]] ConfigurationChoice choose_whole(const ConfigurationInput& input);

}  // namespace windlass::planner
