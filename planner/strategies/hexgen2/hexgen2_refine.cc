// See hexgen2_refine.h.
#include "planner/strategies/hexgen2/hexgen2_refine.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <numeric>
#include <utility>

namespace windlass::hetero {
namespace {

constexpr std::size_t kAllSplits = 64;      // splits of two groups; up to this number all are tried
constexpr std::size_t kAllPairs = 16;       // groups; up to this number all pairs are tried
constexpr std::size_t kOthers = 16;         // with more groups: kinds of other groups that a group is tried with
constexpr std::int64_t kStopEvery = 128;    // steps between checks of `stop`
constexpr double kFlowPairsPerStep = 40.0;  // pairs of groups whose flow costs as much as evaluating one exchange

// relative to a flow; smaller differences are rounding
constexpr std::int64_t kNoise = 100'000'000;

struct Score {
  std::int64_t flow = 0;
  double reach = 0;  // harmonic mean of both phases' capacities: the flow of an even division between the phases

  [[nodiscard]] bool better_than(const Score& other) const {
    const std::int64_t noise = other.flow / kNoise;
    if (flow > other.flow + noise) return true;
    return flow >= other.flow - noise && reach > other.reach * (1 + 1.0 / kNoise);
  }
};

double reach_of(double prefill, double decode) { return prefill + decode > 0 ? prefill * decode / (prefill + decode) : 0; }

// The GPUs of two groups, by node.
struct Union {
  std::vector<int> nodes, total, first;  // node, GPUs of both, GPUs of the first
};

Union union_of(const Composition& a, const Composition& b) {
  Union both;
  for (std::size_t i = 0, j = 0; i < a.size() || j < b.size();) {
    const int node = j == b.size() || (i < a.size() && a[i].node <= b[j].node) ? a[i].node : b[j].node;
    const int of_a = i < a.size() && a[i].node == node ? a[i++].gpus : 0;
    const int of_b = j < b.size() && b[j].node == node ? b[j++].gpus : 0;
    both.nodes.push_back(node);
    both.total.push_back(of_a + of_b);
    both.first.push_back(of_a);
  }
  return both;
}

Composition composition(const std::vector<int>& nodes, const std::vector<int>& gpus) {
  Composition group;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (gpus[i] > 0) group.push_back({nodes[i], gpus[i]});
  }
  return group;
}

class Search {
 public:
  Search(StrategyTable& table, const RefineOptions& options, Rng rng) : table_(table), options_(options), rng_(std::move(rng)) {
    // Upper bound of transfer times: every layer over one pair of GPUs on the worst link.
    double worst = 0;
    for (const Link& link : table.links().links()) {
      worst = std::max(worst, kv_transfer_s(table.task(), link, table.task().layers, 1));
    }
    least_edge_ = worst > 0 ? 1 / worst * kFlowUnitsPerRequest : 1e15;
  }

  Refined run(Placement start) {
    take(std::move(start));
    score_ = measure();
    options_.guided ? run_guided() : run_random();
    Refined refined;
    refined.flow = few() ? second_phase(table_, groups_, flow_) : settle();
    refined.groups = std::move(groups_);
    refined.steps = steps_;
    refined.improvements = improvements_;
    refined.stopped = stopped_;
    return refined;
  }

 private:
  struct Half {
    Composition gpus;
    const GroupEntry* entry = nullptr;
  };

  [[nodiscard]] bool few() const { return groups_.size() <= kFewGroups; }

  [[nodiscard]] static std::int64_t units(const PlacedGroup& group) {
    return group.prefill ? group.entry->prefill_units : group.entry->decode_units;
  }

  void take(Placement groups) {
    groups_ = std::move(groups);
    stamps_.resize(groups_.size());
    for (std::uint32_t& stamp : stamps_) stamp = ++last_stamp_;
    for (const PlacedGroup& group : groups_) add(group);
    if (!few() && (prefill_ == 0 || decode_ == 0 || !edges_are_wide())) arrange_all();
  }

  void add(const PlacedGroup& group) {
    (group.prefill ? prefill_ : decode_) += units(group);
    std::int64_t& most = group.prefill ? most_prefill_ : most_decode_;
    most = std::max(most, units(group));
  }
  void subtract(const PlacedGroup& group) { (group.prefill ? prefill_ : decode_) -= units(group); }

