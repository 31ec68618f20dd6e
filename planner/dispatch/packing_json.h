// Reads and writes the JSON that the routing table and plans share: PackingModel and roles. Pure.
#pragma once

#include <array>
#include <cmath>

#include "planner/base/json_table.h"
#include "planner/dispatch/packed_worker.h"
#include "planner/dispatch/routing_table.h"

namespace windlass::dispatch {

inline constexpr int kLargestCount = 1'000'000'000;

// A rate, a time or a number of tokens.
inline constexpr JsonLimit kAmount{[](double value) { return std::isfinite(value) && value >= 0; }, "a number of at least 0"};

constexpr auto json_values(JsonType<Role>) { return std::array{Role::kUnified, Role::kPrefill, Role::kDecode}; }

constexpr auto json_fields(JsonType<PackingModel>) {
  using T = PackingModel;
  const auto amount = [](const char* key, double T::*member) { return field(key, member).within(kAmount); };
  return json_object(amount("prefillTokenS", &T::prefill_token_s), amount("prefillS", &T::prefill_s),
                     amount("contextTokenS", &T::context_token_s), amount("decodeRequestS", &T::decode_request_s),
                     amount("decodeS", &T::decode_s), amount("kvCapacityTokens", &T::kv_capacity_tokens),
                     amount("kvRequestTokens", &T::kv_request_tokens),
                     field("mostRequests", &T::max_requests, 0, kLargestCount))
      .passing_over_unknown_keys();
}

}  // namespace windlass::dispatch
