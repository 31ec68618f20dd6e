// Reassigns block ranges to load less; see fewest_loads.h.
#include "planner/chain/fewest_loads.h"

#include <algorithm>
#include <cassert>
#include <cstdint>
#include <limits>
#include <numeric>
#include <tuple>

namespace windlass::chain {
namespace {

constexpr int kMaxRounds = 4;
constexpr std::size_t kMaxPermuted = 12;   // longest chain for which every order of servers is considered
constexpr std::size_t kMaxAssigned = 400;  // for more identical servers, assign by order of ranges, which is not optimal
constexpr std::size_t kMaxSeparate = 64;   // chains that are reordered one by one if reordering all together serves worse

int loaded(const BlockRange& before, const BlockRange& after) {
  const int common = std::min(before.last(), after.last()) - std::max(before.first, after.first) + 1;
  return after.blocks - std::max(0, common);
}

struct Arrangement {
  Placement placement;
  std::vector<std::vector<int>> chains;
};

// The assignment with the least total cost (Hungarian algorithm with potentials, O(n^3)). Returns the column of every row.
std::vector<std::size_t> assign(const std::vector<std::vector<int>>& cost) {
  const std::size_t n = cost.size();
  std::vector<long> row_potential(n + 1, 0), column_potential(n + 1, 0);
  std::vector<std::size_t> row_of(n + 1, 0);  // by column, from 1; column 0 holds the row being placed
  for (std::size_t row = 1; row <= n; ++row) {
    std::vector<long> slack(n + 1, std::numeric_limits<long>::max());
    std::vector<std::size_t> came_from(n + 1, 0);
    std::vector<char> used(n + 1, 0);
    std::size_t column = 0;
    row_of[0] = row;
    do {
      used[column] = 1;
      const std::size_t here = row_of[column];
      long step = std::numeric_limits<long>::max();
      std::size_t next = 0;
      for (std::size_t c = 1; c <= n; ++c) {
        if (used[c]) continue;
        const long reduced = cost[here - 1][c - 1] - row_potential[here] - column_potential[c];
        if (reduced < slack[c]) {
          slack[c] = reduced;
          came_from[c] = column;
        }
        if (slack[c] < step) {
          step = slack[c];
          next = c;
        }
      }
      for (std::size_t c = 0; c <= n; ++c) {
        if (used[c]) {
          row_potential[row_of[c]] += step;
          column_potential[c] -= step;
        } else if (c > 0) {
          slack[c] -= step;
        }
      }
      column = next;
    } while (row_of[column] != 0);
    while (column != 0) {
      row_of[column] = row_of[came_from[column]];
      column = came_from[column];
    }
  }
  std::vector<std::size_t> column_of(n);
  for (std::size_t c = 1; c <= n; ++c) column_of[row_of[c] - 1] = c - 1;
  return column_of;
}

bool alike(const Server& a, const Server& b) {
  return a.memory_gb == b.memory_gb && a.communication_s == b.communication_s && a.block_s == b.block_s &&
         a.token_times == b.token_times;
}

// Groups of identical servers.
std::vector<std::vector<int>> kinds(const Instance& instance) {
  std::vector<int> order(instance.servers.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](int j) -> const Server& { return instance.servers[static_cast<std::size_t>(j)]; };
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return std::tuple(at(a).memory_gb, at(a).communication_s, at(a).block_s) <
           std::tuple(at(b).memory_gb, at(b).communication_s, at(b).block_s);
  });
  std::vector<std::vector<int>> kinds;
  for (const int j : order) {
    if (kinds.empty() || !alike(at(kinds.back().front()), at(j))) kinds.emplace_back();
    kinds.back().push_back(j);
  }
  return kinds;
}

