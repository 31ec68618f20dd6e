// Chooses chains in proportion to their weights; see weighted_round_robin.h.
#include "planner/dispatch/weighted_round_robin.h"

namespace windlass::dispatch {

void WeightedRoundRobin::reset(std::span<const ChainState> chains) {
  chains_.assign(chains.size(), {});
  due_ = Tournament<double, std::less<>>(chains.size());
  now_ = 0;
  for (std::size_t k = 0; k < chains.size(); ++k) update(k, chains[k]);
}

void WeightedRoundRobin::update(std::size_t index, const ChainState& state) {
  Chain& chain = chains_[index];
  const bool was_open = chain.open;
  chain.open = state.takes_requests();
  if (!chain.open) {
    due_.set(index, std::nullopt);
    return;
  }
  chain.stride = 1 / state.weight_or_rate();
  if (was_open) return;
  chain.due = now_ + chain.stride;
  due_.set(index, chain.due);
}

std::optional<std::size_t> WeightedRoundRobin::choose() {
  const auto chosen = due_.best();
  if (!chosen) return std::nullopt;
  Chain& chain = chains_[*chosen];
  now_ = chain.due;
  chain.due += chain.stride;
  due_.set(*chosen, chain.due);
  return chosen;
}

}  // namespace windlass::dispatch
