// Join the Shortest Queue (JSQ): the usual load balancer, the baseline for JFFC.
//
// It chooses the chain with the fewest requests in flight relative to its slots, among those that accept requests. It never
// makes a request wait centrally while a chain accepts requests, so requests queue at the chains (in_flight may exceed the
// capacity). Ties go to the chain listed first.
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
    // Compares in_flight / capacity by cross-multiplication, which is exact.
    bool operator()(const Load& a, const Load& b) const { return a.in_flight * b.capacity < b.in_flight * a.capacity; }
  };

  Tournament<Load, Lighter> tournament_;
};

}  // namespace windlass::dispatch
