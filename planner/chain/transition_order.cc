// Finds the order of the steps of a transition; see transition_order.h.
#include "planner/chain/transition_order.h"

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <limits>
#include <queue>
#include <tuple>

namespace windlass::chain {
namespace {

using Phase = TransitionState::Phase;
using Groups = std::vector<std::vector<std::size_t>>;  // changes that happen together, in order

constexpr std::size_t kMaxGentleChanges = 64;

double load_s(const Instance& instance, const ServerChange& change) {
  const int loaded = change.after.blocks - change.kept.blocks;
  return loaded * instance.block_gb / instance.servers[static_cast<std::size_t>(change.server)].load_gb_per_s;
}

// Orders the servers that drop before they load, one group after the other, while all others hold both of their ranges.
class ReplacementOrder {
 public:
  ReplacementOrder(const Instance& instance, const TransitionState& state, std::vector<std::size_t> changes)
      : instance_(instance), state_(state), changes_(std::move(changes)) {}

  struct Found {
    Groups groups;
    bool proved = true;
  };

  [[nodiscard]] Found find() {
    TransitionState state = state_;
    std::vector<std::size_t> left = changes_;
    Groups groups = greedy(state, left);
    if (left.empty()) return {groups, true};
    if (changes_.size() <= kMaxExhaustiveServers) return {exhaustive(), true};

    // Try several at the same time, the fastest first, and as few as let greedy do the rest without losing service again.
    const auto slower = [&](std::size_t a, std::size_t b) {
      return load_s(instance_, state.changes()[a]) < load_s(instance_, state.changes()[b]);
    };
    std::stable_sort(left.begin(), left.end(), slower);
    constexpr std::size_t kTrials = 16;
    for (std::size_t trial = 1; trial <= kTrials; ++trial) {
      const std::size_t some = (left.size() * trial + kTrials - 1) / kTrials;
      TransitionState then = state;
      for (std::size_t i = 0; i < some; ++i) then.set(left[i], Phase::kAfter);
      std::vector<std::size_t> rest(left.begin() + static_cast<std::ptrdiff_t>(some), left.end());
      const Groups following = greedy(then, rest);
      if (!rest.empty()) continue;
      groups.emplace_back(left.begin(), left.begin() + static_cast<std::ptrdiff_t>(some));
      groups.insert(groups.end(), following.begin(), following.end());
      break;
    }
    return {groups, !state_.full_chain()};
  }

 private:
  // Replaces as many as possible one by one without losing service; the rest stays in `left`.
  static Groups greedy(TransitionState& state, std::vector<std::size_t>& left) {
    Groups groups;
    while (!left.empty()) {
      std::size_t best = left.size();
      int most = -1;
      for (std::size_t i = 0; i < left.size(); ++i) {
        state.set(left[i], Phase::kReplacing);
        if (state.full_chain()) {
          state.set(left[i], Phase::kAfter);
          if (state.blocks_on_two() > most) {
            most = state.blocks_on_two();
            best = i;
          }
        }
        state.set(left[i], Phase::kBefore);
      }
      if (best == left.size()) break;
      state.set(left[best], Phase::kAfter);
      groups.push_back({left[best]});
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(best));
    }
    return groups;
  }

  // Stretches of the model between ends of ranges, each covered completely or not at all. Omits those that other servers cover.
  using Cover = std::bitset<4 * kMaxExhaustiveServers + 2>;

  // What each server covers before, during and after its change, and how long it loads; by its place in changes_.
  struct Servers {
    explicit Servers(std::size_t count) : before(count), kept(count), after(count) {}

    // How long the model is incomplete while these change together, if `done` have changed and the others have not.
    [[nodiscard]] double lost_s(std::uint32_t done, const std::vector<std::size_t>& together) const {
      Cover cover;
      std::uint32_t mask = 0;
      for (const std::size_t k : together) mask |= std::uint32_t{1} << k;
      for (std::size_t k = 0; k < before.size(); ++k) cover |= mask >> k & 1 ? kept[k] : done >> k & 1 ? after[k] : before[k];
      if (cover == all) return 0.0;
      for (const std::size_t k : together) {
        cover |= after[k];
        if (cover == all) return seconds[k];
      }
      return seconds[together.back()];
    }

    std::vector<Cover> before, kept, after;
    Cover all;
    std::vector<double> seconds;
  };

