// Composes chains for the best reserved capacity c; see compose.h.
//
// A simple search for c would run GBP-CR and GCA for each of hundreds of values. This one is fast and exact for three reasons.
// The placement changes only at values of c where some server's floor or the number of chains changes. A relaxation that needs
// no cache allocation bounds every placement from below: candidates are tried in the order of that bound, and the search ends
// once it exceeds the best result. And GCA yields chains fastest first, as the lower bound of Theorem 3.7 needs them, so the
// mean over the states summed so far bounds the final mean from below.
#include "planner/chain/compose.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "planner/chain/gbp_cr.h"
#include "planner/chain/gca.h"
#include "planner/queueing/chain_bounds.h"
#include "planner/queueing/occupancy_sum.h"

namespace windlass::chain {
namespace {

using planner::ChainRate;
using planner::OccupancySum;

// An estimate above the best by less than this may still be equal: sums in another order differ in the last bits.
constexpr double kSlack = 1 + 1e-9;
// Values this close are ties.
constexpr double kSame = 1 + 1e-12;

std::vector<ChainRate> rates_of(const std::vector<ServerChain>& chains) {
  std::vector<ChainRate> rates;
  for (const ServerChain& chain : chains) rates.push_back(ChainRate{chain.service_rate_per_s(), chain.capacity});
  return rates;
}

// Evaluates values of c and keeps the best.
class CapacitySearch {
 public:
  CapacitySearch(const Instance& instance, Tuning tuning, Servers servers)
      : instance_(instance),
        tuning_(tuning),
        stops_(servers == Servers::kAsNeeded || tuning == Tuning::kSurrogate),
        greedy_(instance),
        finder_(instance) {
    collect();
  }

  // The best c; none if no value gives a full chain.
  [[nodiscard]] std::optional<int> best() {
    const int best = tuning_ == Tuning::kSurrogate ? best_by_surrogate() : best_by_bound();
    return best > 0 ? std::optional(best) : largest_rate();
  }
  // The values evaluated completely, ascending.
  [[nodiscard]] std::vector<ConsideredCapacity> considered() const {
    auto result = considered_;
    std::sort(result.begin(), result.end(), [](const auto& a, const auto& b) { return a.capacity < b.capacity; });
    return result;
  }

 private:
  struct Candidate {
    int capacity;
    double floor_s;         // lower bound of the mean response; infinite: certainly unstable
    double max_rate_per_s;  // upper bound of the total service rate
    double surrogate;       // c K(c); infinite if undefined
  };

  // Collects every c at which GBP-CR's placement changes. Between two of them the chains are the same, so the smallest c
  // represents them.
  void collect() {
    const int most = max_capacity(instance_);
    for (int capacity = 1; capacity <= most; capacity = greedy_.next_change(most, stops_)) {
      place(capacity);
      if (greedy_.chain_ends().empty()) continue;
      // The stop rule may start to apply without a change of the chains; then c K(c) becomes defined.
      const bool same = !candidates_.empty() && !moved_ && greedy_.placed() == placed_ && greedy_.reaches_rate() == reached_;
      if (!same) candidates_.push_back(relaxation(capacity));
      placed_ = greedy_.placed();
      reached_ = greedy_.reaches_rate();
    }
  }

  // A bound that no cache allocation can beat. Each of n requests keeps L caches somewhere, and a block takes at least the
  // amortised time of its server. Taking the fastest caches first, the k-th request takes at least s(k) = L times the time of
  // the k-th L caches, and any k requests together take at least s(1) + ... + s(k). So (majorisation; 1/x is convex and
  // falling) n requests complete at a rate of at most 1/s(1) + ... + 1/s(n). That is concave in n, so by Jensen the mean number
  // of requests is at least the n at which it reaches the arrival rate.
  [[nodiscard]] Candidate relaxation(int capacity) const {
    const double blocks = instance_.blocks;
    double requests = 0, rate_per_s = 0, enough = kNever;
    for (std::size_t i = 0; i < greedy_.placed(); ++i) {
      const double time_s = blocks * greedy_.amortised_s(i);
      const double hold = static_cast<double>(cache_slots(instance_, greedy_.server(i), greedy_.range(i).blocks)) / blocks;
      const double spare = instance_.arrival_rate_per_s - rate_per_s;
      if (enough == kNever && hold >= spare * time_s) enough = requests + spare * time_s;
      requests += hold;
      rate_per_s += hold / time_s;
    }
    const double surrogate = greedy_.reaches_rate() ? capacity * static_cast<double>(greedy_.chain_ends().size()) : kNever;
    return Candidate{capacity, enough / instance_.arrival_rate_per_s, rate_per_s, surrogate};
  }

