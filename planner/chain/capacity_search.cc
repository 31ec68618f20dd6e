// Searches for the best c; see capacity_search.h.
//
// A simple search would run GBP-CR and GCA for each of hundreds of values. This one is fast and exact for these reasons:
// - The placement changes only at values of c where some server's floor or the number of chains changes.
// - A relaxation that needs no cache allocation bounds every placement. With times that only fall and room that only grows as c
//   falls and grows, it also bounds whole ranges of c at once, most of which need no placement then.
// - GCA yields chains fastest first. So the chains found so far, and the relaxation of the room that is left, bound the result,
//   and most allocations end early.
#include "planner/chain/capacity_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

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
// Found chains between two computations of the bounds that look at every server.
constexpr int kChainsPerBound = 32;
// Instances with fewer different memories have few placements: bounds of ranges would cost more than they save.
constexpr std::size_t kLeastMemories = 32;

// The relaxation. Each of n requests keeps L caches somewhere, and a block takes at least the amortised time of its server.
// Taking the fastest caches first, the k-th request takes at least s(k) = L times the time of the k-th L caches, and any k
// requests together take at least s(1) + ... + s(k). So (majorisation; 1/x is convex and falling) n requests complete at a rate
// of at most 1/s(1) + ... + 1/s(n). That is concave in n, so by Jensen the mean number of requests is at least the n at which
// it reaches the arrival rate.
struct Room {
  double time_s;    // of a whole request
  double requests;  // whole requests: L caches each
};

// The least number of requests that complete rate_per_s; infinite if it is above `most`, or if there is too little room.
// `room_at`: by rising time.
template <class RoomAt>
double least_requests(std::size_t count, const RoomAt& room_at, double rate_per_s, double most) {
  double requests = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const Room room = room_at(i);
    const double wanted = rate_per_s * room.time_s;
    if (wanted <= room.requests) return requests + wanted <= most ? requests + wanted : kNever;
    requests += room.requests;
    rate_per_s -= room.requests / room.time_s;
  }
  return kNever;
}

// The largest rate at which `most` requests complete.
template <class RoomAt>
double largest_rate_per_s(std::size_t count, const RoomAt& room_at, double most) {
  double rate_per_s = 0;
  for (std::size_t i = 0; i < count && most > 0; ++i) {
    const Room room = room_at(i);
    const double requests = std::min(room.requests, most);
    rate_per_s += requests / room.time_s;
    most -= requests;
  }
  return rate_per_s;
}

struct Bounds {
  double floor_s;         // of the mean response; infinite: certainly unstable
  double max_rate_per_s;  // of the total service rate
};

// Evaluates values of c and keeps the best.
class CapacitySearch {
 public:
  CapacitySearch(const Instance& instance, Tuning tuning, Servers servers)
      : instance_(instance),
        tuning_(tuning),
        stops_(servers == Servers::kAsNeeded || tuning == Tuning::kSurrogate),
        lambda_(instance.arrival_rate_per_s),
        greedy_(instance),
        finder_(instance),
        slots_(instance.servers.size()),
        density_(static_cast<std::size_t>(instance.blocks) + 2) {}

  [[nodiscard]] std::optional<BestCapacity> run() {
    make_ranges();
    int best = tuning_ == Tuning::kSurrogate ? best_by_surrogate() : best_by_bound();
    if (best == 0) best = largest_rate();
    if (best == 0) return std::nullopt;
    std::sort(considered_.begin(), considered_.end(), [](const auto& a, const auto& b) { return a.capacity < b.capacity; });
    return BestCapacity{best, std::move(considered_)};
  }

 private:
  struct Candidate {
    int capacity;
    Bounds bounds;
    double surrogate;  // c K(c); infinite if undefined
    bool tried = false;
  };

  // Values of c from first to last. Their bounds hold for each of them.
  struct Range {
    int first, last;
    Bounds bounds;
    bool collected = false;
  };

  // The chains of an allocation found so far.
  struct Found {
    int chains = 0;
    double requests = 0;
    double rate_per_s = 0;
    double time_s = 0;  // of the last chain; later ones take at least as long

    void add(const ChainFinder::Found& chain) {
      ++chains;
      requests += chain.capacity;
      time_s = chain.service_time_s;
      rate_per_s += chain.capacity / time_s;
    }
  };

