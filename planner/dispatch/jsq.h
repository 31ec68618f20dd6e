// Join the Shortest Queue (JSQ): the usual load balancer, here as the baseline that JFFC is measured against.
//
// Among the chains that take requests the one with the fewest in flight relative to its slots; it never answers "wait" while
// one chain takes requests, so requests queue at the chains (in_flight may exceed the capacity). Ties go to the chain listed
// first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/tournament.h"

namespace windlass::dispatch {

class Jsq final : public DispatchPolicy {
 public:
  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override { return tournament_.best(); }

 private:
  struct Load {
    std::int64_t in_flight = 0;
    std::int64_t capacity = 1;
  };
  struct Lighter {
    // in_flight / capacity, multiplied out so that it stays exact.
    bool operator()(const Load& a, const Load& b) const { return a.in_flight * b.capacity < b.in_flight * a.capacity; }
  };

  Tournament<Load, Lighter> tournament_;
};

}  // namespace windlass::dispatch
