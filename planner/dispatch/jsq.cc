// JSQ's choice: one pass over the chains.
#include "planner/dispatch/jsq.h"

#include <cstdint>

namespace windlass::dispatch {

std::optional<std::size_t> Jsq::choose(std::span<const ChainState> chains) const {
  std::optional<std::size_t> best;
  for (std::size_t k = 0; k < chains.size(); ++k) {
    const ChainState& chain = chains[k];
    if (chain.draining || chain.capacity <= 0) continue;
    // in_flight / capacity < best's, multiplied out so that it stays exact.
    if (!best || static_cast<std::int64_t>(chain.in_flight) * chains[*best].capacity <
                     static_cast<std::int64_t>(chains[*best].in_flight) * chain.capacity) {
      best = k;
    }
  }
  return best;
}

}  // namespace windlass::dispatch
