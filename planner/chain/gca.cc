// Allocates caches by GCA; see gca.h.
#include "planner/chain/gca.h"

#include <algorithm>
#include <cassert>
#include <limits>

namespace windlass::chain {

ChainFinder::ChainFinder(const Instance& instance)
    : instance_(instance), node_of_block_(static_cast<std::size_t>(instance.blocks) + 2) {}

void ChainFinder::add(int server, BlockRange range, long slots) {
  assert(range.blocks >= 1 && range.first >= 1 && range.last() <= instance_.blocks);
  const Server& of = instance_.servers[static_cast<std::size_t>(server)];
  const long reach = std::max(range.last() + 1 - slots, static_cast<long>(range.first));
  members_.push_back(Member{server, static_cast<int>(std::min(reach, range.last() + 1L)), range.last(), slots,
                            of.communication_s, of.block_s});
}

// Nodes are block 1 and every block just after a range.
void ChainFinder::collect_nodes() {
  std::fill(node_of_block_.begin(), node_of_block_.end(), 0);
  node_of_block_[1] = 1;
  node_of_block_.back() = 1;
  for (const Member& member : members_) node_of_block_[static_cast<std::size_t>(member.last) + 1] = 1;
  block_.clear();
  for (int block = 1; block < static_cast<int>(node_of_block_.size()); ++block) {
    // A block that is no node leads to the first node at or after it.
    const bool is_node = node_of_block_[static_cast<std::size_t>(block)] != 0;
    node_of_block_[static_cast<std::size_t>(block)] = nodes();
    if (is_node) block_.push_back(block);
  }
}

// Sorts members by the node that they lead to, with a counting sort.
void ChainFinder::sort_members() {
  members_end_.assign(block_.size(), 0);
  for (const Member& member : members_) ++members_end_[static_cast<std::size_t>(node_at(member.last + 1))];
  for (std::size_t v = 1; v < members_end_.size(); ++v) members_end_[v] += members_end_[v - 1];
  by_end_.resize(members_.size());
  for (std::size_t i = members_.size(); i-- > 0;) {
    by_end_[static_cast<std::size_t>(--members_end_[static_cast<std::size_t>(node_at(members_[i].last + 1))])] =
        static_cast<int>(i);
  }
  // Each value is now the start of its members: shift to get the end.
  for (std::size_t v = 0; v + 1 < members_end_.size(); ++v) members_end_[v] = members_end_[v + 1];
  members_end_.back() = static_cast<int>(members_.size());
}

// The member takes the link if it is faster, or equally fast and listed earlier.
void ChainFinder::offer(std::size_t link, int id, int blocks) {
  const Member& of = member(id);
  const double time_s = of.communication_s + of.block_s * blocks;
  if (time_s > link_s_[link] || (time_s == link_s_[link] && of.server > member(link_by_[link]).server)) return;
  link_s_[link] = time_s;
  link_by_[link] = id;
}

void ChainFinder::start() {
  collect_nodes();
  sort_members();
  widest_ = 1;
  for (const Member& member : members_) widest_ = std::max(widest_, node_at(member.last + 1) - node_at(member.from));
  link_s_.assign(block_.size() * static_cast<std::size_t>(widest_), kNever);
  link_by_.assign(link_s_.size(), -1);
  for (std::size_t i = 0; i < members_.size(); ++i) {
    const int v = node_at(members_[i].last + 1);
    for (int u = node_at(members_[i].from); u < v; ++u) {
      offer(link(u, v), static_cast<int>(i), block_[static_cast<std::size_t>(v)] - block_[static_cast<std::size_t>(u)]);
    }
  }
  time_s_.assign(block_.size(), kNever);
  other_s_.assign(block_.size(), kNever);
  to_.assign(block_.size(), -1);
  by_.assign(block_.size(), -1);
  changed_.assign(block_.size(), 0);
  time_s_.back() = 0;
  for (int u = nodes() - 2; u >= 0; --u) choose(u);
}

void ChainFinder::choose(int node) {
  const auto u = static_cast<std::size_t>(node);
  const auto links = static_cast<std::size_t>(std::min(widest_, nodes() - 1 - node));
  const double* const link_s = &link_s_[u * static_cast<std::size_t>(widest_)];
  const double* const to_s = &time_s_[u + 1];
  // The farthest node first: the time of the next one was computed last, and the steps do not wait for it then.
  double least_s = kNever, second_s = kNever;
  std::size_t chosen = 0;
  for (std::size_t i = links; i-- > 0;) {
    const double time_s = link_s[i] + to_s[i];
    second_s = std::min(second_s, std::max(least_s, time_s));
    chosen = time_s < least_s ? i : chosen;
    least_s = std::min(least_s, time_s);
  }
  time_s_[u] = least_s;
  other_s_[u] = second_s;
  to_[u] = by_[u] = -1;
  if (least_s == kNever) return;
  const int* const link_by = &link_by_[u * static_cast<std::size_t>(widest_)];
  if (second_s == least_s) {  // equally fast: the server listed first
    for (std::size_t i = 0; i < links; ++i) {
      if (link_s[i] + to_s[i] == least_s && member(link_by[i]).server < member(link_by[chosen]).server) chosen = i;
    }
  }
  by_[u] = link_by[chosen];
  to_[u] = node + 1 + static_cast<int>(chosen);
}

// Later nodes first. A node is looked at again, at most once, if its link is gone or leads to a node whose time grew. Its other
// links are only compared if the chosen one has become as slow as the second best was: they have not become faster.
void ChainFinder::refresh(int highest) {
  // Pointers in registers: stores to one array could change another vector, as far as the compiler knows.
  char* const changed = changed_.data();
  const int* const to = to_.data();
  for (int node = highest; node >= 0; --node) {
    if (to[node] < 0) continue;  // already unreachable: links only disappear
    if ((changed[node] | changed[to[node]]) == 0) continue;
    const auto u = static_cast<std::size_t>(node);
    const double before_s = time_s_[u];
    const std::size_t chosen = link(node, to[node]);
    const double time_s = link_s_[chosen] + time_s_[static_cast<std::size_t>(to[node])];
    if (time_s < other_s_[u]) {
      time_s_[u] = time_s;
      by_[u] = link_by_[chosen];
    } else {
      choose(node);
    }
    changed[node] = static_cast<char>(time_s_[u] != before_s);
  }
  std::fill(changed_.begin(), changed_.begin() + highest + 1, 0);
}

std::optional<ChainFinder::Found> ChainFinder::next() {
  if (to_.front() < 0) return std::nullopt;
  hops_.clear();
  const int *const to = to_.data(), *const by = by_.data(), *const block = block_.data();
  const Member* const members = members_.data();
  // The quotients as doubles, because whole ones take several times as long; their floors are exact.
  double least = std::numeric_limits<int>::max();
  for (int u = 0; to[u] >= 0; u = to[u]) {
    const int blocks = block[to[u]] - block[u];
    least = std::min(least, static_cast<double>(members[by[u]].slots) / blocks);
    hops_.push_back(Hop{by[u], blocks});
  }
  const auto capacity = static_cast<long>(least);
  found_ = Found{static_cast<int>(capacity), time_s_.front()};

  // Take the slots. Links that no longer fit are removed; if one was the best, the next best replaces it.
  int highest = -1;
  for (const Hop& hop : hops_) {
    Member& filled = members_[static_cast<std::size_t>(hop.member)];
    const int before = filled.from;
    filled.slots -= capacity * hop.blocks;
    if (filled.slots >= filled.last + 1 - before) continue;  // room for another request on each of its links
    filled.from = static_cast<int>(std::clamp(filled.last + 1 - filled.slots, static_cast<long>(before), filled.last + 1L));
    const int v = node_at(filled.last + 1);
    const int begin = members_end_[static_cast<std::size_t>(v - 1)], end = members_end_[static_cast<std::size_t>(v)];
    for (int u = node_at(before); u < v && block_[static_cast<std::size_t>(u)] < filled.from; ++u) {
      const std::size_t gone = link(u, v);
      if (link_by_[gone] != hop.member) continue;
      link_s_[gone] = kNever;
      link_by_[gone] = -1;
      const int block = block_[static_cast<std::size_t>(u)];
      for (int i = begin; i < end; ++i) {
        const int id = by_end_[static_cast<std::size_t>(i)];
        if (member(id).from <= block) offer(gone, id, block_[static_cast<std::size_t>(v)] - block);
      }
      if (to_[static_cast<std::size_t>(u)] != v) continue;
      changed_[static_cast<std::size_t>(u)] = 1;
      highest = std::max(highest, u);
    }
  }
  refresh(highest);
  return found_;
}

ServerChain ChainFinder::chain() const {
  ServerChain chain;
  for (const Hop& hop : hops_) {
    chain.servers.push_back(members_[static_cast<std::size_t>(hop.member)].server);
    chain.blocks.push_back(hop.blocks);
  }
  chain.capacity = found_.capacity;
  chain.service_time_s = service_time_s(instance_, chain.servers, chain.blocks);
  return chain;
}

std::vector<ServerChain> gca(const Instance& instance, const Placement& placement) {
  return gca(instance, placement, cache_slots(instance, placement));
}

std::vector<ServerChain> gca(const Instance& instance, const Placement& placement, const std::vector<long>& slots) {
  assert(placement.size() == instance.servers.size() && slots.size() == placement.size());
  ChainFinder allocation(instance);
  for (std::size_t j = 0; j < placement.size(); ++j) {
    if (placement[j].blocks > 0) allocation.add(static_cast<int>(j), placement[j], slots[j]);
  }
  allocation.start();
  std::vector<ServerChain> chains;
  while (allocation.next().has_value()) chains.push_back(allocation.chain());
  // Sums are in another order here than in the search, so equal times may differ in the last bit.
  std::stable_sort(chains.begin(), chains.end(),
                   [](const ServerChain& a, const ServerChain& b) { return a.service_time_s < b.service_time_s; });
  return chains;
}

}  // namespace windlass::chain
