// See hexgen2_flow.h.
#include "planner/strategies/hexgen2/hexgen2_flow.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/push_relabel_max_flow.hpp>

namespace windlass::hetero {

std::int64_t flow_units(double requests_per_s) {
  return static_cast<std::int64_t>(std::floor(std::min(requests_per_s, 1e6) * kFlowUnitsPerRequest));
}

Flow preflow_push(const FlowNetwork& network) {
  using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
  struct EdgeValues {
    std::int64_t capacity = 0, residual = 0;
    Traits::edge_descriptor reverse;
  };
  using Graph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, boost::no_property, EdgeValues>;
  const std::size_t prefills = network.prefill.size(), decodes = network.decode.size();
  Flow flow;
  flow.edges.assign(prefills * decodes, 0);
  if (prefills == 0 || decodes == 0) return flow;
  // Source, sink, then the in and out nodes of each prefill group, then of each decode group.
  const std::size_t source = 0, sink = 1;
  Graph graph(2 + 2 * (prefills + decodes));
  const auto prefill_in = [](std::size_t p) { return 2 + 2 * p; };
  const auto decode_in = [&](std::size_t d) { return 2 + 2 * (prefills + d); };
  const auto join = [&](std::size_t from, std::size_t to, std::int64_t capacity) {
    const Traits::edge_descriptor there = boost::add_edge(from, to, graph).first;
    const Traits::edge_descriptor back = boost::add_edge(to, from, graph).first;
    graph[there].capacity = capacity;
    graph[there].reverse = back;
    graph[back].reverse = there;
    return there;
  };
  // Larger than any flow; used as infinite.
  const std::int64_t infinite = std::accumulate(network.prefill.begin(), network.prefill.end(), std::int64_t{1});
  for (std::size_t p = 0; p < prefills; ++p) {
    join(source, prefill_in(p), infinite);
    join(prefill_in(p), prefill_in(p) + 1, network.prefill[p]);
  }
  for (std::size_t d = 0; d < decodes; ++d) {
    join(decode_in(d), decode_in(d) + 1, network.decode[d]);
    join(decode_in(d) + 1, sink, infinite);
  }
  std::vector<std::pair<std::size_t, Traits::edge_descriptor>> crossing;
  for (std::size_t p = 0; p < prefills; ++p) {
    for (std::size_t d = 0; d < decodes; ++d) {
      const std::int64_t capacity = network.edges[p * decodes + d];
      if (capacity > 0) crossing.emplace_back(p * decodes + d, join(prefill_in(p) + 1, decode_in(d), capacity));
    }
  }
  flow.value = boost::push_relabel_max_flow(graph, source, sink, boost::get(&EdgeValues::capacity, graph),
                                            boost::get(&EdgeValues::residual, graph), boost::get(&EdgeValues::reverse, graph),
                                            boost::get(boost::vertex_index, graph));
  for (const auto& [index, edge] : crossing) flow.edges[index] = graph[edge].capacity - graph[edge].residual;
  return flow;
}

std::int64_t& BipartiteFlow::residual(std::size_t p, std::size_t d) {
  std::int64_t& left = residual_[p * decodes_ + d];
  if (left < 0) left = (*edge_)(p, d);
  return left;
}

std::int64_t BipartiteFlow::solve(const std::vector<std::int64_t>& prefill, const std::vector<std::int64_t>& decode,
                                  const EdgeCapacity& edge) {
  prefills_ = prefill.size();
  decodes_ = decode.size();
  edge_ = &edge;
  prefill_left_ = prefill;
  decode_left_ = decode;
  residual_.assign(prefills_ * decodes_, -1);
  flow_.assign(prefills_ * decodes_, 0);
  const std::int64_t most = std::min(std::accumulate(prefill.begin(), prefill.end(), std::int64_t{0}),
                                     std::accumulate(decode.begin(), decode.end(), std::int64_t{0}));
  std::int64_t value = 0;
  // Greedy: send each prefill group's flow to the decode groups that have room, in order.
  std::vector<std::size_t>& open = queue_;
  open.resize(decodes_);
  std::iota(open.begin(), open.end(), std::size_t{0});
  for (std::size_t p = 0; p < prefills_ && !open.empty(); ++p) {
    std::size_t kept = 0, at = 0;
    for (; at < open.size() && prefill_left_[p] > 0; ++at) {
      const std::size_t d = open[at];
      const std::int64_t amount = std::min({prefill_left_[p], decode_left_[d], residual(p, d)});
      if (amount > 0) {
        prefill_left_[p] -= amount;
        decode_left_[d] -= amount;
        residual(p, d) -= amount;
        flow(p, d) += amount;
        value += amount;
      }
      if (decode_left_[d] > 0) open[kept++] = d;
    }
    if (kept < at) open.erase(open.begin() + static_cast<std::ptrdiff_t>(kept), open.begin() + static_cast<std::ptrdiff_t>(at));
  }
  while (value < most && make_levels()) {
    prefill_arc_.assign(prefills_, 0);
    decode_arc_.assign(decodes_, 0);
    for (std::size_t p = 0; p < prefills_; ++p) {
      if (prefill_level_[p] != 0 || prefill_left_[p] == 0) continue;
      const std::int64_t amount = push_from(p, prefill_left_[p]);
      prefill_left_[p] -= amount;
      value += amount;
    }
  }
  return value;
}

// Breadth-first search from prefill groups with capacity left; true if it reaches a decode group with capacity left.
bool BipartiteFlow::make_levels() {
  prefill_level_.assign(prefills_, -1);
  decode_level_.assign(decodes_, -1);
  queue_.clear();
  for (std::size_t p = 0; p < prefills_; ++p) {
    if (prefill_left_[p] > 0) prefill_level_[p] = 0, queue_.push_back(p);
  }
  std::vector<std::size_t> unseen(decodes_), reached;
  std::iota(unseen.begin(), unseen.end(), std::size_t{0});
  bool found = false;
  for (int level = 1; !queue_.empty() && !found; level += 2) {
    reached.clear();
    for (const std::size_t p : queue_) {
      std::size_t kept = 0;
      for (const std::size_t d : unseen) {
        if (residual(p, d) > 0) {
          decode_level_[d] = level;
          reached.push_back(d);
          found = found || decode_left_[d] > 0;
        } else {
          unseen[kept++] = d;
        }
      }
      unseen.resize(kept);
    }
    if (found) break;
    queue_.clear();
    for (const std::size_t d : reached) {
      for (std::size_t p = 0; p < prefills_; ++p) {
        if (prefill_level_[p] >= 0 || flow(p, d) == 0) continue;
        prefill_level_[p] = level + 1;
        queue_.push_back(p);
      }
    }
  }
  return found;
}

std::int64_t BipartiteFlow::push_from(std::size_t p, std::int64_t most) {
  std::int64_t sum = 0;
  for (std::size_t& d = prefill_arc_[p]; d < decodes_; ++d) {
    if (decode_level_[d] != prefill_level_[p] + 1) continue;
    const std::int64_t amount = std::min(most - sum, residual(p, d));
    const std::int64_t pushed = amount > 0 ? push_into(d, amount) : 0;
    residual(p, d) -= pushed;
    flow(p, d) += pushed;
    sum += pushed;
    if (sum == most) break;
  }
  return sum;
}

std::int64_t BipartiteFlow::push_into(std::size_t d, std::int64_t most) {
  std::int64_t sum = std::min(most, decode_left_[d]);
  decode_left_[d] -= sum;
  for (std::size_t& p = decode_arc_[d]; sum < most && p < prefills_; ++p) {
    if (prefill_level_[p] != decode_level_[d] + 1 || flow(p, d) == 0) continue;
    const std::int64_t pushed = push_from(p, std::min(most - sum, flow(p, d)));
    flow(p, d) -= pushed;
    residual(p, d) += pushed;
    sum += pushed;
    if (sum == most) break;
  }
  return sum;
}

}  // namespace windlass::hetero
