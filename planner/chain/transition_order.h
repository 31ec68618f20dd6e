// The steps from one placement to another, and the order in which a full chain serves at every moment if any order has one.
// Part of recomposition; recompose.h says what steps and waves are. Pure and deterministic.
//
// While some server still has to drop before it can load, nothing speaks against loading first on all servers that can, and
// against keeping what they loaded and what they had until the end: more blocks are covered, never fewer. So only the order of
// the servers that drop first matters, and one after the other is as good as any: several at once are all without their blocks
// at the same time. Greedy takes the one that leaves most blocks on two servers; when it is stuck, Dijkstra's algorithm runs
// over the subsets of servers that are done, with the seconds without service as distances. Afterwards steps are put into one
// wave as far as that costs no service, and drops are moved to the front as far as that costs none: they free caches.
#pragma once

#include <vector>

#include "planner/chain/placement.h"

namespace windlass::chain {

// At most so many servers that drop first are tried in every order.
inline constexpr int kMaxExhaustiveServers = 20;

// What one server does in one wave: drops, then loads. Ranges in rising order; none is empty.
struct TransitionStep {
  int server = 0;
  std::vector<BlockRange> drops;
  std::vector<BlockRange> loads;
  double seconds = 0;  // blocks loaded * block GB / load GB per second

  bool operator==(const TransitionStep&) const = default;
};

struct TransitionWave {
  std::vector<TransitionStep> steps;    // in the order of the servers; one a server at most
  double seconds = 0;                   // its longest step
  double interrupted_s = 0;             // of these, without a full chain
  double total_service_rate_per_s = 0;  // at the beginning of the wave, its drops done; filled by recompose()

  bool operator==(const TransitionWave&) const = default;
};

// A server's change as a whole; servers that keep their range have none.
struct ServerChange {
  int server = 0;
  BlockRange before;    // blocks 0: it joins
  BlockRange after;     // blocks 0: it is not used any more
  BlockRange kept;      // in both; {1, 0} when there are none
  int held_blocks = 0;  // in either
  bool loads_first =
      false;  // holds all of these with the caches of one request on each, so that it need not drop before it loads

  bool operator==(const ServerChange&) const = default;
};

// In the order of the servers.
[[nodiscard]] std::vector<ServerChange> changes_between(const Instance& instance, const Placement& before,
                                                        const Placement& after);

// The parts of a range that are not in another: none, one or two.
[[nodiscard]] std::vector<BlockRange> without(const BlockRange& range, const BlockRange& other);

// Where every server is between its old range and its new one, and which blocks are covered.
class TransitionState {
 public:
  enum class Phase {
    kBefore,
    kLoading,    // serves the old range, with room kept for what it loads
    kBoth,       // serves both
    kReplacing,  // serves what is in both
    kAfter,
  };

  TransitionState(const Instance& instance, const Placement& before, std::vector<ServerChange> changes);

  [[nodiscard]] const std::vector<ServerChange>& changes() const { return changes_; }
  [[nodiscard]] Phase phase(std::size_t change) const { return phases_[change]; }
  void set(std::size_t change, Phase phase);

  void begin(const TransitionWave& wave);  // its drops done, its loads begun
  void end(const TransitionWave& wave);    // its loads done
  // Goes through a wave; returns for how long there is no full chain.
  double run(const TransitionWave& wave);

  [[nodiscard]] bool full_chain() const { return uncovered_ == 0; }
  [[nodiscard]] int servers_with(int block) const { return servers_with_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] int blocks_on_two() const { return twice_; }

  // The servers as chains see them: the range served and its cache slots. A server that serves two separate ranges stands
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
  bool proved = true;  // no order loses no service, if this one does; false: not all orders were tried
};

// Orders worth comparing by what they cost; all go from `before` to `after`, the first with as few waves as keep service up,
// then, up to 64 changes, one with one load at a time, and if service is lost, one with everything at once. Empty when nothing
// changes.
[[nodiscard]] std::vector<TransitionOrder> transition_orders(const Instance& instance, const Placement& before,
                                                             const Placement& after);

}  // namespace windlass::chain
