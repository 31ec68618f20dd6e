// Creates dispatch policies by name, for command lines, simulations and experiments.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <string_view>

#include "planner/base/result.h"
#include "planner/base/rng.h"
#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/huawei_policy.h"
#include "planner/dispatch/mixed_pool.h"
#include "planner/dispatch/packed_worker.h"

namespace windlass::dispatch {

enum class PolicyKind {
  kJffc,
  kJsq,
  kJiq,
  kSed,
  kSaJsq,
  kRandom,
  kRoundRobin,
  kPowerOfTwo,
  kAladdin,
  kBySize,
  kWeightedRoundRobin,
  kSingleInstance,
  kMemoryBased,
  kHuawei,
  kSplitwise
};

// Policies that choose among the chains of one role. The simulator's mixed pool is a setting of its own, so kSplitwise is none
// of them.
inline constexpr std::array kAllPolicies = {PolicyKind::kJffc,
                                            PolicyKind::kJsq,
                                            PolicyKind::kJiq,
                                            PolicyKind::kSed,
                                            PolicyKind::kSaJsq,
                                            PolicyKind::kRandom,
                                            PolicyKind::kRoundRobin,
                                            PolicyKind::kPowerOfTwo,
                                            PolicyKind::kAladdin,
                                            PolicyKind::kBySize,
                                            PolicyKind::kWeightedRoundRobin,
                                            PolicyKind::kSingleInstance,
                                            PolicyKind::kMemoryBased,
                                            PolicyKind::kHuawei};

// Policies for production, offered by the gateway. The others are baselines from papers.
inline constexpr std::array kGatewayPolicies = {PolicyKind::kJffc,       PolicyKind::kJsq,      PolicyKind::kSed,
                                                PolicyKind::kPowerOfTwo, PolicyKind::kAladdin,  PolicyKind::kBySize,
                                                PolicyKind::kHuawei,     PolicyKind::kSplitwise};

// "jffc", "jsq", "jiq", "sed", "sa-jsq", "random", "round-robin", "power-of-two", "aladdin", "by-size", "weighted-round-robin",
// "single-instance", "memory-based", "huawei", "splitwise"
const char* to_string(PolicyKind kind);
// True if a request waits in the central queue while no chain has room; other policies send it to a full chain.
[[nodiscard]] bool keeps_requests_back(PolicyKind kind);
// Error: "must be one of ... (got 'x')".
[[nodiscard]] Result<PolicyKind> policy_from_string(std::string_view name, std::span<const PolicyKind> among = kAllPolicies);

// Settings of the policies that need some.
struct PolicyRules {
  PackingRules packing;                                                  // Aladdin, by-size
  HuaweiRules huawei;                                                    // Huawei and memory-based, which sets memory_only
  std::int64_t mixed_pool_threshold_tokens = kMixedPoolThresholdTokens;  // Splitwise

  bool operator==(const PolicyRules&) const = default;
};

// Starts without chains. JIQ, random and power-of-two draw from `rng`; Huawei and memory-based draw from it if outputs are
// drawn.
[[nodiscard]] std::unique_ptr<DispatchPolicy> make_policy(PolicyKind kind, Rng rng, const PolicyRules& rules = {});

}  // namespace windlass::dispatch
