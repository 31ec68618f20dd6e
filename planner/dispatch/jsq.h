// Join the Shortest Queue (JSQ): the usual load balancer, here as the baseline that JFFC is measured against.
//
// Among the chains that take requests the one with the fewest in flight relative to its slots; it never answers "wait" while
// one chain is not draining, so requests queue at the chains (in_flight may exceed the capacity). Ties go to the chain listed
// first.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "planner/dispatch/dispatch_policy.h"

namespace windlass::dispatch {

class Jsq final : public DispatchPolicy {
 public:
  [[nodiscard]] std::optional<std::size_t> choose(std::span<const ChainState> chains) const override;
};

}  // namespace windlass::dispatch
