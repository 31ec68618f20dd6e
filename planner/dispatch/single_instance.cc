// Sends every request to the strongest chain; see single_instance.h.
#include "planner/dispatch/single_instance.h"

namespace windlass::dispatch {

void SingleInstance::reset(std::span<const ChainState> chains) {
  strongest_ = Tournament<double, std::greater<>>(chains.size());
  for (std::size_t k = 0; k < chains.size(); ++k) update(k, chains[k]);
}

void SingleInstance::update(std::size_t index, const ChainState& state) {
  std::optional<double> weight;
  if (state.takes_requests()) weight = state.weight_or_rate();
  strongest_.set(index, weight);
}

}  // namespace windlass::dispatch
