// Makes and parses the names of pools. The workers of a pool have the same accelerator and number of GPUs. Pure.
//
// A name describes what a worker is and not its role, because workers change their role while they run. Two pools of a service
// may share a name, so a pool is identified by name and role.
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

// A DNS label of at most 30 characters that ends with `suffix`; a long class name is cut to fit.
[[nodiscard]] std::string class_label(const std::string& accelerator, const std::string& suffix);

// "h100-2": workers with the engine's default settings. For others see pool_name(WorkerSpec) in deployment.h.
[[nodiscard]] std::string pool_name(const std::string& accelerator, int gpus);

// For people: "h100-2", "h100-2 (prefill)".
[[nodiscard]] std::string title(const PoolId& pool);

// Until 2026-11-28 the pool names of split services ended with the role: "h100-2-prefill".
[[nodiscard]] std::string former_pool_name(const std::string& accelerator, int gpus, dispatch::Role role);

// Parses a pool name, including former names; others are unified. If the accelerator and number of GPUs are known, they give
// the new name, because long names used to be cut earlier.
[[nodiscard]] PoolId pool_of_name(const std::string& name, const std::string& accelerator = {}, int gpus = 0);

}  // namespace windlass::planner
