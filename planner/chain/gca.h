// GCA: greedy cache allocation (Sun, He, Hou 2026, Alg. 2).
//
// Under a given placement: the fastest chain with room gets as many requests as its servers' caches hold, then the next
// fastest, until no chain has room. By Theorem 3.5 these are all the chains that JFFC ever needs. A path's state is only the
// next block, so the search runs over the at most L+1 blocks at which a server's range ends, not over pairs of servers. Links
// are dropped as soon as their server has no room for them, also those off the path just filled: Alg. 2 would find them later
// with capacity 0.
#pragma once

#include <optional>
#include <vector>

#include "planner/chain/placement.h"

namespace windlass::chain {

// Chains with their capacities, in the order of falling service rate (the order in which they are found). Empty: no full chain
// has room. Ties between equally fast chains go to the servers listed first.
[[nodiscard]] std::vector<ServerChain> gca(const Instance& instance, const Placement& placement);

// The same with the given cache slots per server in place of what memory leaves.
[[nodiscard]] std::vector<ServerChain> gca(const Instance& instance, const Placement& placement,
                                           const std::vector<long>& slots);

// The algorithm with its working memory: one chain at a time, so that a search may stop early, and for many placements.
//
// Shortest ways to the end are kept from chain to chain. Filling a chain only takes links away, so times only grow: a node is
// looked at again only when the link it had chosen is gone or leads to a node whose time grew.
class ChainFinder {
 public:
  explicit ChainFinder(const Instance& instance);  // borrows the instance

  // Begins a placement: clear(), add() every server that holds blocks, start().
  void clear() { members_.clear(); }
  void add(int server, BlockRange range, long slots);  // REQUIRES: range.blocks >= 1
  void start();

  struct Found {
    int capacity;           // c_k >= 1
    double service_time_s;  // T_k
  };
  // Finds the fastest chain with room and fills it. None: there is none.
  [[nodiscard]] std::optional<Found> next();
  // The chain of the last next(), with its servers.
  [[nodiscard]] ServerChain chain() const;

 private:
  // A server under this placement. It can take over at blocks from..last: with fewer slots left only later ones.
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

  // By node, in the order of their blocks; the first is block 1, the last is L+1.
  std::vector<int> block_;        // the next block to process
  std::vector<double> time_s_;    // to the end; infinite when there is no way
  std::vector<int> to_;           // the node after the chosen link; -1 when there is no way
  std::vector<int> by_;           // the member of that link
  std::vector<char> changed_;     // its time grew in the pass that goes on
  std::vector<int> members_end_;  // members that lead here: by_end_ from the node before's value up to this
  std::vector<int> by_end_;

  // The best member between two nodes: row per node, one column for each of the next widest_ nodes.
  std::vector<double> link_s_;  // infinite when no server goes there
  std::vector<int> link_by_;
  int widest_ = 0;

  std::vector<Hop> hops_;  // of the last chain
  Found found_{0, 0};
};

}  // namespace windlass::chain