  [[nodiscard]] int best_by_surrogate() {
    for (const Candidate& candidate : candidates_) {
      if (candidate.surrogate < kNever) judge(candidate.capacity, candidate.surrogate);
    }
    return smallest_best();
  }

  // Tries the most promising first, until no remaining one can be better than the best.
  [[nodiscard]] int best_by_bound() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const auto& a, const auto& b) { return a.floor_s < b.floor_s; });
    for (const Candidate& candidate : candidates_) {
      if (candidate.floor_s == kNever || candidate.floor_s > objective_ * kSlack) break;
      allocate(candidate.capacity);
      const auto bound = tuning_ == Tuning::kLowerBound ? lower_bound_s() : upper_bound_s();
      if (bound.has_value()) judge(candidate.capacity, *bound);
    }
    return smallest_best();
  }

  // No c is sufficient: choose the one with the largest rate.
  [[nodiscard]] std::optional<int> largest_rate() {
    std::stable_sort(candidates_.begin(), candidates_.end(),
                     [](const auto& a, const auto& b) { return a.max_rate_per_s > b.max_rate_per_s; });
    std::vector<std::pair<int, double>> rates;
    double largest_per_s = 0;
    for (const Candidate& candidate : candidates_) {
      if (candidate.max_rate_per_s * kSlack < largest_per_s) break;
      allocate(candidate.capacity);
      double rate_per_s = 0;
      while (const auto found = finder_.next()) rate_per_s += found->capacity / found->service_time_s;
      rates.emplace_back(candidate.capacity, rate_per_s);
      largest_per_s = std::max(largest_per_s, rate_per_s);
    }
    std::optional<int> largest;
    for (const auto& [capacity, rate_per_s] : rates) {
      if (rate_per_s * kSame >= largest_per_s && (!largest || capacity < *largest)) largest = capacity;
    }
    return largest;
  }

  void place(int capacity) {
    moved_ = greedy_.set_capacity(capacity);
    greedy_.place(stops_ ? required_scaled_rate_per_s(instance_, capacity) : kNever);
  }

  void allocate(int capacity) {
    place(capacity);
    finder_.clear();
    for (std::size_t i = 0; i < greedy_.placed(); ++i) {
      const int server = greedy_.server(i);
      finder_.add(server, greedy_.range(i), cache_slots(instance_, server, greedy_.range(i).blocks));
    }
    finder_.start();
  }

  // None: unstable, or certainly worse than the best.
  [[nodiscard]] std::optional<double> lower_bound_s() {
    const double lambda = instance_.arrival_rate_per_s;
    OccupancySum sum(lambda);
    while (const auto found = finder_.next()) {
      if (!sum.add(1 / found->service_time_s, found->capacity)) break;
      if (sum.mean_so_far() > objective_ * lambda * kSlack) return std::nullopt;
    }
    const auto mean = sum.mean();
    return mean ? std::optional(*mean / lambda) : std::nullopt;
  }

  [[nodiscard]] std::optional<double> upper_bound_s() {
    rates_.clear();
    while (const auto found = finder_.next()) rates_.push_back(ChainRate{1 / found->service_time_s, found->capacity});
    return mean_response_upper_s(rates_, instance_.arrival_rate_per_s);
  }

  void judge(int capacity, double objective) {
    considered_.push_back(ConsideredCapacity{capacity, objective});
    objective_ = std::min(objective_, objective);
  }

  // The smallest c that is as good as the best; 0: none was evaluated.
  [[nodiscard]] int smallest_best() const {
    int best = 0;
    for (const ConsideredCapacity& considered : considered_) {
      if (considered.objective <= objective_ * kSame && (best == 0 || considered.capacity < best)) best = considered.capacity;
    }
    return best;
  }

  const Instance& instance_;
  const Tuning tuning_;
  const bool stops_;  // GBP-CR stops at the required rate
  GreedyPlacement greedy_;
  ChainFinder finder_;
  std::vector<Candidate> candidates_;
  std::vector<ChainRate> rates_;
  std::vector<ConsideredCapacity> considered_;
  bool moved_ = false;
  bool reached_ = false;
  std::size_t placed_ = 0;
  double objective_ = kNever;
};

