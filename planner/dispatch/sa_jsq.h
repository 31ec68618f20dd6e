// Speed-Aware Join the Shortest Queue (SA-JSQ, also Join the Fastest of the Shortest Queues): JSQ with ties broken by speed,
// then by position in the list. A baseline of Sun, He, Hou 2026, extended to chains with several slots: the queue is the number
// in flight relative to the slots. It never makes a request wait centrally while a chain accepts requests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/tournament.h"

namespace windlass::dispatch {

class SaJsq final : public DispatchPolicy {
 public:
  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override { return tournament_.best(); }

 private:
  struct Load {
    std::int64_t in_flight = 0;
    std::int64_t capacity = 1;
    double service_rate_per_s = 0;
  };
  struct Lighter {
    bool operator()(const Load& a, const Load& b) const {
      const std::int64_t mine = a.in_flight * b.capacity;
      const std::int64_t theirs = b.in_flight * a.capacity;
      return mine != theirs ? mine < theirs : a.service_rate_per_s > b.service_rate_per_s;
    }
  };

  Tournament<Load, Lighter> tournament_;
};

}  // namespace windlass::dispatch
