// Joins the fastest free chain; see jffc.h.
#include "planner/dispatch/jffc.h"

namespace windlass::dispatch {

void Jffc::reset(std::span<const ChainState> chains) {
  free_ = Tournament<Chain, FasterOrEmptier>(chains.size());
  for (std::size_t index = 0; index < chains.size(); ++index) update(index, chains[index]);
}

void Jffc::update(std::size_t index, const ChainState& state) {
  if (state.has_free_slot()) {
    free_.set(index, Chain{state.service_rate_per_s, state.in_flight, state.capacity});
  } else {
    free_.set(index, std::nullopt);
  }
}

}  // namespace windlass::dispatch