  // Dijkstra over the subsets of changed servers. Each step adds one server, or the fastest few together.
  [[nodiscard]] Groups exhaustive() const {
    const std::size_t count = changes_.size();
    const Servers servers = collect();
    std::vector<std::size_t> quickest(count);
    for (std::size_t i = 0; i < count; ++i) quickest[i] = i;
    std::stable_sort(quickest.begin(), quickest.end(),
                     [&](std::size_t a, std::size_t b) { return servers.seconds[a] < servers.seconds[b]; });

    const std::uint32_t goal = (std::uint32_t{1} << count) - 1;
    std::vector<double> lost_s(std::size_t{goal} + 1, std::numeric_limits<double>::infinity());
    std::vector<std::uint32_t> from(std::size_t{goal} + 1, 0);
    std::vector<char> final(std::size_t{goal} + 1, 0);
    using Entry = std::tuple<double, std::uint32_t>;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> open;
    lost_s[0] = 0;
    open.push({0, 0});
    const auto reach = [&](std::uint32_t at, std::uint32_t next, double more_s) {
      const double total_s = lost_s[at] + more_s;
      if (total_s >= lost_s[next]) return;
      lost_s[next] = total_s;
      from[next] = at;
      open.push({total_s, next});
    };
    while (!open.empty()) {
      const std::uint32_t at = std::get<1>(open.top());
      open.pop();
      if (at == goal) break;
      if (final[at]) continue;
      final[at] = 1;
      // The fastest few: first covered without their old blocks, then with the new ones as they are loaded.
      std::vector<std::size_t> group;
      for (const std::size_t i : quickest) {
        if (at >> i & 1) continue;
        reach(at, at | std::uint32_t{1} << i, servers.lost_s(at, {i}));
        group.push_back(i);
        if (group.size() == 1) continue;
        std::uint32_t next = at;
        for (const std::size_t k : group) next |= std::uint32_t{1} << k;
        reach(at, next, servers.lost_s(at, group));
      }
    }
    return way_to(goal, from);
  }

  // Follows the path back: each subset of servers, and the one that it was reached from.
  [[nodiscard]] Groups way_to(std::uint32_t goal, const std::vector<std::uint32_t>& from) const {
    Groups groups;
    for (std::uint32_t at = goal; at != 0; at = from[at]) {
      std::vector<std::size_t>& group = groups.emplace_back();
      for (std::size_t k = 0; k < changes_.size(); ++k) {
        if ((at & ~from[at]) >> k & 1) group.push_back(changes_[k]);
      }
    }
    std::reverse(groups.begin(), groups.end());
    return groups;
  }

  [[nodiscard]] Servers collect() const {
    Servers servers(changes_.size());
    for (const std::size_t i : changes_) servers.seconds.push_back(load_s(instance_, state_.changes()[i]));
    std::vector<int> begins{1, instance_.blocks + 1};
    for (const std::size_t i : changes_) {
      for (const BlockRange& range : {state_.changes()[i].before, state_.changes()[i].after}) {
        begins.insert(begins.end(), {range.first, range.last() + 1});
      }
    }
    std::sort(begins.begin(), begins.end());
    begins.erase(std::unique(begins.begin(), begins.end()), begins.end());
    for (std::size_t bit = 0; bit + 1 < begins.size(); ++bit) {
      for (int block = begins[bit]; block < begins[bit + 1]; ++block) {
        int others = state_.servers_with(block);
        for (const std::size_t i : changes_) others -= state_.changes()[i].before.holds(block);
        if (others == 0) servers.all[bit] = true;
      }
      if (!servers.all[bit]) continue;
      for (std::size_t k = 0; k < changes_.size(); ++k) {
        const ServerChange& change = state_.changes()[changes_[k]];
        servers.before[k][bit] = change.before.holds(begins[bit]);
        servers.kept[k][bit] = change.kept.holds(begins[bit]);
        servers.after[k][bit] = change.after.holds(begins[bit]);
      }
    }
    return servers;
  }

  const Instance& instance_;
  const TransitionState& state_;  // with all other servers at both ranges
  std::vector<std::size_t> changes_;
};

class OrderBuilder {
 public:
  OrderBuilder(const Instance& instance, const Placement& before, const Placement& after)
      : instance_(instance), state_(instance, before, changes_between(instance, before, after)) {
    std::vector<std::size_t> replacements;
    TransitionState loaded = state_;
    for (std::size_t i = 0; i < changes().size(); ++i) {
      if (!changes()[i].loads_first) {
        replacements.push_back(i);
        continue;
      }
      if (!loads(i).empty()) loads_.push_back(i);
      if (!drops(i).empty()) drops_.push_back(i);
      if (!loads(i).empty()) loaded.set(i, Phase::kBoth);
    }
    auto found = ReplacementOrder(instance, loaded, std::move(replacements)).find();
    replacements_ = std::move(found.groups);
    proved_ = found.proved;
  }

  [[nodiscard]] std::vector<TransitionOrder> orders() const {
    std::vector<TransitionOrder> orders;
    if (changes().empty()) return orders;
    orders.push_back(few_waves());
    if (changes().size() <= kMaxGentleChanges) orders.push_back(one_by_one());
    if (orders.front().interrupted_s > 0) orders.push_back(all_at_once());
    return orders;
  }

