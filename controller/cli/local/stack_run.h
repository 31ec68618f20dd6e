// Runs a LocalStack until Ctrl-C, for `windlass up` and `windlass attach`: prints an example request, then a live table.
#pragma once

#include <vector>

#include "controller/api/load.h"
#include "controller/cli/console/console.h"
#include "controller/cli/local/local_stack.h"

namespace windlass::cli {

// Returns the exit code. The example request uses a service of `objects`. REQUIRES: the main thread.
[[nodiscard]] int run_stack(const LocalStackOptions& options, const std::vector<api::Object>& objects, Console& console);

}  // namespace windlass::cli
