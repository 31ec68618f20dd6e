// The composition root of windlass-controller: the only place that wires the parts together.
#pragma once

#include "controller/app/options.h"
#include "controller/app/waker.h"

namespace windlass::controller {

// Runs until `waker` is stopped. Error: it cannot start or cannot go on.
[[nodiscard]] Result<void> run(const AppOptions& options, Waker& waker);

}  // namespace windlass::controller
