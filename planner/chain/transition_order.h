// Plans the steps from one placement to another, in an order that keeps a full chain at every moment if any order does. Part of
// recomposition; recompose.h defines steps and waves. Pure and deterministic.
//
// Servers that can load before they drop do so first, and keep both their old and new blocks until the end. This only covers
// more blocks, so it is best while some other server still has to drop before it can load. So only the order of the servers
// that drop first matters. Changing one at a time is as good as any order, because servers that change together are all without
// their blocks at the same time.
//
// The greedy search takes the server whose change leaves most blocks on two servers. If it is stuck, Dijkstra's algorithm
// searches the subsets of changed servers, with seconds without service as distance. Afterwards, steps are merged into waves if
// that costs no service. Drops move to the front if that costs none, because they free caches.
#pragma once

#include <vector>

#include "planner/chain/placement.h"

namespace windlass::chain {

// Maximum number of servers that drop first for which every order is tried.
inline constexpr int kMaxExhaustiveServers = 20;

// What one server does in one wave: drops, then loads. Ranges are ascending and non-empty.
struct TransitionStep {
  int server = 0;
  std::vector<BlockRange> drops;
  std::vector<BlockRange> loads;
  double seconds = 0;  // blocks loaded * block GB / load GB per second

  bool operator==(const TransitionStep&) const = default;
};

struct TransitionWave {
  std::vector<TransitionStep> steps;    // in server order; at most one per server
  double seconds = 0;                   // its longest step
  double interrupted_s = 0;             // part of it without a full chain
  double total_service_rate_per_s = 0;  // at the beginning of the wave, after its drops; set by recompose()

  bool operator==(const TransitionWave&) const = default;
};

// The whole change of a server; servers that keep their range have none.
struct ServerChange {
  int server = 0;
  BlockRange before;    // blocks 0: a new server
  BlockRange after;     // blocks 0: no longer used
  BlockRange kept;      // in both ranges; {1, 0} if none
  int held_blocks = 0;  // in either range
  bool loads_first =
      false;  // it can hold all of these with the caches of one request on each, so it need not drop before it loads

  bool operator==(const ServerChange&) const = default;
};

// In server order.
[[nodiscard]] std::vector<ServerChange> changes_between(const Instance& instance, const Placement& before,
                                                        const Placement& after);

// The parts of a range that are not in another: none, one or two.
[[nodiscard]] std::vector<BlockRange> without(const BlockRange& range, const BlockRange& other);

// Where every server is between its old and new range, and which blocks are covered.
class TransitionState {
 public:
  enum class Phase {
    kBefore,
    kLoading,    // serves the old range, and reserves room for what it loads
    kBoth,       // serves both ranges
    kReplacing,  // serves the blocks in both ranges
    kAfter,
  };

  TransitionState(const Instance& instance, const Placement& before, std::vector<ServerChange> changes);

  [[nodiscard]] const std::vector<ServerChange>& changes() const { return changes_; }
  [[nodiscard]] Phase phase(std::size_t change) const { return phases_[change]; }
  void set(std::size_t change, Phase phase);

  void begin(const TransitionWave& wave);  // after its drops, at the start of its loads
  void end(const TransitionWave& wave);    // after its loads
  // Runs a wave; returns how long there is no full chain.
  double run(const TransitionWave& wave);

  [[nodiscard]] bool full_chain() const { return uncovered_ == 0; }
  [[nodiscard]] int servers_with(int block) const { return servers_with_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] int blocks_on_two() const { return twice_; }

  // The servers for composing chains: the range served and its cache slots. A server that serves two separate ranges appears
  // twice, the second time at the end, with its slots divided between them.
  struct View {
    Instance instance;
    Placement placement;
    std::vector<long> slots;
  };
  [[nodiscard]] View view() const;

 private:
  void count(std::size_t change, int sign);
  void count(const BlockRange& range, int sign);
  void finish(const TransitionStep& step);

  const Instance& instance_;
  Placement before_;
  std::vector<ServerChange> changes_;
  std::vector<Phase> phases_;
  std::vector<int> change_of_server_;  // -1: none
  std::vector<int> servers_with_;      // by block
  int uncovered_ = 0;
  int twice_ = 0;
};

struct TransitionOrder {
  std::vector<TransitionWave> waves;
  double interrupted_s = 0;
  bool proved = true;  // no other order loses less service; false: not all orders were tried
};

// Orders worth comparing by cost, all from `before` to `after`: first the one with as few waves as keep service up; then, for
// up to 64 changes, one with one load at a time; and, if service is lost, one with everything together. Empty if nothing
// changes.
[[nodiscard]] std::vector<TransitionOrder> transition_orders(const Instance& instance, const Placement& before,
                                                             const Placement& after);

}  // namespace windlass::chain
