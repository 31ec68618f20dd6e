// See hexgen2_strategies.h.
#include "planner/strategies/hexgen2/hexgen2_strategies.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <tuple>

#include "planner/strategies/hexgen2/hexgen2_flow.h"

namespace windlass::hetero {
namespace {

// With more combinations than this in a group, only even cuts of each node are tried (one degree, and single GPUs for the
// rest); if there are more than this of those, only cuts with the same largest degree on all nodes.
constexpr std::size_t kMaxCombinations = 4096;

// Communication between a group's stages for one order of its nodes: sums over its hops.
struct Path {
  std::vector<int> order;  // slots
  double latency_s = 0;
  double s_per_byte = 0;
};

struct Choice {
  std::vector<OrderedStage> stages;  // by slot, then degree; first_layer unset
  std::size_t path = 0;              // the first among those that take equally long
  double capacity = 0;
  double latency_s = 0;
  int batch = 0;

  [[nodiscard]] bool better_than(const Choice& other) const {
    if (capacity > other.capacity * (1 + 1e-12)) return true;
    if (capacity < other.capacity * (1 - 1e-12)) return false;
    return stages.size() < other.stages.size();
  }
};

// Every way to write `gpus` as a sum of degrees, largest first.
void cuts(int gpus, const std::vector<int>& degrees, std::size_t largest, std::vector<int>& now,
          std::vector<std::vector<int>>& all) {
  if (gpus == 0) {
    all.push_back(now);
    return;
  }
  for (std::size_t i = largest + 1; i-- > 0;) {
    if (degrees[i] > gpus) continue;
    now.push_back(degrees[i]);
    cuts(gpus - degrees[i], degrees, i, now, all);
    now.pop_back();
  }
}

std::vector<std::vector<int>> even_cuts(int gpus, const std::vector<int>& degrees) {
  std::vector<std::vector<int>> all;
  for (auto degree = degrees.rbegin(); degree != degrees.rend(); ++degree) {
    if (*degree > gpus) continue;
    std::vector<int> cut(static_cast<std::size_t>(gpus / *degree), *degree);
    cut.insert(cut.end(), static_cast<std::size_t>(gpus % *degree), 1);
    all.push_back(std::move(cut));
  }
  return all;
}

// Spreads a number over 64 bits (the finaliser of MurmurHash3).
std::uint64_t scattered(std::uint64_t value) {
  value = (value + 0x9e3779b97f4a7c15ULL) * 0xff51afd7ed558ccdULL;
  value = (value ^ value >> 33) * 0xc4ceb9fe1a85ec53ULL;
  return value ^ value >> 33;
}

}  // namespace

std::size_t StrategyTable::Hash::operator()(const std::vector<std::uint32_t>& key) const {
  std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (const std::uint32_t value : key) hash = (hash ^ value) * 0xff51afd7ed558ccdULL, hash ^= hash >> 32;
  return static_cast<std::size_t>(hash);
}

std::size_t StrategyTable::Hash::operator()(const Composition& key) const {
  std::uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (const NodeShare& share : key) {
    hash = (hash ^ (static_cast<std::uint64_t>(share.node) << 16 ^ static_cast<std::uint64_t>(share.gpus))) *
           0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return static_cast<std::size_t>(hash);
}

StrategyTable::StrategyTable(const GpuCluster& cluster, const InferenceTask& task, Service service)
    : cluster_(cluster), task_(task), service_(service), links_(cluster) {
  std::vector<const ClusterNode*> kinds;
  for (const ClusterNode& node : cluster.nodes) {
    const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const ClusterNode* kind) {
      return kind->within == node.within && kind->accelerator == node.accelerator;
    });
    kind_of_.push_back(static_cast<int>(found - kinds.begin()));
    if (found == kinds.end()) kinds.push_back(&node);
  }
  for (const ClusterNode* kind : kinds) {
    within_.push_back(kind->within);
    std::vector<StageFigures>& row = figures_.emplace_back();
    for (const int degree : task.tensor_parallel) row.push_back(stage_figures(task, kind->accelerator, kind->within, degree));
  }
  // A batch shares its messages' latency, so the bound leaves it out.
  for (const Link& link : links_.links()) {
    hops_.push_back({prefill_hop_s(task, link), decode_hop_s(task, {link.bytes_per_s, 0}, 1)});
  }
}