// Lets identical servers exchange their ranges, and with them their places in the chains.
Arrangement exchange(const Instance& instance, const Placement& held, const Arrangement& old) {
  Arrangement result = old;
  std::vector<int> successor(held.size());  // the server that takes the range of this one
  std::iota(successor.begin(), successor.end(), 0);
  for (const std::vector<int>& kind : kinds(instance)) {
    // Keep a range that is already held: by the triangle inequality of loads no other assignment is better.
    std::vector<int> takers, givers;
    const auto by_range = [](const Placement& placement) {
      return [&placement](int a, int b) {
        const BlockRange& x = placement[static_cast<std::size_t>(a)];
        const BlockRange& y = placement[static_cast<std::size_t>(b)];
        return std::tuple(x.first, x.blocks, a) < std::tuple(y.first, y.blocks, b);
      };
    };
    std::vector<int> holders = kind, ranges = kind;
    std::sort(holders.begin(), holders.end(), by_range(held));
    std::sort(ranges.begin(), ranges.end(), by_range(old.placement));
    for (std::size_t h = 0, r = 0; h < holders.size() || r < ranges.size();) {
      const auto key = [](const Placement& placement, int j) {
        const BlockRange& range = placement[static_cast<std::size_t>(j)];
        return std::tuple(range.first, range.blocks);
      };
      if (h < holders.size() && r < ranges.size() && key(held, holders[h]) == key(old.placement, ranges[r])) {
        successor[static_cast<std::size_t>(ranges[r++])] = holders[h++];
      } else if (r == ranges.size() || (h < holders.size() && key(held, holders[h]) < key(old.placement, ranges[r]))) {
        takers.push_back(holders[h++]);
      } else {
        givers.push_back(ranges[r++]);
      }
    }
    assert(takers.size() == givers.size());
    std::vector<std::size_t> giver_of(takers.size());
    std::iota(giver_of.begin(), giver_of.end(), std::size_t{0});
    if (takers.size() <= kMaxAssigned) {
      std::vector<std::vector<int>> cost;
      for (const int taker : takers) {
        std::vector<int>& row = cost.emplace_back();
        for (const int giver : givers) {
          row.push_back(loaded(held[static_cast<std::size_t>(taker)], old.placement[static_cast<std::size_t>(giver)]));
        }
      }
      giver_of = assign(cost);
    }
    for (std::size_t t = 0; t < takers.size(); ++t) successor[static_cast<std::size_t>(givers[giver_of[t]])] = takers[t];
  }
  for (std::size_t j = 0; j < held.size(); ++j) result.placement[static_cast<std::size_t>(successor[j])] = old.placement[j];
  for (auto& chain : result.chains) {
    for (int& j : chain) j = successor[static_cast<std::size_t>(j)];
  }
  return result;
}

class LineUp {
 public:
  LineUp(const Instance& instance, const Placement& held, const Arrangement& old)
      : blocks_(instance.blocks), held_(held), old_(old) {}

  // The order of a chain's servers with the fewest loads.
  [[nodiscard]] std::vector<int> order(const std::vector<int>& chain) const {
    if (chain.size() > kMaxPermuted) return by_held_range(chain);
    const std::size_t all = (std::size_t{1} << chain.size()) - 1;
    std::vector<int> loads(all + 1, std::numeric_limits<int>::max()), last(all + 1, 0), placed(all + 1, 0);
    loads[0] = 0;
    for (std::size_t done = 0; done < all; ++done) {
      for (std::size_t k = 0; k < chain.size(); ++k) {
        if (done >> k & 1) continue;
        const std::size_t next = done | std::size_t{1} << k;
        const BlockRange range = placed_after(placed[done], chain[k]);
        placed[next] = placed[done] + range.blocks;
        const int more = loads[done] + loaded(held_[static_cast<std::size_t>(chain[k])], range);
        if (more < loads[next]) {
          loads[next] = more;
          last[next] = static_cast<int>(k);
        }
      }
    }
    std::vector<int> order;
    for (std::size_t done = all; done != 0; done ^= std::size_t{1} << last[done]) {
      order.push_back(chain[static_cast<std::size_t>(last[done])]);
    }
    std::reverse(order.begin(), order.end());
    return order;
  }

  void place(const std::vector<int>& order, Placement& placement) const {
    int placed = 0;
    for (const int j : order) {
      placement[static_cast<std::size_t>(j)] = placed_after(placed, j);
      placed += placement[static_cast<std::size_t>(j)].blocks;
    }
  }

