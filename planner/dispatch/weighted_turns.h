// WeightedTurns is a smooth weighted round robin: places take turns in proportion to their weights, and the turns of each place
// are spread out instead of coming in bursts.
//
// In each turn every open place earns its weight. The place that has earned most takes the turn, and pays the sum of the
// weights of all open places. Closed places keep what they have earned. HexGen-2 (Section 3.3) sends requests to pairs of
// prefill and decode groups "proportional to these flow values ... without creating bursts". Not thread-safe; pure.
#pragma once

#include <cassert>
#include <cstddef>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

namespace windlass::dispatch {

class WeightedTurns {
 public:
  // REQUIRES: weights > 0.
  explicit WeightedTurns(std::vector<double> weights) : WeightedTurns(std::move(weights), {}) {}
  // `earned`: values of earned() to continue from, even with other places or weights; none: nothing yet.
  WeightedTurns(std::vector<double> weights, std::vector<double> earned)
      : weights_(std::move(weights)), earned_(std::move(earned)) {
    for (const double weight : weights_) assert(weight > 0);
    earned_.resize(weights_.size(), 0);
    const double all = together();
    for (double& each : earned_) each *= all;
  }

  // The next place among those that are open; none if none is. On a tie the first.
  template <class Open>
  [[nodiscard]] std::optional<std::size_t> next(Open open) {
    std::optional<std::size_t> best;
    double together = 0;
    for (std::size_t i = 0; i < weights_.size(); ++i) {
      if (!open(i)) continue;
      earned_[i] += weights_[i];
      together += weights_[i];
      if (!best || earned_[i] > earned_[*best]) best = i;
    }
    if (best) earned_[*best] -= together;
    return best;
  }

  // By place, in turns: how far it is behind its share.
  [[nodiscard]] std::vector<double> earned() const {
    std::vector<double> turns = earned_;
    const double all = together();
    for (double& each : turns) each /= all;
    return turns;
  }

 private:
  [[nodiscard]] double together() const { return std::accumulate(weights_.begin(), weights_.end(), 0.0); }

  std::vector<double> weights_;
  std::vector<double> earned_;  // turns do not change the sum
};

}  // namespace windlass::dispatch
