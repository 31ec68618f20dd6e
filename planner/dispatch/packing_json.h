// Reads and writes the JSON that the routing table and plans share: PackingModel, PolicySettings and roles. Pure.
#pragma once

#include <array>
#include <cmath>

#include "planner/base/json_table.h"
#include "planner/dispatch/packed_worker.h"
#include "planner/dispatch/policy_settings.h"
#include "planner/dispatch/routing_table.h"

namespace windlass::dispatch {

inline constexpr int kLargestCount = 1'000'000'000;

// A rate, a time or a number of tokens.
inline constexpr JsonLimit kAmount{[](double value) { return std::isfinite(value) && value >= 0; }, "a number of at least 0"};

constexpr auto json_values(JsonType<Role>) { return std::array{Role::kUnified, Role::kPrefill, Role::kDecode}; }

constexpr auto json_fields(JsonType<PackingModel>) {
  using T = PackingModel;
  const auto amount = [](const char* key, double T::*member) { return field(key, member).within(kAmount); };
  const auto extra = [](const char* key, double T::*member) { return rare(key, member).within(kAmount); };
  return json_object(amount("prefillTokenS", &T::prefill_token_s), amount("prefillS", &T::prefill_s),
                     amount("contextTokenS", &T::context_token_s), amount("decodeRequestS", &T::decode_request_s),
                     amount("decodeS", &T::decode_s), amount("kvCapacityTokens", &T::kv_capacity_tokens),
                     amount("kvRequestTokens", &T::kv_request_tokens),
                     field("mostRequests", &T::max_requests, 0, kLargestCount), extra("prefillRequestS", &T::prefill_request_s),
                     extra("prefillLengthS", &T::prefill_length_s), extra("contextLengthS", &T::context_length_s))
      .passing_over_unknown_keys();
}

constexpr auto json_values(JsonType<PolicyKind>) { return kGatewayPolicies; }

// Aladdin's margins.
inline constexpr JsonLimit kShare{[](double value) { return value >= 0 && value <= 1; }, "a number from 0 to 1"};
inline constexpr JsonLimit kShareAbove0{[](double value) { return value > 0 && value <= 1; }, "a number above 0, at most 1"};

constexpr auto json_fields(JsonType<Placement>) {
  using T = Placement;
  return json_object(rare("gamma", &T::gamma).within(kShare), rare("theta", &T::theta).within(kShareAbove0),
                     rare("ttftS", &T::ttft_s).within(kAmount), rare("tpotS", &T::tpot_s).within(kAmount),
                     rare("rebalances", &T::rebalances))
      .passing_over_unknown_keys();
}

constexpr auto json_fields(JsonType<HuaweiSettings>) {
  using T = HuaweiSettings;
  return json_object(rare("theta", &T::theta).within(kAmount),
                     rare("assumedOutputTokens", &T::assumed_output_tokens).within(kAmount))
      .passing_over_unknown_keys();
}

constexpr auto json_fields(JsonType<PolicySettings>) {
  using T = PolicySettings;
  return json_object(field("policy", &T::policy), rare("placement", &T::placement), rare("huawei", &T::huawei),
                     rare("mixedPoolThresholdTokens", &T::mixed_pool_threshold_tokens, 0, kLargestCount))
      .passing_over_unknown_keys();
}

}  // namespace windlass::dispatch
