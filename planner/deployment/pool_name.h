// The names of pools: workers of one accelerator with as many GPUs each. Pure.
//
// A name says what a worker is, never what it does: workers change their role while they run. Two pools of a service may have
// one name, so a pool is known by name and role.
#pragma once

#include <compare>
#include <string>

#include "planner/dispatch/role.h"

namespace windlass::planner {

struct PoolId {
  std::string name;
  dispatch::Role role = dispatch::Role::kUnified;

  auto operator<=>(const PoolId&) const = default;
};

// A DNS label of at most 30 characters that ends with `suffix`, for which a longer name of a class is cut.
[[nodiscard]] std::string class_label(const std::string& accelerator, const std::string& suffix);

// "h100-2": workers whose settings are the engine's own. Of others see pool_name(WorkerSpec) in deployment.h.
[[nodiscard]] std::string pool_name(const std::string& accelerator, int gpus);

// For people: "h100-2", "h100-2 (prefill)".
[[nodiscard]] std::string title(const PoolId& pool);

// Until 2026-11-28 the names of split services' pools ended with the role: "h100-2-prefill".
[[nodiscard]] std::string former_pool_name(const std::string& accelerator, int gpus, dispatch::Role role);

// A pool by a name that may be such a one; others are unified. Where the workers' accelerator and GPUs are known, they make the
// new name, because long names were cut earlier then.
[[nodiscard]] PoolId pool_of_name(const std::string& name, const std::string& accelerator = {}, int gpus = 0);

}  // namespace windlass::planner