// Explains why no full chain can be placed, with the least memory that is missing: servers with most left over need least for
// another block.
Error nothing_fits(const Instance& instance, int capacity) {
  const double each_gb = instance.block_gb + instance.cache_gb * capacity;
  long placed = 0;
  std::vector<double> short_of_another_gb;
  for (const Server& server : instance.servers) {
    const int blocks = blocks_for_capacity(instance, server.memory_gb, capacity);
    placed += blocks;
    short_of_another_gb.push_back(std::max(0.0, each_gb * (blocks + 1) - server.memory_gb));
  }
  std::sort(short_of_another_gb.begin(), short_of_another_gb.end());
  double missing_gb = 0;
  for (long i = 0; i < instance.blocks - placed; ++i) {
    missing_gb +=
        i < static_cast<long>(short_of_another_gb.size()) ? short_of_another_gb[static_cast<std::size_t>(i)] : each_gb;
  }
  return Error{
      ErrorCode::kFailedPrecondition,
      fmt::format("no full chain can be placed: the servers' memories hold {} of {} blocks with the caches of {} request{} "
                  "each; at least {:.6g} GB of memory are missing",
                  placed, instance.blocks, capacity, capacity == 1 ? "" : "s", missing_gb)};
}

}  // namespace

const char* to_string(Tuning tuning) {
  switch (tuning) {
    case Tuning::kLowerBound: return "lower-bound";
    case Tuning::kUpperBound: return "upper-bound";
    case Tuning::kSurrogate: return "surrogate";
  }
  return "";
}

int max_capacity(const Instance& instance) {
  double largest_gb = 0;
  for (const Server& server : instance.servers) largest_gb = std::max(largest_gb, server.memory_gb);
  const double capacity = std::floor((largest_gb - instance.block_gb) / instance.cache_gb);
  return static_cast<int>(std::clamp(capacity, 0.0, 1e9));
}

Composition compose_on(const Instance& instance, Placement placement) {
  Composition result;
  result.chains = gca(instance, placement);
  result.placement = std::move(placement);
  for (const ServerChain& chain : result.chains) result.total_capacity += chain.capacity;
  const auto rates = rates_of(result.chains);
  result.total_service_rate_per_s = planner::total_rate_per_s(rates);
  result.mean_response_lower_s = mean_response_lower_s(rates, instance.arrival_rate_per_s);
  result.mean_response_upper_s = mean_response_upper_s(rates, instance.arrival_rate_per_s);
  // lambda < nu by both sums of nu, because they differ in the last bit.
  result.stable = instance.arrival_rate_per_s < result.total_service_rate_per_s && result.mean_response_lower_s.has_value() &&
                  result.mean_response_upper_s.has_value();
  if (!result.stable) result.mean_response_lower_s = result.mean_response_upper_s = std::nullopt;
  result.meets_max_load = instance.arrival_rate_per_s <= instance.max_load * result.total_service_rate_per_s;
  return result;
}

Result<Composition> compose(const Instance& instance, int capacity, Servers servers) {
  DisjointChains disjoint =
      gbp_cr(instance, capacity, servers == Servers::kAll ? kNever : required_scaled_rate_per_s(instance, capacity));
  if (disjoint.chains.empty()) return nothing_fits(instance, capacity);
  Composition result = compose_on(instance, std::move(disjoint.placement));
  result.capacity = capacity;
  result.disjoint_chains = std::move(disjoint.chains);
  return result;
}

Result<Composition> compose(const Instance& instance, Tuning tuning, Servers servers) {
  CapacitySearch search(instance, tuning, servers);
  const auto best = search.best();
  if (!best.has_value()) return nothing_fits(instance, 1);
  auto result = compose(instance, *best, servers);
  if (result.ok()) result.value().considered = search.considered();
  return result;
}

}  // namespace windlass::chain