  void make_ranges() {
    const int most = max_capacity(instance_);
    constexpr double kGrowth = 1.4;
    constexpr int kShortest = 8;
    const bool bounded = tuning_ != Tuning::kSurrogate && greedy_.memories() >= kLeastMemories;
    for (int first = 1; first <= most;) {
      const double last = bounded ? std::max<double>(first + kShortest, first * kGrowth) - 1 : most;
      ranges_.push_back(Range{first, static_cast<int>(std::min<double>(last, most)), {0, kNever}});
      if (bounded) ranges_.back().bounds = bounds_of(ranges_.back());
      first = ranges_.back().last + 1;
    }
  }

  // As c grows, a server holds fewer blocks: its amortised time and its cache slots grow. So no c of the range has shorter
  // times than the first or more slots than the last.
  [[nodiscard]] Bounds bounds_of(const Range& range) {
    greedy_.set_capacity(range.first);
    greedy_.place(kNever);
    const auto room_at = [&](std::size_t i) {
      const int server = greedy_.server(i);
      const double memory_gb = instance_.servers[static_cast<std::size_t>(server)].memory_gb;
      const int blocks = std::max(1, blocks_for_capacity(instance_, memory_gb, range.last));
      return Room{instance_.blocks * greedy_.amortised_s(i),
                  static_cast<double>(cache_slots(instance_, server, blocks)) / instance_.blocks};
    };
    return Bounds{least_requests(greedy_.placed(), room_at, lambda_ / kSlack, kNever) / lambda_,
                  largest_rate_per_s(greedy_.placed(), room_at, kNever)};
  }

  // Collects every c of the range at which GBP-CR's placement changes. Between two of them the chains are the same, so the
  // smallest c represents them.
  void collect(Range& range) {
    range.collected = true;
    bool first = range.first == 1;
    if (!first) place(range.first - 1);
    std::size_t placed = greedy_.placed();
    bool reached = greedy_.reaches_rate();
    for (int capacity = range.first; capacity <= range.last; capacity = greedy_.next_change(range.last, stops_)) {
      const bool moved = place(capacity);
      // The stop rule may start to apply without a change of the chains; then c K(c) becomes defined.
      const bool same = !first && !moved && greedy_.placed() == placed && greedy_.reaches_rate() == reached;
      if (!same && !greedy_.chain_ends().empty()) candidates_.push_back(candidate(capacity));
      first = false;
      placed = greedy_.placed();
      reached = greedy_.reaches_rate();
    }
  }

  // Of the last place(). The slots are cached by server.
  [[nodiscard]] long slots(std::size_t at) {
    const int server = greedy_.server(at), blocks = greedy_.range(at).blocks;
    auto& known = slots_[static_cast<std::size_t>(server)];
    if (known.first != blocks) known = {blocks, cache_slots(instance_, server, blocks)};
    return known.second;
  }

  [[nodiscard]] Candidate candidate(int capacity) {
    const auto room_at = [&](std::size_t i) {
      return Room{instance_.blocks * greedy_.amortised_s(i), static_cast<double>(slots(i)) / instance_.blocks};
    };
    const double most = most_requests();
    const double surrogate = greedy_.reaches_rate() ? capacity * static_cast<double>(greedy_.chain_ends().size()) : kNever;
    return Candidate{capacity,
                     {least_requests(greedy_.placed(), room_at, lambda_ / kSlack, most) / lambda_,
                      largest_rate_per_s(greedy_.placed(), room_at, most)},
                     surrogate};
  }

  // An upper bound of the total capacity C of the last place(). A request that a server takes over at one of its blocks takes
  // slots for all blocks from there to its last. So a server with m blocks processes each of its first b blocks at most as
  // often as `slots / m`, on average over them, and the requests are at most the sum over the servers, averaged over the first
  // y blocks of the model, for any y. For y = 1 they are whole numbers, since a chain starts at the first block of a server.
  [[nodiscard]] double most_requests() {
    std::fill(density_.begin(), density_.end(), 0);
    long first_block = 0;
    for (std::size_t i = 0; i < greedy_.placed(); ++i) {
      const BlockRange range = greedy_.range(i);
      const long has = slots(i);
      if (range.first == 1) first_block += has / range.blocks;
      const double density = static_cast<double>(has) / range.blocks;
      density_[static_cast<std::size_t>(range.first)] += density;
      density_[static_cast<std::size_t>(range.last()) + 1] -= density;
    }
    auto most = static_cast<double>(first_block);
    double density = 0, sum = 0;
    for (int y = 1; y <= instance_.blocks; ++y) {
      density += density_[static_cast<std::size_t>(y)];
      sum += density;
      if (y > 1 && sum * kSlack < most * y) most = sum / y * kSlack;
    }
    return most;
  }

