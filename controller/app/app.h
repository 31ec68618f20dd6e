// The composition root of windlass-controller: the only place that wires things together.
#pragma once

#include "controller/app/options.h"
#include "controller/app/waker.h"

namespace windlass::controller {

// Runs until `waker` is stopped. Error: it cannot start, or going on makes no sense.
[[nodiscard]] Result<void> run(const AppOptions& options, Waker& waker);

}  // namespace windlass::controller
