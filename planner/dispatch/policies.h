// The dispatch policies by name: for command lines, simulations and experiments.
#pragma once

#include <array>
#include <memory>
#include <string_view>

#include "planner/base/result.h"
#include "planner/base/rng.h"
#include "planner/dispatch/dispatch_policy.h"

namespace windlass::dispatch {

enum class PolicyKind { kJffc, kJsq, kJiq, kSed, kSaJsq, kRandom, kRoundRobin };

inline constexpr std::array kAllPolicies = {PolicyKind::kJffc,  PolicyKind::kJsq,    PolicyKind::kJiq,       PolicyKind::kSed,
                                            PolicyKind::kSaJsq, PolicyKind::kRandom, PolicyKind::kRoundRobin};

const char* to_string(PolicyKind kind);  // "jffc", "jsq", "jiq", "sed", "sa-jsq", "random", "round-robin"
[[nodiscard]] Result<PolicyKind> policy_from_string(std::string_view name);  // error: "found 'x', allowed are ..."

// With no chains yet. JIQ and random draw from `rng`; the others ignore it.
[[nodiscard]] std::unique_ptr<DispatchPolicy> make_policy(PolicyKind kind, Rng rng);

}  // namespace windlass::dispatch
