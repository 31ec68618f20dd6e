// Turns settings into the rules of a policy; see policy_settings.h.
#include "planner/dispatch/policy_settings.h"

#include <algorithm>
#include <limits>

namespace windlass::dispatch {

PolicySettings at_gateway(const PolicySettings& settings) {
  const auto* const end = kGatewayPolicies.end();
  if (settings.policy && std::find(kGatewayPolicies.begin(), end, *settings.policy) != end) return settings;
  if (!settings.policy && settings.mixed_pool_threshold_tokens) {
    return {.policy = {}, .mixed_pool_threshold_tokens = settings.mixed_pool_threshold_tokens};
  }
  return {.policy = kDefaultPolicy};
}

PolicyKind gateway_policy(const PolicySettings& settings) {
  return settings.policy.value_or(settings.mixed_pool_threshold_tokens ? PolicyKind::kSplitwise : kDefaultPolicy);
}

PolicyRules rules_of(const PolicySettings& settings, double ttft_s, double tpot_s, PackingPhase phase) {
  const auto bound = [](double chosen_s, double service_s) {
    return chosen_s > 0 ? chosen_s : service_s > 0 ? service_s : std::numeric_limits<double>::infinity();
  };
  PolicyRules rules;
  rules.packing.ttft_s = bound(settings.placement.ttft_s, ttft_s);
  rules.packing.tpot_s = bound(settings.placement.tpot_s, tpot_s);
  rules.packing.gamma = settings.placement.gamma;
  rules.packing.theta = settings.placement.theta;
  rules.packing.rebalances = settings.placement.rebalances;
  rules.huawei.theta = settings.huawei.theta;
  rules.huawei.assumed_output_tokens = settings.huawei.assumed_output_tokens;
  rules.mixed_pool_threshold_tokens = settings.mixed_pool_threshold_tokens.value_or(kMixedPoolThresholdTokens);
  rules.packing.phase = rules.huawei.phase = phase;
  return rules;
}

}  // namespace windlass::dispatch
