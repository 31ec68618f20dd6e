// The name of a pool: workers of one accelerator with as many GPUs each. Pure.
#pragma once

#include <string>

#include "planner/dispatch/routing_table.h"

namespace windlass::planner {

// "h100-2", "h100-2-prefill": a DNS label of at most 30 characters.
[[nodiscard]] std::string pool_name(const std::string& accelerator, int gpus, dispatch::Role role = dispatch::Role::kUnified);

}  // namespace windlass::planner