  void arrange_all() {
    arrange_pipelines(table_, groups_);
    for (std::uint32_t& stamp : stamps_) stamp = ++last_stamp_;
    arranged_ = true;
  }

  // Rearranges all pipelines from the start, and keeps the better result.
  std::int64_t settle() {
    if (!arranged_) {
      arrange_all();
      return score_.flow;  // the same in any order
    }
    Placement again = groups_;
    const std::int64_t afresh = second_phase(table_, again, flow_);
    if (afresh <= score_.flow) return score_.flow;
    groups_ = std::move(again);
    return afresh;
  }

  // Requests in proportion to capacities fill the smaller phase if every edge can take its share, in any order of the
  // pipelines.
  [[nodiscard]] bool edges_are_wide() {
    const auto wide = [&] {
      return static_cast<double>(most_prefill_) * static_cast<double>(most_decode_) <=
             least_edge_ * static_cast<double>(std::max(prefill_, decode_)) * (1 - 1e-9);
    };
    if (wide()) return true;
    // The largest groups may be gone.
    most_prefill_ = most_decode_ = 0;
    for (const PlacedGroup& group : groups_) {
      std::int64_t& most = group.prefill ? most_prefill_ : most_decode_;
      most = std::max(most, units(group));
    }
    return wide();
  }

  std::int64_t measure_flow() {
    if (prefill_ == 0 || decode_ == 0) return 0;
    if (edges_are_wide()) return std::min(prefill_, decode_);
    steps_ += static_cast<std::int64_t>(static_cast<double>(groups_.size() * groups_.size()) / 4 / kFlowPairsPerStep);
    if (few()) {
      scratch_ = groups_;
      return second_phase(table_, scratch_, flow_);
    }
    if (!arranged_) arrange_all();
    return solve_flow();
  }

  // flow_of() with edges already known.
  std::int64_t solve_flow() {
    prefill_groups_.clear();
    decode_groups_.clear();
    prefill_units_.clear();
    decode_units_.clear();
    if (!few()) edges_.resize(groups_.size() * groups_.size());
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      if (!groups_[i].serves()) continue;
      (groups_[i].prefill ? prefill_groups_ : decode_groups_).push_back(i);
      (groups_[i].prefill ? prefill_units_ : decode_units_).push_back(units(groups_[i]));
    }
    return flow_.solve(prefill_units_, decode_units_, [&](std::size_t p, std::size_t d) {
      const std::size_t from = prefill_groups_[p], to = decode_groups_[d];
      if (few()) return edge_units(table_, groups_[from], groups_[to]);
      KnownEdge& edge = edges_[from * groups_.size() + to];
      const std::uint64_t stamps = static_cast<std::uint64_t>(stamps_[from]) << 32 | stamps_[to];
      if (edge.stamps != stamps) edge = {stamps, edge_units(table_, groups_[from], groups_[to])};
      return edge.units;
    });
  }

  Score measure() { return {measure_flow(), reach_of(static_cast<double>(prefill_), static_cast<double>(decode_))}; }

  bool out_of_steps() {
    if (stopped_) return true;
    if (steps_ >= options_.max_steps || (steps_ >= next_look_ && stop_requested(options_.stop))) stopped_ = true;
    if (steps_ >= next_look_) next_look_ = steps_ + kStopEvery;
    return stopped_;
  }

  Half half_of(Composition gpus) {
    const GroupEntry& entry = table_.of(gpus);
    return {std::move(gpus), &entry};
  }

  // Puts both halves, with these phases, in the places of groups u and v.
  void put(std::size_t u, std::size_t v, const Half& a, const Half& b, bool a_prefill, bool b_prefill) {
    for (const std::size_t i : {u, v}) subtract(groups_[i]);
    groups_[u] = {a.gpus, a_prefill, a.entry, 0};
    groups_[v] = {b.gpus, b_prefill, b.entry, 0};
    stamps_[u] = ++last_stamp_;
    stamps_[v] = ++last_stamp_;
    for (const std::size_t i : {u, v}) add(groups_[i]);
  }

  void arrange(std::size_t u, std::size_t v) {
    if (!arranged_) return;
    arrange_pipeline(table_, groups_, u);
    arrange_pipeline(table_, groups_, v);
  }

