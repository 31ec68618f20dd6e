// Chooses a random chain; see random_choice.h.
#include "planner/dispatch/random_choice.h"

namespace windlass::dispatch {

void RandomChoice::reset(std::span<const ChainState> chains) {
  open_ = RankedSet(chains.size());
  for (std::size_t k = 0; k < chains.size(); ++k) update(k, chains[k]);
}

std::optional<std::size_t> RandomChoice::choose() {
  if (open_.size() == 0) return std::nullopt;
  return open_.at(static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(open_.size()) - 1)));
}

}  // namespace windlass::dispatch
