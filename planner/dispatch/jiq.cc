// Joins a random idle chain; see jiq.h.
#include "planner/dispatch/jiq.h"

namespace windlass::dispatch {

void Jiq::reset(std::span<const ChainState> chains) {
  free_ = RankedSet(chains.size());
  open_ = RankedSet(chains.size());
  for (std::size_t k = 0; k < chains.size(); ++k) update(k, chains[k]);
}

void Jiq::update(std::size_t index, const ChainState& state) {
  free_.set(index, state.has_free_slot());
  open_.set(index, state.takes_requests());
}

std::optional<std::size_t> Jiq::choose() {
  const RankedSet& from = free_.size() > 0 ? free_ : open_;
  if (from.size() == 0) return std::nullopt;
  return from.at(static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(from.size()) - 1)));
}

}  // namespace windlass::dispatch
