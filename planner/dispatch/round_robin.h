// Round robin: the next chain in the list, after the last one chosen, that accepts requests, whether or not it has a free slot.
// reset() starts from the head of the list.
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