const StageFigures& StrategyTable::figures(int kind, int tensor_parallel) const {
  const auto found = std::lower_bound(task_.tensor_parallel.begin(), task_.tensor_parallel.end(), tensor_parallel);
  assert(found != task_.tensor_parallel.end() && *found == tensor_parallel);
  return figures_[static_cast<std::size_t>(kind)][static_cast<std::size_t>(found - task_.tensor_parallel.begin())];
}

const GroupEntry& StrategyTable::of(const Composition& group) {
  const auto known = entries_.find(group);
  if (known != entries_.end()) return known->second;
  // Slots in an order that depends on the nodes' properties, not their indices.
  std::vector<NodeShare> shares(group);
  std::stable_sort(shares.begin(), shares.end(), [&](const NodeShare& a, const NodeShare& b) {
    return std::pair(kind(a.node), a.gpus) < std::pair(kind(b.node), b.gpus);
  });
  GroupEntry entry;
  std::vector<std::uint32_t> signature;
  for (const NodeShare& share : shares) {
    entry.nodes.push_back(share.node);
    signature.push_back(static_cast<std::uint32_t>(kind(share.node)) << 16 | static_cast<std::uint32_t>(share.gpus));
  }
  for (std::size_t a = 0; a < shares.size(); ++a) {
    for (std::size_t b = a + 1; b < shares.size(); ++b) {
      signature.push_back(links_.id(shares[a].node, shares[b].node));
    }
  }
  auto solved = solved_.find(signature);
  if (solved == solved_.end()) {
    std::vector<int> kinds, gpus;
    std::vector<const Link*> links;
    for (const NodeShare& a : shares) {
      kinds.push_back(kind(a.node));
      gpus.push_back(a.gpus);
      for (const NodeShare& b : shares) links.push_back(&link(a.node, b.node));
    }
    strategies_.push_back(solve(kinds, gpus, links));
    solved = solved_.emplace(std::move(signature), &strategies_.back()).first;
  }
  entry.strategies = solved->second;
  entry.prefill_units = flow_units(entry.strategies->prefill.capacity_requests_per_s);
  entry.decode_units = flow_units(entry.strategies->decode.capacity_requests_per_s);
  return entries_.emplace(group, std::move(entry)).first->second;
}

namespace {

// Search for one composition. Stages are indices into `cut`. Without links, hops between nodes are free.
class Solver {
 public:
  Solver(const StrategyTable& table, Service service, const std::vector<int>& kinds, const std::vector<const Link*>& links)
      : table_(table), task_(table.task()), service_(service), kinds_(kinds), links_(links) {
    make_paths();
  }

  void look(const std::vector<const std::vector<int>*>& cut_of_slot) {
    stages_.clear();
    figures_.clear();
    hops_within_latency_s_ = hops_within_s_per_byte_ = 0;
    for (std::size_t slot = 0; slot < kinds_.size(); ++slot) {
      const std::vector<int>& cut = *cut_of_slot[slot];
      for (const int degree : cut) {
        stages_.push_back({static_cast<int>(slot), degree, 0, 0});
        figures_.push_back(&table_.figures(kinds_[slot], degree));
      }
      const Link& within = table_.within(kinds_[slot]);
      const double hops = static_cast<double>(cut.size()) - 1;
      if (hops > 0) {
        hops_within_latency_s_ += hops * within.latency_s;
        hops_within_s_per_byte_ += within.bytes_per_s > 0 ? hops / within.bytes_per_s : kInfinite;
      }
    }
    for (const StageFigures* figures : figures_) {
      if (!std::isfinite(figures->prefill_layer_s)) return;
    }
    if (static_cast<int>(stages_.size()) > task_.layers || !fits(1)) return;
    const int batch = largest_batch();
    if (service_ == Service::kUnified) {
      look_unified(batch);
      return;
    }
    look_prefill();
    look_decode(batch);
  }

  // Of the best choice, for one request; infinite if there is none.
  [[nodiscard]] double prefill_s() const { return prefill_.capacity > 0 ? 1 / prefill_.capacity : kInfinite; }
  [[nodiscard]] double decode_s() const { return decode_.capacity > 0 ? 1 / decode_.capacity : kInfinite; }

  [[nodiscard]] GroupStrategies best() const {
    return {strategy(prefill_, [&](const Path& path, int) { return hop_s(path, task_.input_tokens, 1); }),
            strategy(decode_, [&](const Path& path, int batch) { return hop_s(path, batch, task_.output_tokens); }),
            strategy(unified_, [&](const Path& path, int batch) {
              return hop_s(path, task_.input_tokens, 1) + hop_s(path, batch, task_.output_tokens) / batch;
            })};
  }

