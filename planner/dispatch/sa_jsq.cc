// Joins the shortest queue, with ties broken by speed; see sa_jsq.h.
#include "planner/dispatch/sa_jsq.h"

namespace windlass::dispatch {

void SaJsq::reset(std::span<const ChainState> chains) {
  tournament_ = Tournament<Load, Lighter>(chains.size());
  for (std::size_t k = 0; k < chains.size(); ++k) update(k, chains[k]);
}

void SaJsq::update(std::size_t index, const ChainState& state) {
  std::optional<Load> load;
  if (state.takes_requests()) load = Load{state.in_flight, state.capacity, state.service_rate_per_s};
  tournament_.set(index, load);
}

}  // namespace windlass::dispatch