 private:
  [[nodiscard]] const std::vector<ServerChange>& changes() const { return state_.changes(); }
  [[nodiscard]] std::vector<BlockRange> loads(std::size_t i) const { return without(changes()[i].after, changes()[i].before); }
  [[nodiscard]] std::vector<BlockRange> drops(std::size_t i) const { return without(changes()[i].before, changes()[i].after); }

  void add_load(std::size_t i, TransitionWave& wave) const {
    const bool drops_first = !changes()[i].loads_first;
    wave.steps.push_back(
        {changes()[i].server, drops_first ? drops(i) : std::vector<BlockRange>{}, loads(i), load_s(instance_, changes()[i])});
  }

  // All loads in the first wave, and every group of replacements as early as possible without losing service.
  [[nodiscard]] TransitionOrder few_waves() const {
    std::vector<TransitionWave> waves(1);
    for (const std::size_t i : loads_) add_load(i, waves.back());
    TransitionState state = state_;
    double lost_s = TransitionState(state).run(waves.back());
    for (const auto& group : replacements_) {
      TransitionWave together = waves.back();
      TransitionWave alone;
      for (const std::size_t i : group) {
        add_load(i, together);
        add_load(i, alone);
      }
      const double together_s = TransitionState(state).run(together);
      if (together_s <= lost_s) {
        waves.back() = std::move(together);
        lost_s = together_s;
        continue;
      }
      state.run(waves.back());
      lost_s = TransitionState(state).run(alone);
      waves.push_back(std::move(alone));
    }
    return finished(std::move(waves));
  }

  [[nodiscard]] TransitionOrder one_by_one() const {
    // Servers with nothing to drop come first, since they only help; then the fastest.
    std::vector<std::size_t> order = loads_;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return std::tuple(!drops(a).empty(), load_s(instance_, changes()[a])) <
             std::tuple(!drops(b).empty(), load_s(instance_, changes()[b]));
    });
    std::vector<TransitionWave> waves;
    for (const std::size_t i : order) add_load(i, waves.emplace_back());
    for (const auto& group : replacements_) {
      TransitionWave& wave = waves.emplace_back();
      for (const std::size_t i : group) add_load(i, wave);
    }
    return finished(std::move(waves));
  }

  [[nodiscard]] TransitionOrder all_at_once() const {
    std::vector<TransitionWave> waves(1);
    for (std::size_t i = 0; i < changes().size(); ++i) {
      if (!loads(i).empty()) add_load(i, waves.back());
    }
    return finished(std::move(waves));
  }

  [[nodiscard]] double lost_s(const std::vector<TransitionWave>& waves) const {
    TransitionState state = state_;
    double lost_s = 0;
    for (const TransitionWave& wave : waves) lost_s += state.run(wave);
    return lost_s;
  }

  // Adds the drops of the servers that loaded first, each as early as possible without losing service, and fills the waves'
  // figures.
  [[nodiscard]] TransitionOrder finished(std::vector<TransitionWave> waves) const {
    waves.emplace_back();
    const auto drop = [&](std::size_t i) { return TransitionStep{changes()[i].server, drops(i), {}, 0}; };
    for (const std::size_t i : drops_) waves.back().steps.push_back(drop(i));
    const double least_s = lost_s(waves);
    for (const std::size_t i : drops_) {
      const auto is_its = [&](const TransitionStep& step) { return step.server == changes()[i].server; };
      std::size_t earliest = 0;
      for (std::size_t w = 0; w + 1 < waves.size(); ++w) {
        if (std::any_of(waves[w].steps.begin(), waves[w].steps.end(), is_its)) earliest = w + 1;
      }
      for (std::size_t w = earliest; w + 1 < waves.size(); ++w) {
        std::erase_if(waves.back().steps, is_its);
        waves[w].steps.push_back(drop(i));
        if (lost_s(waves) <= least_s) break;
        waves[w].steps.pop_back();
        waves.back().steps.push_back(drop(i));
      }
    }
    std::erase_if(waves, [](const TransitionWave& wave) { return wave.steps.empty(); });

    TransitionOrder order{std::move(waves), 0, proved_};
    TransitionState state = state_;
    for (TransitionWave& wave : order.waves) {
      std::sort(wave.steps.begin(), wave.steps.end(), [](const auto& a, const auto& b) { return a.server < b.server; });
      for (const TransitionStep& step : wave.steps) wave.seconds = std::max(wave.seconds, step.seconds);
      wave.interrupted_s = state.run(wave);
      order.interrupted_s += wave.interrupted_s;
    }
    return order;
  }

  const Instance& instance_;
  TransitionState state_;
  std::vector<std::size_t> loads_;  // changes that load first
  std::vector<std::size_t> drops_;  // of these, those that drop, and those that only drop
  Groups replacements_;
  bool proved_ = true;
};

}  // namespace

std::vector<TransitionOrder> transition_orders(const Instance& instance, const Placement& before, const Placement& after) {
  return OrderBuilder(instance, before, after).orders();
}

}  // namespace windlass::chain