  // Calls visit(first's GPUs) for other splits of the union, by slot.
  template <class Visit>
  void splits(const Union& both, const Visit& visit) {
    const std::size_t n = both.nodes.size();
    std::size_t count = 1;
    for (const int total : both.total) count = std::min(kAllSplits + 1, count * (static_cast<std::size_t>(total) + 1));
    if (count <= kAllSplits) {
      std::vector<int> first(n, 0);
      for (bool more = true; more;) {
        visit(first);
        more = false;
        for (std::size_t i = 0; i < n && !more; ++i) {
          if (++first[i] <= both.total[i]) {
            more = true;
          } else {
            first[i] = 0;
          }
        }
      }
      return;
    }
    // Moves of one to four GPUs of a node in either direction, and swaps of one or two for one or two.
    std::vector<int> first = both.first;
    const auto shift = [&](std::size_t i, int by) {
      first[i] += by;
      return first[i] >= 0 && first[i] <= both.total[i];
    };
    visit(first);
    for (std::size_t i = 0; i < n; ++i) {
      for (const int by : {-4, -2, -1, 1, 2, 4}) {
        if (shift(i, by)) visit(first);
        first[i] = both.first[i];
      }
      for (std::size_t j = 0; j < n; ++j) {
        if (i == j) continue;
        for (const auto& [out, in] : {std::pair(1, 1), {1, 2}, {2, 1}, {2, 2}}) {
          const bool gives = shift(i, -out), takes = shift(j, in);  // both must run
          if (gives && takes) visit(first);
          first[i] = both.first[i];
          first[j] = both.first[j];
        }
      }
    }
  }

  // Makes the best exchange between two groups, if it improves the result.
  bool improve_pair(std::size_t u, std::size_t v) {
    const Half was_u{groups_[u].gpus, groups_[u].entry}, was_v{groups_[v].gpus, groups_[v].entry};
    const bool prefill_u = groups_[u].prefill, prefill_v = groups_[v].prefill;
    const std::size_t order_u = groups_[u].order, order_v = groups_[v].order;
    const std::uint32_t stamp_u = stamps_[u], stamp_v = stamps_[v];
    std::int64_t others_prefill = prefill_, others_decode = decode_;
    for (const std::size_t i : {u, v}) (groups_[i].prefill ? others_prefill : others_decode) -= units(groups_[i]);
    const Union both = union_of(was_u.gpus, was_v.gpus);
    Score best = score_;
    Half best_a, best_b;
    bool best_a_prefill = false, best_b_prefill = false, found = false;
    // Whether these capacities could improve the result, if all edges were wide.
    const auto promises = [&](const auto& a, const auto& b, bool a_prefill, bool b_prefill) {
      const std::int64_t prefill = others_prefill + (a_prefill ? a.prefill_units : 0) + (b_prefill ? b.prefill_units : 0);
      const std::int64_t decode = others_decode + (a_prefill ? 0 : a.decode_units) + (b_prefill ? 0 : b.decode_units);
      const Score most{std::min(prefill, decode), reach_of(static_cast<double>(prefill), static_cast<double>(decode))};
      return most.better_than(best);
    };
    splits(both, [&](const std::vector<int>& first) {
      if (out_of_steps()) return;
      rest_.resize(first.size());
      int of_first = 0, of_rest = 0;
      for (std::size_t i = 0; i < first.size(); ++i) {
        rest_[i] = both.total[i] - first[i];
        of_first += first[i];
        of_rest += rest_[i];
      }
      if (!options_.may_empty && (of_first == 0 || of_rest == 0)) return;
      ++steps_;
      const GroupBound most_a = table_.bound(both.nodes, first), most_b = table_.bound(both.nodes, rest_);
      bool promising = false;
      for (const bool a_prefill : {true, false}) {
        for (const bool b_prefill : {true, false}) promising = promising || promises(most_a, most_b, a_prefill, b_prefill);
      }
      if (!promising) return;
      half_a_ = half_of(composition(both.nodes, first));
      half_b_ = half_of(composition(both.nodes, rest_));
      for (const bool a_prefill : {true, false}) {
        for (const bool b_prefill : {true, false}) {
          if (!promises(*half_a_.entry, *half_b_.entry, a_prefill, b_prefill)) continue;
          put(u, v, half_a_, half_b_, a_prefill, b_prefill);
          arrange(u, v);
          const Score score = measure();
          if (score.better_than(best)) {
            best = score;
            best_a = half_a_, best_b = half_b_;
            best_a_prefill = a_prefill, best_b_prefill = b_prefill;
            found = true;
          }
          put(u, v, was_u, was_v, prefill_u, prefill_v);
          groups_[u].order = order_u;
          groups_[v].order = order_v;
          stamps_[u] = stamp_u;
          stamps_[v] = stamp_v;
        }
      }
    });
    if (!found) return false;
    put(u, v, best_a, best_b, best_a_prefill, best_b_prefill);
    arrange(u, v);
    changed_.insert(changed_.end(), {u, v});
    score_ = best;
    ++improvements_;
    return true;
  }

