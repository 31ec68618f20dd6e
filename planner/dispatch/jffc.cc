// JFFC's choice: one pass over the chains.
#include "planner/dispatch/jffc.h"

namespace windlass::dispatch {

std::optional<std::size_t> Jffc::choose(std::span<const ChainState> chains) const {
  std::optional<std::size_t> best;
  for (std::size_t k = 0; k < chains.size(); ++k) {
    if (!chains[k].has_free_slot()) continue;
    if (!best || chains[k].service_rate_per_s > chains[*best].service_rate_per_s) best = k;
  }
  return best;
}

}  // namespace windlass::dispatch
