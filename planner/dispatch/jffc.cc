// See jffc.h.
#include "planner/dispatch/jffc.h"

#include <algorithm>
#include <numeric>

namespace windlass::dispatch {

void Jffc::reset(std::span<const ChainState> chains) {
  by_rate_.resize(chains.size());
  std::iota(by_rate_.begin(), by_rate_.end(), std::size_t{0});
  std::stable_sort(by_rate_.begin(), by_rate_.end(),
                   [&](std::size_t a, std::size_t b) { return chains[a].service_rate_per_s > chains[b].service_rate_per_s; });
  place_of_.resize(chains.size());
  free_ = IndexSet(chains.size());
  for (std::size_t place = 0; place < by_rate_.size(); ++place) {
    place_of_[by_rate_[place]] = place;
    if (chains[by_rate_[place]].has_free_slot()) free_.insert(place);
  }
}

void Jffc::update(std::size_t index, const ChainState& state) {
  if (state.has_free_slot()) {
    free_.insert(place_of_[index]);
  } else {
    free_.erase(place_of_[index]);
  }
}

std::optional<std::size_t> Jffc::choose() {
  const auto place = free_.first();
  if (!place) return std::nullopt;
  return by_rate_[*place];
}

}  // namespace windlass::dispatch
