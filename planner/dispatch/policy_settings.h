// PolicySettings say which policy places the requests of one model, and with which parameters. Plain data: a plan chooses them,
// the simulator judges the plan with them, and the routing table brings them to the gateways. Both build the policy by
// make_policy() from rules_of(), so the gateway does what the plan was judged with.
#pragma once

#include <optional>

#include "planner/dispatch/policies.h"

namespace windlass::dispatch {

// Settings of the policies that place requests by their latency: Aladdin's and by-size.
struct Placement {
  double gamma = 0.5;             // Aladdin only
  double theta = 0.9;             // Aladdin only
  double ttft_s = 0, tpot_s = 0;  // objectives for packing; 0: those of the service
  bool rebalances = true;         // Aladdin only: Alg. 2

  bool operator==(const Placement&) const = default;
};

// Settings of Huawei's scheduler; see HuaweiRules.
struct HuaweiSettings {
  double theta = 2;
  double assumed_output_tokens = 0;

  bool operator==(const HuaweiSettings&) const = default;
};

struct PolicySettings {
  // Chooses a worker of the role by requests in flight. None: fewest pending tokens (JSQ as Splitwise counts), which only the
  // simulator has.
  std::optional<PolicyKind> policy;
  Placement placement = {};
  HuaweiSettings huawei = {};
  // Splitwise's mixed pool (mixed_pool.h): a worker whose queue is longer takes no request while another one can. None: no
  // mixed pool; for the policy `splitwise` kMixedPoolThresholdTokens.
  std::optional<std::int64_t> mixed_pool_threshold_tokens = {};

  bool operator==(const PolicySettings&) const = default;
};

// The gateway's policy if nothing else is chosen.
inline constexpr PolicyKind kDefaultPolicy = PolicyKind::kJffc;

// What a gateway does with these settings: a policy that it does not have becomes the default. The fewest pending tokens with a
// mixed pool stay, without a policy's name: gateways of earlier versions, which do not know `splitwise`, then use the default.
[[nodiscard]] PolicySettings at_gateway(const PolicySettings& settings);
// The policy that a gateway uses with these settings.
[[nodiscard]] PolicyKind gateway_policy(const PolicySettings& settings);

// The rules of a policy with these settings, for a service with these objectives (0 or infinite: none), among workers that do
// this part of a request.
[[nodiscard]] PolicyRules rules_of(const PolicySettings& settings, double ttft_s, double tpot_s, PackingPhase phase);

}  // namespace windlass::dispatch
