// Executes the steps of a transition block by block, for tests of recomposition. It shares no code with the planner: sets of
// blocks per server, moments in time, memory and coverage.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "planner/chain/transition_order.h"

namespace windlass::chain {

using Blocks = std::set<int>;

inline Blocks blocks_of(const BlockRange& range) {
  Blocks blocks;
  for (int block = range.first; block < range.first + range.blocks; ++block) blocks.insert(block);
  return blocks;
}

inline Blocks united(Blocks a, const Blocks& b) {
  a.insert(b.begin(), b.end());
  return a;
}

struct Execution {
  std::string mistake;  // the first broken rule; empty: none
  double interrupted_s = 0;
  double seconds = 0;
};

// Executes the waves from `before` and compares the final blocks of the servers with `after`.
inline Execution execute(const Instance& instance, const Placement& before, const Placement& after,
                         const std::vector<TransitionWave>& waves) {
  Execution execution;
  std::vector<Blocks> held;
  for (const BlockRange& range : before) held.push_back(blocks_of(range));
  const auto fail = [&](std::string what) {
    if (execution.mistake.empty()) execution.mistake = std::move(what);
  };
  const auto covered = [&] {
    Blocks all;
    for (const Blocks& blocks : held) all.insert(blocks.begin(), blocks.end());
    return static_cast<int>(all.size()) == instance.blocks;
  };
  for (const TransitionWave& wave : waves) {
    if (wave.steps.empty()) fail("a wave without steps");
    std::map<double, std::vector<std::pair<std::size_t, Blocks>>> arrivals;  // by the time at which they are loaded
    std::set<int> servers;
    double longest_s = 0;
    for (const TransitionStep& step : wave.steps) {
      const auto j = static_cast<std::size_t>(step.server);
      if (!servers.insert(step.server).second) fail(fmt::format("server {} twice in a wave", j));
      for (const BlockRange& range : step.drops) {
        for (const int block : blocks_of(range)) {
          if (held[j].erase(block) == 0) fail(fmt::format("server {} drops block {}, which it does not hold", j, block));
          if (after[j].holds(block)) fail(fmt::format("server {} drops block {}, which it is to keep", j, block));
        }
      }
      Blocks loads;
      for (const BlockRange& range : step.loads) loads = united(std::move(loads), blocks_of(range));
      for (const int block : loads) {
        if (held[j].contains(block)) fail(fmt::format("server {} loads block {}, which it holds", j, block));
        if (!after[j].holds(block)) fail(fmt::format("server {} loads block {}, which it does not need", j, block));
      }
      const double room_gb = static_cast<double>(held[j].size() + loads.size()) * instance.block_gb;
      if (room_gb > instance.servers[j].memory_gb) fail(fmt::format("server {} needs {} GB", j, room_gb));
      const double load_s = static_cast<double>(loads.size()) * instance.block_gb / instance.servers[j].load_gb_per_s;
      if (std::abs(load_s - step.seconds) > 1e-9)
        fail(fmt::format("server {} loads for {} s, not {}", j, load_s, step.seconds));
      longest_s = std::max(longest_s, step.seconds);
      if (!loads.empty()) arrivals[step.seconds].push_back({j, loads});
    }
    if (longest_s != wave.seconds) fail("a wave that is not as long as its longest step");
    double now_s = 0, interrupted_s = 0;
    for (const auto& [at_s, loaded] : arrivals) {
      if (!covered()) interrupted_s += at_s - now_s;
      now_s = at_s;
      for (const auto& [j, blocks] : loaded) held[j] = united(std::move(held[j]), blocks);
    }
    if (std::abs(interrupted_s - wave.interrupted_s) > 1e-9) {
      fail(fmt::format("a wave interrupted for {} s, not {}", interrupted_s, wave.interrupted_s));
    }
    execution.interrupted_s += interrupted_s;
    execution.seconds += wave.seconds;
  }
  for (std::size_t j = 0; j < held.size(); ++j) {
    if (held[j] != blocks_of(after[j])) fail(fmt::format("server {} does not hold its new range", j));
  }
  return execution;
}

// Whether some order of single actions keeps every block on some server. A server with room for both ranges and a request's
// caches loads and drops separately; any other drops, then loads. Tries every state.
inline bool some_order_serves(const Instance& instance, const Placement& before, const Placement& after) {
  struct Mover {
    Blocks before, after, kept, both;
    bool loads_first;
  };
  std::vector<Mover> movers;
  Blocks others;
  for (std::size_t j = 0; j < before.size(); ++j) {
    Mover mover{blocks_of(before[j]), blocks_of(after[j]), {}, {}, false};
    if (mover.before == mover.after) {
      others = united(std::move(others), mover.before);
      continue;
    }
    for (const int block : mover.before) {
      if (mover.after.contains(block)) mover.kept.insert(block);
    }
    mover.both = united(mover.before, mover.after);
    const double size = static_cast<double>(mover.both.size());
    const double slots = std::floor((instance.servers[j].memory_gb - instance.block_gb * size) / instance.cache_gb);
    mover.loads_first = mover.both == mover.before || mover.both == mover.after || slots >= size;
    movers.push_back(std::move(mover));
  }
  // Per moving server: 0 old, 1 both, 2 new.
  const auto serves = [&](const std::vector<int>& state, std::size_t replacing) {
    Blocks all = others;
    for (std::size_t m = 0; m < movers.size(); ++m) {
      const Mover& mover = movers[m];
      all = united(std::move(all), m == replacing  ? mover.kept
                                   : state[m] == 0 ? mover.before
                                   : state[m] == 1 ? mover.both
                                                   : mover.after);
    }
    return static_cast<int>(all.size()) == instance.blocks;
  };
  const std::size_t nobody = movers.size();
  std::set<std::vector<int>> seen;
  std::vector<std::vector<int>> open{std::vector<int>(movers.size(), 0)};
  if (!serves(open.back(), nobody)) return false;
  while (!open.empty()) {
    const std::vector<int> state = open.back();
    open.pop_back();
    if (!seen.insert(state).second) continue;
    if (std::all_of(state.begin(), state.end(), [](int phase) { return phase == 2; })) return true;
    for (std::size_t m = 0; m < movers.size(); ++m) {
      std::vector<int> next = state;
      if (state[m] == 2) continue;
      if (movers[m].loads_first) {
        ++next[m];
        if (serves(next, nobody)) open.push_back(next);
      } else {
        next[m] = 2;
        if (serves(state, m) && serves(next, nobody)) open.push_back(next);
      }
    }
  }
  return false;
}

}  // namespace windlass::chain
