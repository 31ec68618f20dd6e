// See hexgen_genetic.h.
#include "planner/strategies/hexgen2/hexgen_genetic.h"

#include <algorithm>
#include <utility>

#include "planner/strategies/hexgen2/hexgen2_refine.h"

namespace windlass::hetero {
namespace {

class Evolution {
 public:
  Evolution(StrategyTable& table, const GeneticOptions& options, Rng rng)
      : table_(table), options_(options), rng_(std::move(rng)) {}

  Evolved run(int groups, std::vector<Placement> first, const std::function<std::int64_t(Placement&)>& fitness) {
    Evolved best;
    std::vector<std::pair<std::int64_t, Placement>> population;
    const auto add = [&](Placement placement) {
      const std::int64_t value = fitness(placement);
      if (best.groups.empty() || value > best.fitness) best.fitness = value, best.groups = placement;
      population.emplace_back(value, std::move(placement));
    };
    for (Placement& placement : first) add(std::move(placement));
    while (static_cast<int>(population.size()) < options_.population) add(random_placement(table_, groups, rng_));
    for (std::int64_t idle = 0; idle < options_.idle; ++idle) {
      if (best.steps >= options_.max_steps || stop_requested(options_.stop)) {
        best.stopped = true;
        break;
      }
      ++best.steps;
      const auto draw = [&] {
        return static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(population.size()) - 1));
      };
      std::size_t parent = draw(), weakest = draw();
      for (int round = 1; round < options_.tournament; ++round) {
        const std::size_t rival = draw(), weak = draw();
        if (population[rival].first > population[parent].first) parent = rival;
        if (population[weak].first < population[weakest].first) weakest = weak;
      }
      Placement child = population[parent].second;
      for (std::int64_t change = rng_.integer(1, 3); change > 0; --change) mutate(child);
      const std::int64_t value = fitness(child);
      if (value > best.fitness) {
        best.fitness = value;
        best.groups = child;
        idle = -1;
      }
      if (value >= population[weakest].first) population[weakest] = {value, std::move(child)};
    }
    return best;
  }

 private:
  std::size_t any(const Placement& groups) {
    return static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(groups.size()) - 1));
  }

  static int gpus_of(const Composition& group) {
    int sum = 0;
    for (const NodeShare& share : group) sum += share.gpus;
    return sum;
  }

  void set(PlacedGroup& group, Composition gpus) { group = place(table_, std::move(gpus), group.prefill); }

  void merge(Placement& groups) {
    if (groups.size() < 2) return;
    const std::size_t into = any(groups), from = any(groups);
    if (into == from) return;
    Composition both = groups[into].gpus;
    for (const NodeShare& share : groups[from].gpus) add(both, share.node, share.gpus);
    set(groups[into], std::move(both));
    groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(from));
  }

  // A random part of a random group becomes a new group.
  void split(Placement& groups) {
    if (options_.max_groups > 0 && static_cast<int>(groups.size()) >= options_.max_groups) return;
    const std::size_t from = any(groups);
    Composition kept, gone;
    for (const NodeShare& share : groups[from].gpus) {
      const int out = static_cast<int>(rng_.integer(0, share.gpus));
      if (out > 0) gone.push_back({share.node, out});
      if (out < share.gpus) kept.push_back({share.node, share.gpus - out});
    }
    if (kept.empty() || gone.empty()) return;
    set(groups[from], std::move(kept));
    groups.push_back(place(table_, std::move(gone), rng_.integer(0, 1) == 0));
  }

  // Swaps one GPU for another, or moves one.
  void swap(Placement& groups, bool both_ways) {
    const std::size_t a = any(groups), b = any(groups);
    if (a == b || (!both_ways && gpus_of(groups[a].gpus) < 2)) return;
    Composition left = groups[a].gpus, right = groups[b].gpus;
    const int out = take(left);
    if (both_ways) add(left, take(right), 1);
    add(right, out, 1);
    set(groups[a], std::move(left));
    set(groups[b], std::move(right));
  }

  void mutate(Placement& groups) {
    switch (rng_.integer(0, options_.phases ? 3 : 2)) {
      case 0:
        if (options_.keep_groups) {
          const std::size_t count = groups.size();
          merge(groups);
          while (groups.size() < count) split(groups);
        } else if (rng_.integer(0, 1) == 0) {
          merge(groups);
        } else {
          split(groups);
        }
        break;
      case 1: swap(groups, true); break;
      case 2: swap(groups, false); break;
      default: {
        PlacedGroup& group = groups[any(groups)];
        group.prefill = !group.prefill;
        group.order = 0;
      }
    }
  }

  static void add(Composition& gpus, int node, int count) {
    const auto at =
        std::lower_bound(gpus.begin(), gpus.end(), node, [](const NodeShare& share, int key) { return share.node < key; });
    if (at != gpus.end() && at->node == node) {
      at->gpus += count;
    } else {
      gpus.insert(at, {node, count});
    }
  }

  // Removes a random GPU; returns its node. REQUIRES: not empty.
  int take(Composition& gpus) {
    std::int64_t draw = rng_.integer(0, gpus_of(gpus) - 1);
    std::size_t at = 0;
    while (draw >= gpus[at].gpus) draw -= gpus[at++].gpus;
    const int node = gpus[at].node;
    if (--gpus[at].gpus == 0) gpus.erase(gpus.begin() + static_cast<std::ptrdiff_t>(at));
    return node;
  }

  StrategyTable& table_;
  const GeneticOptions& options_;
  Rng rng_;
};

}  // namespace

Evolved evolve(StrategyTable& table, int groups, std::vector<Placement> first,
               const std::function<std::int64_t(Placement&)>& fitness, const GeneticOptions& options, Rng rng) {
  return Evolution(table, options, std::move(rng)).run(groups, std::move(first), fitness);
}

}  // namespace windlass::hetero
