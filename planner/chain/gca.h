// GCA decides how many requests each chain of servers may hold at once: greedy cache allocation (Sun, He, Hou 2026, Alg. 2).
//
// The fastest chain of a given placement gets as many requests as the caches of its servers hold. Then comes the next fastest
// chain, until no chain has room. By Theorem 3.5 JFFC never needs other chains.
//
// The state of a path is only the next block. So the search runs over the at most L+1 blocks at which a server's range ends,
// and not over pairs of servers. A link is removed as soon as its server has no room for it, even if the link is not on the
// path just filled. Alg. 2 would find such links later, with capacity 0.
#pragma once

#include <optional>
#include <vector>

#include "planner/chain/placement.h"

namespace windlass::chain {

// Returns chains with capacities, sorted by falling service rate (the order in which they are found). Empty: no full chain has
// room. Ties between equally fast chains go to the servers listed first.
[[nodiscard]] std::vector<ServerChain> gca(const Instance& instance, const Placement& placement);

// The same with the given cache slots per server, instead of those that memory leaves.
[[nodiscard]] std::vector<ServerChain> gca(const Instance& instance, const Placement& placement,
                                           const std::vector<long>& slots);

// The algorithm with reusable memory. It returns one chain at a time, so that a search may stop early, and can be reused for
// many placements.
//
// It keeps the shortest paths to the end from chain to chain. Filling a chain only removes links, so times only grow: a node is
// reconsidered only if its chosen link is gone or leads to a node whose time grew, and only if that makes it slower than the
// second best link was.
class ChainFinder {
 public:
  explicit ChainFinder(const Instance& instance);  // borrows the instance

  // To start a placement: clear(), add() every server that holds blocks, start().
  void clear() { members_.clear(); }
  void add(int server, BlockRange range, long slots);  // REQUIRES: range.blocks >= 1
  void start();

  struct Found {
    int capacity;           // c_k >= 1
    double service_time_s;  // T_k
  };
  // Finds the fastest chain with room and fills it. None if there is none.
  [[nodiscard]] std::optional<Found> next();
  // The chain returned by the last next(), with its servers.
  [[nodiscard]] ServerChain chain() const;
  // The free slots of the server added at this position.
  [[nodiscard]] long slots(std::size_t at) const { return members_[at].slots; }

 private:
  // A server under this placement. It can take over at blocks from..last; with fewer slots left, only at later ones.
  struct Member {
    int server;
    int from;
    int last;
    long slots;
    double communication_s, block_s;
  };
  struct Hop {
    int member;
    int blocks;
  };

  [[nodiscard]] int nodes() const { return static_cast<int>(block_.size()); }
  [[nodiscard]] int node_at(int block) const { return node_of_block_[static_cast<std::size_t>(block)]; }
  [[nodiscard]] std::size_t link(int from, int to) const { return static_cast<std::size_t>(from * widest_ + to - from - 1); }
  [[nodiscard]] const Member& member(int id) const { return members_[static_cast<std::size_t>(id)]; }
  void collect_nodes();
  void sort_members();
  void offer(std::size_t link, int id, int blocks);
  void choose(int node);
  void refresh(int highest);

  const Instance& instance_;
  std::vector<Member> members_;
  std::vector<int> node_of_block_;

  // By node, in block order; the first is block 1, the last is L+1.
  std::vector<int> block_;        // the next block to process
  std::vector<double> time_s_;    // to the end; infinite if unreachable
  std::vector<double> other_s_;   // a lower bound of it by any link but the chosen one
  std::vector<int> to_;           // the node after the chosen link; -1 if unreachable
  std::vector<int> by_;           // the member of that link
  std::vector<char> changed_;     // its time grew in the current pass
  std::vector<int> members_end_;  // members that lead here: by_end_ from the value of the previous node up to this one
  std::vector<int> by_end_;

  // The best member between two nodes: one row per node, one column for each of the next widest_ nodes.
  std::vector<double> link_s_;  // infinite if no server covers the link
  std::vector<int> link_by_;
  int widest_ = 0;

  std::vector<Hop> hops_;  // of the last chain
  Found found_{0, 0};
};

}  // namespace windlass::chain
