// A LocalStack from its start to Ctrl-C, as `windlass up` and `windlass attach` run it: what to send where, then a live table.
#pragma once

#include <vector>

#include "controller/api/load.h"
#include "controller/cli/console/console.h"
#include "controller/cli/local/local_stack.h"

namespace windlass::cli {

// The exit code. `objects`: what runs, for an example of a request. REQUIRES: the main thread.
[[nodiscard]] int run_stack(const LocalStackOptions& options, const std::vector<api::Object>& objects, Console& console);

}  // namespace windlass::cli