  // Returns whether a server's number of blocks changed since the last call.
  bool place(int capacity) {
    const bool moved = greedy_.set_capacity(capacity);
    greedy_.place(stops_ ? required_scaled_rate_per_s(instance_, capacity) : kNever);
    return moved;
  }

  void allocate(int capacity) {
    place(capacity);
    most_ = most_requests();
    finder_.clear();
    for (std::size_t i = 0; i < greedy_.placed(); ++i) finder_.add(greedy_.server(i), greedy_.range(i), slots(i));
    finder_.start();
  }

  // Calls evaluate(c) for every c, except those whose bounds cannot win. `key`: of bounds, smaller is more promising;
  // `loses`: whether it cannot win, which is monotone in the key. A good c is evaluated before most others are even placed.
  template <class Key, class Loses, class Evaluate>
  void search(const Key& key, const Loses& loses, const Evaluate& evaluate) {
    const auto by_key = [&](const auto& a, const auto& b) { return key(a.bounds) < key(b.bounds); };
    const auto consider = [&](Candidate& candidate) {
      if (std::exchange(candidate.tried, true) || loses(key(candidate.bounds))) return;
      evaluate(candidate.capacity);
    };
    bool begun = false;
    const auto begin = [&] {
      if (!begun && !candidates_.empty()) consider(*std::min_element(candidates_.begin(), candidates_.end(), by_key));
      begun = !candidates_.empty();
    };
    for (Candidate& candidate : candidates_) candidate.tried = false;
    begin();
    std::stable_sort(ranges_.begin(), ranges_.end(), by_key);
    for (Range& range : ranges_) {
      if (loses(key(range.bounds))) break;
      if (range.collected) continue;
      collect(range);
      begin();
    }
    // The most promising ones set the standard. The others follow in the order of c, since placements next to each other have
    // almost the same order of servers.
    constexpr std::size_t kFirstTries = 4;
    const auto others = candidates_.begin() + static_cast<std::ptrdiff_t>(std::min(kFirstTries, candidates_.size()));
    std::partial_sort(candidates_.begin(), others, candidates_.end(), by_key);
    std::sort(others, candidates_.end(), [](const auto& a, const auto& b) { return a.capacity < b.capacity; });
    for (Candidate& candidate : candidates_) consider(candidate);
  }

  [[nodiscard]] int best_by_surrogate() {
    for (Range& range : ranges_) collect(range);
    for (const Candidate& candidate : candidates_) {
      if (candidate.surrogate < kNever) judge(candidate.capacity, candidate.surrogate);
    }
    return smallest_best();
  }

  [[nodiscard]] int best_by_bound() {
    search([](const Bounds& bounds) { return bounds.floor_s; },
           [&](double floor_s) { return floor_s == kNever || floor_s > objective_ * kSlack; },
           [&](int capacity) {
             allocate(capacity);
             const auto bound = tuning_ == Tuning::kLowerBound ? lower_bound_s() : upper_bound_s();
             if (bound.has_value()) judge(capacity, *bound);
           });
    return smallest_best();
  }

  // No c is sufficient: choose the one with the largest rate. 0: none gives a full chain.
  [[nodiscard]] int largest_rate() {
    std::vector<std::pair<int, double>> rates;
    double largest_per_s = 0;
    search([](const Bounds& bounds) { return -bounds.max_rate_per_s; },
           [&](double key) { return -key * kSlack < largest_per_s; },
           [&](int capacity) {
             allocate(capacity);
             const auto rate_per_s = total_rate_per_s(largest_per_s);
             if (!rate_per_s.has_value()) return;
             rates.emplace_back(capacity, *rate_per_s);
             largest_per_s = std::max(largest_per_s, *rate_per_s);
           });
    int largest = 0;
    for (const auto& [capacity, rate_per_s] : rates) {
      if (rate_per_s * kSame >= largest_per_s && (largest == 0 || capacity < largest)) largest = capacity;
    }
    return largest;
  }

