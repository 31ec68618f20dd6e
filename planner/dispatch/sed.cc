// Chooses the chain with the smallest expected delay; see sed.h.
#include "planner/dispatch/sed.h"

namespace windlass::dispatch {

void Sed::reset(std::span<const ChainState> chains) {
  tournament_ = Tournament<double, std::less<>>(chains.size());
  for (std::size_t k = 0; k < chains.size(); ++k) update(k, chains[k]);
}

void Sed::update(std::size_t index, const ChainState& state) {
  std::optional<double> delay_s;
  if (state.takes_requests()) {
    delay_s = 1 / state.service_rate_per_s;
    if (!state.has_free_slot()) *delay_s *= (state.in_flight + 1.0) / state.capacity;
  }
  tournament_.set(index, delay_s);
}

}  // namespace windlass::dispatch
