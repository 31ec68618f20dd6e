// Chooses chains in turn; see round_robin.h.
#include "planner/dispatch/round_robin.h"

namespace windlass::dispatch {

void RoundRobin::reset(std::span<const ChainState> chains) {
  open_ = IndexSet(chains.size());
  next_ = 0;
  for (std::size_t k = 0; k < chains.size(); ++k) update(k, chains[k]);
}

void RoundRobin::update(std::size_t index, const ChainState& state) {
  if (state.takes_requests()) {
    open_.insert(index);
  } else {
    open_.erase(index);
  }
}

std::optional<std::size_t> RoundRobin::choose() {
  auto chosen = open_.first_from(next_);
  if (!chosen) chosen = open_.first();
  if (chosen) next_ = *chosen + 1;
  return chosen;
}

}  // namespace windlass::dispatch