  // Groups that have no capacity left under the present flow. If the flow fills the smaller phase, shares are equal.
  [[nodiscard]] std::vector<bool> saturated_groups() {
    std::vector<bool> saturated(groups_.size(), true);
    if (score_.flow >= std::min(prefill_, decode_)) {
      const bool prefill_full = prefill_ <= decode_, decode_full = decode_ <= prefill_;
      for (std::size_t i = 0; i < groups_.size(); ++i) saturated[i] = groups_[i].prefill ? prefill_full : decode_full;
    } else {
      solve_flow();
      std::size_t p = 0, d = 0;
      for (std::size_t i = 0; i < groups_.size(); ++i) {
        if (!groups_[i].serves()) continue;
        saturated[i] = groups_[i].prefill ? flow_.prefill_left()[p++] == 0 : flow_.decode_left()[d++] == 0;
      }
    }
    // A group that serves nothing is not a bottleneck: its GPUs are available.
    for (std::size_t i = 0; i < groups_.size(); ++i) saturated[i] = saturated[i] && groups_[i].serves();
    return saturated;
  }

  // Groups to try exchanges with: all; with many groups, those on its nodes, and one of each of some other kinds.
  [[nodiscard]] std::vector<std::size_t> partners(std::size_t u) {
    std::vector<std::size_t> list;
    if (groups_.size() <= kAllPairs) {
      for (std::size_t v = 0; v < groups_.size(); ++v) {
        if (v != u) list.push_back(v);
      }
      return list;
    }
    std::vector<std::pair<const GroupStrategies*, bool>> kinds;
    const std::size_t offset = static_cast<std::size_t>(rng_.integer(0, static_cast<std::int64_t>(groups_.size()) - 1));
    for (std::size_t i = 0; i < groups_.size(); ++i) {
      const std::size_t v = (i + offset) % groups_.size();
      if (v == u) continue;
      const bool near = std::any_of(groups_[v].gpus.begin(), groups_[v].gpus.end(), [&](const NodeShare& share) {
        return std::any_of(groups_[u].gpus.begin(), groups_[u].gpus.end(),
                           [&](const NodeShare& own) { return own.node == share.node; });
      });
      if (near) {
        list.push_back(v);
        continue;
      }
      if (kinds.size() >= kOthers) continue;
      const std::pair kind(groups_[v].entry->strategies, groups_[v].prefill);
      const auto known = std::find(kinds.begin(), kinds.end(), kind);
      if (known == kinds.end()) {
        kinds.push_back(kind);
        list.push_back(v);
      }
    }
    return list;
  }

  [[nodiscard]] bool all_pairs() const { return groups_.size() <= kAllPairs; }

  // Repeats until no exchange improves: with few groups, among all; with many, those of `from`, and then of groups that
  // changed.
  void climb(std::vector<std::size_t> from) {
    while (!from.empty() && !out_of_steps()) {
      const std::vector<bool> full = saturated_groups();
      std::stable_sort(from.begin(), from.end(), [&](std::size_t a, std::size_t b) { return full[a] > full[b]; });
      std::vector<bool> changed(groups_.size(), false);
      bool improved = false;
      for (const std::size_t u : from) {
        std::vector<std::size_t> with = partners(u);
        std::stable_sort(with.begin(), with.end(),
                         [&](std::size_t a, std::size_t b) { return (full[a] != full[u]) > (full[b] != full[u]); });
        for (const std::size_t v : with) {
          // When all pairs are tried, each is tried once: at its saturated group, or at its first.
          if (all_pairs() && (full[u] == full[v] ? v < u : !full[u])) continue;
          if (improve_pair(u, v)) changed[u] = changed[v] = improved = true;
          if (out_of_steps()) return;
        }
      }
      if (all_pairs()) {
        if (!improved) return;
        continue;
      }
      from.clear();
      for (std::size_t i = 0; i < changed.size(); ++i) {
        if (changed[i]) from.push_back(i);
      }
    }
  }

