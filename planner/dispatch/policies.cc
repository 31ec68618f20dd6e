// Names and creates dispatch policies; see policies.h.
#include "planner/dispatch/policies.h"

#include <string>

#include <fmt/format.h>

#include "planner/dispatch/aladdin_policy.h"
#include "planner/dispatch/by_size.h"
#include "planner/dispatch/jffc.h"
#include "planner/dispatch/jiq.h"
#include "planner/dispatch/jsq.h"
#include "planner/dispatch/power_of_two.h"
#include "planner/dispatch/random_choice.h"
#include "planner/dispatch/round_robin.h"
#include "planner/dispatch/sa_jsq.h"
#include "planner/dispatch/sed.h"
#include "planner/dispatch/single_instance.h"
#include "planner/dispatch/splitwise_policy.h"
#include "planner/dispatch/weighted_round_robin.h"

namespace windlass::dispatch {

const char* to_string(PolicyKind kind) {
  switch (kind) {
    case PolicyKind::kJffc: return "jffc";
    case PolicyKind::kJsq: return "jsq";
    case PolicyKind::kJiq: return "jiq";
    case PolicyKind::kSed: return "sed";
    case PolicyKind::kSaJsq: return "sa-jsq";
    case PolicyKind::kRandom: return "random";
    case PolicyKind::kRoundRobin: return "round-robin";
    case PolicyKind::kPowerOfTwo: return "power-of-two";
    case PolicyKind::kAladdin: return "aladdin";
    case PolicyKind::kWeightedRoundRobin: return "weighted-round-robin";
    case PolicyKind::kSingleInstance: return "single-instance";
    case PolicyKind::kMemoryBased: return "memory-based";
    case PolicyKind::kHuawei: return "huawei";
    case PolicyKind::kBySize: return "by-size";
    case PolicyKind::kSplitwise: return "splitwise";
  }
  return "unknown";
}

bool keeps_requests_back(PolicyKind kind) { return kind == PolicyKind::kJffc || kind == PolicyKind::kAladdin; }

Result<PolicyKind> policy_from_string(std::string_view name, std::span<const PolicyKind> among) {
  std::string allowed;
  for (const PolicyKind kind : among) {
    if (name == to_string(kind)) return kind;
    allowed += fmt::format("{}{}", allowed.empty() ? "" : ", ", to_string(kind));
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("must be one of {} (got '{}')", allowed, name)};
}

std::unique_ptr<DispatchPolicy> make_policy(PolicyKind kind, Rng rng, const PolicyRules& rules) {
  switch (kind) {
    case PolicyKind::kJffc: return std::make_unique<Jffc>();
    case PolicyKind::kJsq: return std::make_unique<Jsq>();
    case PolicyKind::kJiq: return std::make_unique<Jiq>(rng);
    case PolicyKind::kSed: return std::make_unique<Sed>();
    case PolicyKind::kSaJsq: return std::make_unique<SaJsq>();
    case PolicyKind::kRandom: return std::make_unique<RandomChoice>(rng);
    case PolicyKind::kRoundRobin: return std::make_unique<RoundRobin>();
    case PolicyKind::kPowerOfTwo: return std::make_unique<PowerOfTwo>(rng);
    case PolicyKind::kAladdin: return std::make_unique<AladdinPolicy>(rules.packing);
    case PolicyKind::kBySize: return std::make_unique<BySize>(rules.packing);
    case PolicyKind::kWeightedRoundRobin: return std::make_unique<WeightedRoundRobin>();
    case PolicyKind::kSingleInstance: return std::make_unique<SingleInstance>();
    case PolicyKind::kMemoryBased: {
      HuaweiRules memory = rules.huawei;
      memory.memory_only = true;
      return std::make_unique<HuaweiPolicy>(memory, rng);
    }
    case PolicyKind::kHuawei: return std::make_unique<HuaweiPolicy>(rules.huawei, rng);
    case PolicyKind::kSplitwise: return std::make_unique<SplitwisePolicy>(rules.mixed_pool_threshold_tokens);
  }
  return nullptr;
}

}  // namespace windlass::dispatch
