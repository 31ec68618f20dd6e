// Chooses the less loaded of two random chains; see power_of_two.h.
#include "planner/dispatch/power_of_two.h"

namespace windlass::dispatch {

void PowerOfTwo::reset(std::span<const ChainState> chains) {
  open_ = RankedSet(chains.size());
  chains_.assign(chains.begin(), chains.end());
  for (std::size_t k = 0; k < chains.size(); ++k) update(k, chains[k]);
}

void PowerOfTwo::update(std::size_t index, const ChainState& state) {
  chains_[index] = state;
  open_.set(index, state.takes_requests());
}

std::optional<std::size_t> PowerOfTwo::choose() {
  if (open_.size() == 0) return std::nullopt;
  const auto last = static_cast<std::int64_t>(open_.size()) - 1;
  const std::int64_t first = rng_.integer(0, last);
  if (last == 0) return open_.at(0);
  std::int64_t second = rng_.integer(0, last - 1);
  if (second >= first) ++second;
  const std::size_t a = open_.at(static_cast<std::size_t>(first)), b = open_.at(static_cast<std::size_t>(second));
  const auto load = [](const ChainState& chain, const ChainState& other) {
    return std::int64_t{chain.in_flight} * other.capacity;  // in_flight / capacity by cross-multiplication, which is exact
  };
  return load(chains_[b], chains_[a]) < load(chains_[a], chains_[b]) ? b : a;
}

}  // namespace windlass::dispatch