 private:
  void make_paths() {
    if (links_.empty()) {
      paths_.emplace_back();
      return;
    }
    std::vector<int> order(kinds_.size());
    std::iota(order.begin(), order.end(), 0);
    const auto add = [&](const std::vector<int>& slots) {
      Path path{slots};
      for (std::size_t i = 0; i + 1 < slots.size(); ++i) {
        const Link& link = *links_[static_cast<std::size_t>(slots[i]) * kinds_.size() + static_cast<std::size_t>(slots[i + 1])];
        path.latency_s += link.latency_s;
        path.s_per_byte += link.bytes_per_s > 0 ? 1 / link.bytes_per_s : kInfinite;
      }
      paths_.push_back(std::move(path));
    };
    if (kinds_.size() <= 5) {
      do {
        add(order);
      } while (std::next_permutation(order.begin(), order.end()));
      return;
    }
    // Start at each slot and always go to the nearest remaining one.
    for (std::size_t first = 0; first < kinds_.size(); ++first) {
      std::vector<int> slots{static_cast<int>(first)};
      std::vector<bool> used(kinds_.size());
      used[first] = true;
      while (slots.size() < kinds_.size()) {
        std::size_t nearest = kinds_.size();
        double least = kInfinite;
        for (std::size_t next = 0; next < kinds_.size(); ++next) {
          if (used[next]) continue;
          const Link& link = *links_[static_cast<std::size_t>(slots.back()) * kinds_.size() + next];
          const double seconds = prefill_hop_s(task_, link);
          if (nearest == kinds_.size() || seconds < least) nearest = next, least = seconds;
        }
        used[nearest] = true;
        slots.push_back(static_cast<int>(nearest));
      }
      add(slots);
      std::reverse(slots.begin(), slots.end());
      add(slots);
    }
  }

  // Time of `times` messages per hop with this many tokens' activations; only hops between nodes.
  [[nodiscard]] double hop_s(const Path& path, double tokens, double times) const {
    return times * (path.latency_s + (path.order.size() > 1 ? tokens * task_.token_bytes * path.s_per_byte : 0));
  }
  [[nodiscard]] double hop_within_s(double tokens, double times) const {
    if (hops_within_s_per_byte_ == 0) return 0;
    return times * (hops_within_latency_s_ + tokens * task_.token_bytes * hops_within_s_per_byte_);
  }

  template <class HopTime>
  [[nodiscard]] std::size_t least_path(const HopTime& hop_time) const {
    std::size_t least = 0;
    for (std::size_t i = 1; i < paths_.size(); ++i) {
      if (hop_time(paths_[i]) < hop_time(paths_[least]) * (1 - 1e-12)) least = i;
    }
    return least;
  }

  [[nodiscard]] bool fits(int batch) const {
    // StageFigures::max_layers(), with the constant parts computed once.
    int sum = 0;
    for (const StageFigures* figures : figures_) {
      const double left = figures->memory_bytes - batch * figures->activation_bytes;
      const double layer = figures->weight_bytes + batch * figures->kv_bytes;
      if (left < layer) return false;
      sum += static_cast<int>(std::min<double>(task_.layers, left / layer));
    }
    return sum >= task_.layers;
  }

  // REQUIRES: fits(1).
  [[nodiscard]] int largest_batch() const {
    if (fits(task_.max_batch)) return task_.max_batch;
    int fitting = 1, over = 2;
    while (fits(over)) fitting = over, over *= 2;
    while (over - fitting > 1) {
      const int middle = fitting + (over - fitting) / 2;
      (fits(middle) ? fitting : over) = middle;
    }
    return fitting;
  }