  [[nodiscard]] std::vector<std::size_t> everyone() const {
    std::vector<std::size_t> all(groups_.size());
    std::iota(all.begin(), all.end(), std::size_t{0});
    return all;
  }

  // Makes a random exchange between two random groups; false if it would leave one empty.
  bool shake(std::size_t u, std::size_t v) {
    const Union both = union_of(groups_[u].gpus, groups_[v].gpus);
    Composition a, b;
    for (std::size_t i = 0; i < both.nodes.size(); ++i) {
      const int first = static_cast<int>(rng_.integer(0, both.total[i]));
      if (first > 0) a.push_back({both.nodes[i], first});
      if (both.total[i] > first) b.push_back({both.nodes[i], both.total[i] - first});
    }
    if (!options_.may_empty && (a.empty() || b.empty())) return false;
    const bool a_prefill = rng_.integer(0, 1) == 0, b_prefill = rng_.integer(0, 1) == 0;
    put(u, v, half_of(std::move(a)), half_of(std::move(b)), a_prefill, b_prefill);
    return true;
  }

  std::pair<std::size_t, std::size_t> random_pair() {
    const auto last = static_cast<std::int64_t>(groups_.size()) - 1;
    const std::int64_t u = rng_.integer(0, last), v = rng_.integer(0, last - 1);
    return {static_cast<std::size_t>(u), static_cast<std::size_t>(v >= u ? v + 1 : v)};
  }

  void run_guided() {
    climb(everyone());
    Placement best = groups_;
    std::vector<std::uint32_t> best_stamps = stamps_;
    Score best_score = score_;
    for (int idle = 0; idle < options_.rounds && steps_ < options_.shake_until && !out_of_steps(); ++idle) {
      ++steps_;
      changed_.clear();
      const std::int64_t kicks = rng_.integer(1, groups_.size() > 3 ? 3 : 2);
      std::vector<std::size_t> shaken;
      for (std::int64_t kick = 0; kick < kicks; ++kick) {
        const auto [u, v] = random_pair();
        if (!shake(u, v)) continue;
        arrange(u, v);
        shaken.insert(shaken.end(), {u, v});
      }
      changed_.insert(changed_.end(), shaken.begin(), shaken.end());
      score_ = measure();
      if (all_pairs()) shaken = everyone();
      climb(std::move(shaken));
      const bool better = score_.better_than(best_score);
      if (better && score_.flow > best_score.flow) idle = -1;
      if (better) best_score = score_;
      for (const std::size_t i : changed_) {
        if (better) {
          best[i] = groups_[i];
          best_stamps[i] = stamps_[i];
        } else {
          subtract(groups_[i]);
          groups_[i] = best[i];
          stamps_[i] = best_stamps[i];
          add(groups_[i]);
        }
      }
      score_ = best_score;
    }
  }

  // Random swaps of one GPU for one, moves of one, and changes of phase.
  void run_random() {
    for (int idle = 0; idle < options_.rounds && !out_of_steps(); ++idle) {
      ++steps_;
      const auto [u, v] = random_pair();
      const PlacedGroup was_u = groups_[u], was_v = groups_[v];
      const std::int64_t kind = rng_.integer(0, 2);
      Composition a = was_u.gpus, b = was_v.gpus;
      bool a_prefill = was_u.prefill;
      if (kind == 0) {
        a_prefill = !a_prefill;
      } else {
        if (a.empty() || (kind == 1 && b.empty())) continue;
        const int out = take_one(a);
        if (kind == 1) add_one(a, take_one(b));
        add_one(b, out);
      }
      if (!options_.may_empty && (a.empty() || b.empty())) continue;
      put(u, v, half_of(std::move(a)), half_of(std::move(b)), a_prefill, was_v.prefill);
      arrange(u, v);
      const Score score = measure();
      if (score.flow > score_.flow) {
        score_ = score;
        ++improvements_;
        idle = -1;
        continue;
      }
      put(u, v, half_of(was_u.gpus), half_of(was_v.gpus), was_u.prefill, was_v.prefill);
      groups_[u].order = was_u.order;
      groups_[v].order = was_v.order;
    }
  }

