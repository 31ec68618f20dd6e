// Joins the shortest queue; see jsq.h.
#include "planner/dispatch/jsq.h"

namespace windlass::dispatch {

void Jsq::reset(std::span<const ChainState> chains) {
  tournament_ = Tournament<Load, Lighter>(chains.size());
  for (std::size_t k = 0; k < chains.size(); ++k) update(k, chains[k]);
}

void Jsq::update(std::size_t index, const ChainState& state) {
  std::optional<Load> load;
  if (state.takes_requests()) load = Load{state.in_flight, state.capacity};
  tournament_.set(index, load);
}

}  // namespace windlass::dispatch