  // One layer per stage, then fill the fastest stages as far as their memory allows. Sets the stages' layers; returns the sum.
  template <class LayerTime>
  double split_layers(int batch, const LayerTime& layer_time) {
    order_.resize(stages_.size());
    std::iota(order_.begin(), order_.end(), std::size_t{0});
    std::stable_sort(order_.begin(), order_.end(),
                     [&](std::size_t a, std::size_t b) { return layer_time(*figures_[a]) < layer_time(*figures_[b]); });
    for (OrderedStage& stage : stages_) stage.layers = 1;
    int left = task_.layers - static_cast<int>(stages_.size());
    for (std::size_t first = 0, end = 0; first < order_.size() && left > 0; first = end) {
      // Equally fast stages share evenly.
      const double fastest_s = layer_time(*figures_[order_[first]]);
      while (end < order_.size() && layer_time(*figures_[order_[end]]) <= fastest_s * (1 + 1e-9)) ++end;
      for (bool room = true; room && left > 0;) {
        room = false;
        for (std::size_t at = first; at < end && left > 0; ++at) {
          OrderedStage& stage = stages_[order_[at]];
          if (stage.layers >= figures_[order_[at]]->max_layers(batch, task_.layers)) continue;
          ++stage.layers;
          --left;
          room = true;
        }
      }
    }
    double sum_s = 0;
    for (std::size_t i = 0; i < stages_.size(); ++i) sum_s += stages_[i].layers * layer_time(*figures_[i]);
    assert(left == 0);
    return sum_s;
  }

  void offer(Choice& best, double latency_s, double capacity, int batch, std::size_t path) {
    if (!std::isfinite(latency_s) || !(capacity > 0)) return;
    Choice choice{stages_, path, capacity, latency_s, batch};
    if (choice.better_than(best)) best = std::move(choice);
  }

  void look_prefill() {
    const auto layer_time = [](const StageFigures& figures) { return figures.prefill_layer_s; };
    const auto hop_time = [&](const Path& path) { return hop_s(path, task_.input_tokens, 1); };
    const double stages_s = split_layers(1, layer_time);
    const std::size_t path = least_path(hop_time);
    const double latency_s = stages_s + hop_time(paths_[path]) + hop_within_s(task_.input_tokens, 1);
    offer(prefill_, latency_s, 1 / latency_s, 1, path);
  }

  [[nodiscard]] static double decode_layer_s(const StageFigures& figures, int batch) {
    return figures.decode_layer_s + batch * figures.decode_layer_request_s;
  }

  void look_decode(int batch) {
    const auto hop_time = [&](const Path& path) { return hop_s(path, batch, task_.output_tokens); };
    const double stages_s = split_layers(batch, [&](const StageFigures& figures) { return decode_layer_s(figures, batch); });
    const std::size_t path = least_path(hop_time);
    const double latency_s = stages_s + hop_time(paths_[path]) + hop_within_s(batch, task_.output_tokens);
    offer(decode_, latency_s, batch / latency_s, batch, path);
  }

  void look_unified(int batch) {
    const auto hop_time = [&](const Path& path) {
      return hop_s(path, task_.input_tokens, 1) + hop_s(path, batch, task_.output_tokens) / batch;
    };
    const double stages_s = split_layers(
        batch, [&](const StageFigures& figures) { return figures.prefill_layer_s + decode_layer_s(figures, batch) / batch; });
    const std::size_t path = least_path(hop_time);
    const double each_s = stages_s + hop_time(paths_[path]) + hop_within_s(task_.input_tokens, 1) +
                          hop_within_s(batch, task_.output_tokens) / batch;
    offer(unified_, each_s * batch, 1 / each_s, batch, path);
  }

  template <class HopTime>
  [[nodiscard]] PhaseStrategy strategy(const Choice& choice, const HopTime& hop_time) const {
    PhaseStrategy strategy;
    if (!(choice.capacity > 0)) return strategy;
    strategy.capacity_requests_per_s = choice.capacity;
    strategy.latency_s = choice.latency_s;
    strategy.batch = choice.batch;
    const double least_s = hop_time(paths_[choice.path], choice.batch);
    for (const Path& path : paths_) {
      if (hop_time(path, choice.batch) > least_s * (1 + 1e-12) || strategy.orders.size() == kMaxOrders) continue;
      std::vector<OrderedStage>& stages = strategy.orders.emplace_back();
      int layer = 0;
      for (const int slot : path.order) {
        for (OrderedStage stage : choice.stages) {
          if (stage.slot != slot) continue;
          stage.first_layer = layer;
          layer += stage.layers;
          stages.push_back(stage);
        }
      }
    }
    return strategy;
  }