  // Removes a random GPU; returns its node. REQUIRES: not empty.
  int take_one(Composition& gpus) {
    int count = 0;
    for (const NodeShare& share : gpus) count += share.gpus;
    std::int64_t draw = rng_.integer(0, count - 1);
    for (std::size_t i = 0;; ++i) {
      if (draw >= gpus[i].gpus) {
        draw -= gpus[i].gpus;
        continue;
      }
      const int node = gpus[i].node;
      if (--gpus[i].gpus == 0) gpus.erase(gpus.begin() + static_cast<std::ptrdiff_t>(i));
      return node;
    }
  }

  static void add_one(Composition& gpus, int node) {
    const auto at =
        std::lower_bound(gpus.begin(), gpus.end(), node, [](const NodeShare& share, int key) { return share.node < key; });
    if (at != gpus.end() && at->node == node) {
      ++at->gpus;
    } else {
      gpus.insert(at, {node, 1});
    }
  }

  StrategyTable& table_;
  const RefineOptions& options_;
  Rng rng_;
  BipartiteFlow flow_;
  Placement groups_, scratch_;
  Half half_a_, half_b_;                             // halves of the exchange being evaluated
  std::vector<int> rest_;                            // the second half's GPUs, by slot
  std::int64_t prefill_ = 0, decode_ = 0;            // both phases' capacities, units
  std::int64_t most_prefill_ = 0, most_decode_ = 0;  // at least those of each group
  bool arranged_ = false;  // pipelines have orders; with few groups, or while all edges were wide, the search needs none
  Score score_;
  struct KnownEdge {
    std::uint64_t stamps = 0;
    std::int64_t units = 0;
  };
  std::vector<std::uint32_t> stamps_;  // one per group, changed at every change; undoing a change restores the old value
  std::uint32_t last_stamp_ = 0;
  std::vector<KnownEdge> edges_;  // by pair of groups; empty until a flow needs them
  std::vector<std::size_t> prefill_groups_, decode_groups_, changed_;
  std::vector<std::int64_t> prefill_units_, decode_units_;
  double least_edge_ = 0;  // units
  std::int64_t steps_ = 0, next_look_ = 0, improvements_ = 0;
  bool stopped_ = false;
};

}  // namespace

Refined refine(StrategyTable& table, Placement start, const RefineOptions& options, Rng rng) {
  return Search(table, options, std::move(rng)).run(std::move(start));
}

Placement random_placement(StrategyTable& table, int groups, Rng& rng) {
  std::vector<int> gpus = table.cluster().node_of_each_gpu();
  for (std::size_t i = gpus.size(); i > 1; --i) {
    std::swap(gpus[i - 1], gpus[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(i) - 1))]);
  }
  std::vector<std::vector<int>> of_group(static_cast<std::size_t>(groups));
  std::vector<double> memory(static_cast<std::size_t>(groups), 0);
  for (const int node : gpus) {
    const auto least = static_cast<std::size_t>(std::min_element(memory.begin(), memory.end()) - memory.begin());
    of_group[least].push_back(node);
    memory[least] += table.cluster().nodes[static_cast<std::size_t>(node)].accelerator.memory_bytes;
  }
  Placement placement;
  for (std::size_t i = 0; i < of_group.size(); ++i) {
    std::sort(of_group[i].begin(), of_group[i].end());
    Composition composition;
    for (const int node : of_group[i]) {
      if (!composition.empty() && composition.back().node == node) {
        ++composition.back().gpus;
      } else {
        composition.push_back({node, 1});
      }
    }
    placement.push_back(place(table, std::move(composition), i == 0 || (i != 1 && rng.integer(0, 1) == 0)));
  }
  return placement;
}

}  // namespace windlass::hetero