 private:
  // As GBP-CR places: the next blocks, or the last ones if fewer are left.
  [[nodiscard]] BlockRange placed_after(int placed, int server) const {
    const int blocks = old_.placement[static_cast<std::size_t>(server)].blocks;
    return BlockRange{std::min(placed + 1, blocks_ - blocks + 1), blocks};
  }

  [[nodiscard]] std::vector<int> by_held_range(std::vector<int> chain) const {
    std::stable_sort(chain.begin(), chain.end(), [&](int a, int b) {
      const BlockRange& x = held_[static_cast<std::size_t>(a)];
      const BlockRange& y = held_[static_cast<std::size_t>(b)];
      return std::tuple(x.blocks == 0, x.first) < std::tuple(y.blocks == 0, y.first);
    });
    return chain;
  }

  int blocks_;
  const Placement& held_;
  const Arrangement& old_;
};

// Placed servers that are in no complete chain, in the order of their ranges.
std::vector<int> unfinished(const Arrangement& arrangement) {
  std::vector<char> in_chain(arrangement.placement.size(), 0);
  for (const auto& chain : arrangement.chains) {
    for (const int j : chain) in_chain[static_cast<std::size_t>(j)] = 1;
  }
  std::vector<int> rest;
  for (std::size_t j = 0; j < in_chain.size(); ++j) {
    if (!in_chain[j] && arrangement.placement[j].blocks > 0) rest.push_back(static_cast<int>(j));
  }
  std::stable_sort(rest.begin(), rest.end(), [&](int a, int b) {
    return arrangement.placement[static_cast<std::size_t>(a)].first < arrangement.placement[static_cast<std::size_t>(b)].first;
  });
  return rest;
}

}  // namespace

long blocks_to_load(const Placement& before, const Placement& after) {
  long blocks = 0;
  for (std::size_t j = 0; j < after.size(); ++j) blocks += loaded(before[j], after[j]);
  return blocks;
}

bool serves_no_worse(const Composition& a, const Composition& b) {
  constexpr double kSlack = 1 + 1e-12;  // sums in another order differ in the last bits
  if (a.stable != b.stable) return a.stable;
  if (a.stable) return *a.mean_response_lower_s <= *b.mean_response_lower_s * kSlack;
  return a.total_service_rate_per_s * kSlack >= b.total_service_rate_per_s;
}

Composition with_fewest_loads(const Instance& instance, const Composition& composed, const Placement& held) {
  assert(held.size() == instance.servers.size());
  Composition best = composed;
  const auto accept = [&](const Arrangement& arrangement) {
    if (blocks_to_load(held, arrangement.placement) >= blocks_to_load(held, best.placement)) return false;
    Composition candidate = compose_on(instance, arrangement.placement);
    if (!serves_no_worse(candidate, composed)) return false;
    candidate.capacity = composed.capacity;
    candidate.considered = composed.considered;
    candidate.disjoint_chains = arrangement.chains;
    best = std::move(candidate);
    return true;
  };
  const auto current = [&] { return Arrangement{best.placement, best.disjoint_chains}; };
  for (int round = 0; round < kMaxRounds; ++round) {
    bool helped = accept(exchange(instance, held, current()));
    const Arrangement old = current();
    if (old.chains.empty()) break;  // not from GBP-CR: its chains are unknown
    const LineUp line_up(instance, held, old);
    Arrangement lined_up = old;
    for (auto& chain : lined_up.chains) {
      chain = line_up.order(chain);
      line_up.place(chain, lined_up.placement);
    }
    line_up.place(line_up.order(unfinished(old)), lined_up.placement);
    if (accept(lined_up)) {
      helped = true;
    } else if (lined_up.chains.size() <= kMaxSeparate) {
      for (std::size_t k = 0; k < lined_up.chains.size(); ++k) {
        Arrangement one = current();
        one.chains[k] = lined_up.chains[k];
        line_up.place(one.chains[k], one.placement);
        helped = accept(one) || helped;
      }
    }
    if (!helped) break;
  }
  return best;
}

}  // namespace windlass::chain