  const StrategyTable& table_;
  const InferenceTask& task_;
  Service service_;
  const std::vector<int>& kinds_;
  const std::vector<const Link*>& links_;
  std::vector<Path> paths_;
  std::vector<OrderedStage> stages_;
  std::vector<const StageFigures*> figures_;
  std::vector<std::size_t> order_;
  double hops_within_latency_s_ = 0, hops_within_s_per_byte_ = 0;
  Choice prefill_, decode_, unified_;
};

// Shows the solver the ways to cut the GPUs of each slot.
void look_at_cuts(Solver& solver, const std::vector<int>& degrees, const std::vector<int>& gpus) {
  std::vector<std::vector<std::vector<int>>> of_slot;
  std::size_t combinations = 1;
  for (const int share : gpus) {
    std::vector<int> now;
    cuts(share, degrees, degrees.size() - 1, now, of_slot.emplace_back());
    combinations = std::min(kMaxCombinations + 1, combinations * of_slot.back().size());
  }
  std::vector<const std::vector<int>*> chosen(gpus.size());
  if (combinations > kMaxCombinations) {
    combinations = 1;
    for (std::size_t slot = 0; slot < gpus.size(); ++slot) {
      of_slot[slot] = even_cuts(gpus[slot], degrees);
      combinations = std::min(kMaxCombinations + 1, combinations * of_slot[slot].size());
    }
  }
  if (combinations > kMaxCombinations) {
    for (const int largest : degrees) {
      for (std::size_t slot = 0; slot < gpus.size(); ++slot) {
        chosen[slot] = &*std::find_if(of_slot[slot].begin(), of_slot[slot].end(),
                                      [&](const std::vector<int>& cut) { return cut.front() <= largest; });
      }
      solver.look(chosen);
    }
    return;
  }
  std::vector<std::size_t> digit(gpus.size(), 0);
  for (bool more = true; more;) {
    for (std::size_t slot = 0; slot < gpus.size(); ++slot) chosen[slot] = &of_slot[slot][digit[slot]];
    solver.look(chosen);
    more = false;
    for (std::size_t slot = 0; slot < gpus.size() && !more; ++slot) {
      if (++digit[slot] < of_slot[slot].size()) {
        more = true;
      } else {
        digit[slot] = 0;
      }
    }
  }
}

}  // namespace

GroupStrategies StrategyTable::solve(const std::vector<int>& kinds, const std::vector<int>& gpus,
                                     const std::vector<const Link*>& links) const {
  if (gpus.empty()) return {};
  Solver solver(*this, service_, kinds, links);
  look_at_cuts(solver, task_.tensor_parallel, gpus);
  return solver.best();
}

StrategyTable::Times StrategyTable::without_hops(const std::vector<int>& nodes, const std::vector<int>& gpus) const {
  std::vector<int> kinds, shares;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (gpus[i] > 0) kinds.push_back(kind(nodes[i])), shares.push_back(gpus[i]);
  }
  if (shares.empty()) return {};
  const std::vector<const Link*> none;
  Solver solver(*this, service_, kinds, none);
  look_at_cuts(solver, task_.tensor_parallel, shares);
  return {solver.prefill_s(), solver.decode_s()};
}

GroupBound StrategyTable::bound(const std::vector<int>& nodes, const std::vector<int>& gpus) {
  // A sum of hashes does not depend on the nodes' order. Should two ever be equal, an exchange may be missed.
  std::uint64_t key = 0;
  // Every path visits each node, and leaves all but the first over a different link: at least over each node's best one.
  Times hops{0, 0}, least;
  bool first = true;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (gpus[i] == 0) continue;
    key += scattered(static_cast<std::uint64_t>(kind(nodes[i])) << 16 | static_cast<std::uint64_t>(gpus[i]));
    Times nearest;
    for (std::size_t j = 0; j < nodes.size(); ++j) {
      if (j == i || gpus[j] == 0) continue;
      const Times& hop = hops_[links_.id(nodes[i], nodes[j])];
      nearest.prefill_s = std::min(nearest.prefill_s, hop.prefill_s);
      nearest.decode_s = std::min(nearest.decode_s, hop.decode_s);
    }
    // The node with the best link of all is the one left out.
    if (!first) {
      hops.prefill_s += std::max(least.prefill_s, nearest.prefill_s);
      hops.decode_s += std::max(least.decode_s, nearest.decode_s);
    }
    least = {std::min(least.prefill_s, nearest.prefill_s), std::min(least.decode_s, nearest.decode_s)};
    first = false;
  }
  const auto known = cuts_of_.find(key);
  const Times best = known != cuts_of_.end() ? known->second : cuts_of_.emplace(key, without_hops(nodes, gpus)).first->second;
  const auto units = [](double seconds) { return seconds < kInfinite ? flow_units((1 + 1e-9) / seconds) + 1 : 0; };
  return {units(best.prefill_s + hops.prefill_s), units(best.decode_s + hops.decode_s)};
}

}  // namespace windlass::hetero
