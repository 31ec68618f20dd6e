// Round robin: the next chain after the last one chosen, in the order of the list, that takes requests, whether or not it has a
// free slot. A reset() starts at the head of the list again.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

#include "planner/dispatch/dispatch_policy.h"
#include "planner/dispatch/index_set.h"

namespace windlass::dispatch {

class RoundRobin final : public DispatchPolicy {
 public:
  void reset(std::span<const ChainState> chains) override;
  void update(std::size_t index, const ChainState& state) override;
  [[nodiscard]] std::optional<std::size_t> choose() override;

 private:
  IndexSet open_;         // chains that take requests
  std::size_t next_ = 0;  // where the search begins
};

}  // namespace windlass::dispatch