  // The room that the found chains leave.
  [[nodiscard]] Room rest_at(std::size_t i) const {
    return Room{instance_.blocks * greedy_.amortised_s(i), static_cast<double>(finder_.slots(i)) / instance_.blocks};
  }

  // Whether the demand will not be reached, or only by more requests than the best c has on average. Each further request takes
  // at least as long as the last chain.
  [[nodiscard]] bool hopeless(const Found& found) const {
    const double missing_per_s = lambda_ / kSlack - found.rate_per_s;
    if (missing_per_s <= 0) return false;
    const double most = std::min(most_, objective_ * lambda_ * kSlack) - found.requests;
    if (missing_per_s * found.time_s > most) return true;
    if (found.chains % kChainsPerBound != 0) return false;
    return least_requests(
               greedy_.placed(), [&](std::size_t i) { return rest_at(i); }, missing_per_s, most) == kNever;
  }

  // None: certainly below `least_per_s`.
  [[nodiscard]] std::optional<double> total_rate_per_s(double least_per_s) {
    Found found;
    while (const auto chain = finder_.next()) {
      found.add(*chain);
      const double more = most_ - found.requests;
      if ((found.rate_per_s + more / found.time_s) * kSlack < least_per_s) return std::nullopt;
      if (found.chains % kChainsPerBound != 0) continue;
      const double rest_per_s = largest_rate_per_s(
          greedy_.placed(), [&](std::size_t i) { return rest_at(i); }, more);
      if ((found.rate_per_s + rest_per_s) * kSlack < least_per_s) return std::nullopt;
    }
    return found.rate_per_s;
  }

  // None: unstable, or certainly worse than the best.
  [[nodiscard]] std::optional<double> lower_bound_s() {
    OccupancySum sum(lambda_);
    Found found;
    while (const auto chain = finder_.next()) {
      found.add(*chain);
      if (!sum.add(1 / found.time_s, chain->capacity)) break;
      if (sum.mean_so_far() > objective_ * lambda_ * kSlack || hopeless(found)) return std::nullopt;
    }
    const auto mean = sum.mean();
    return mean ? std::optional(*mean / lambda_) : std::nullopt;
  }

  [[nodiscard]] std::optional<double> upper_bound_s() {
    rates_.clear();
    Found found;
    while (const auto chain = finder_.next()) {
      found.add(*chain);
      rates_.push_back(ChainRate{1 / found.time_s, chain->capacity});
      if (hopeless(found)) return std::nullopt;  // the upper bound is above the lower
      const bool due = objective_ < kNever && found.rate_per_s > lambda_ && found.chains % kChainsPerBound == 0;
      if (due && least_upper() > objective_ * lambda_ * kSlack) return std::nullopt;
    }
    return mean_response_upper_s(rates_, lambda_);
  }

  // What the upper bound's mean number of requests will be at least. Its process fills the slowest slots first. Later chains
  // are slower, so they only make it slower: it is at least as slow as with the chains found so far, slowest first, and then as
  // many slots as it needs, as fast as the last of them.
  [[nodiscard]] double least_upper() const {
    OccupancySum sum(lambda_);
    for (auto chain = rates_.rbegin(); chain != rates_.rend(); ++chain) {
      if (!sum.add(chain->service_rate_per_s, chain->capacity)) return *sum.mean();
    }
    constexpr long kMany = 1 << 20;
    while (sum.add(rates_.back().service_rate_per_s, kMany)) {
    }
    return *sum.mean();
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
  const double lambda_;
  GreedyPlacement greedy_;
  ChainFinder finder_;
  std::vector<Range> ranges_;
  std::vector<Candidate> candidates_;
  std::vector<ChainRate> rates_;
  std::vector<ConsideredCapacity> considered_;
  std::vector<std::pair<int, long>> slots_;  // by server: a number of blocks, and the cache slots next to them
  std::vector<double> density_;              // scratch
  double most_ = 0;                          // requests, at most, of the last allocate()
  double objective_ = kNever;
};

}  // namespace

std::optional<BestCapacity> best_capacity(const Instance& instance, Tuning tuning, Servers servers) {
  return CapacitySearch(instance, tuning, servers).run();
}

}  // namespace windlass::chain
