// HexGen-2's flow network: prefill groups, decode groups, and the KV caches transferred between them (Section 3.3).
//
// Requests flow from the coordinator through a prefill group and a decode group back to the coordinator. A group is two nodes
// joined by an edge of its capacity; the coordinator's edges are infinite. Capacities are integers, in requests per 10^9
// seconds, so flows are exact. preflow_push() is the paper's algorithm and gives the plan's flow. BipartiteFlow computes the
// same value faster, for searches that need it for thousands of similar networks: most are full after a greedy pass that looks
// at few edges. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace windlass::hetero {

inline constexpr double kFlowUnitsPerRequest = 1e9;
// Converts to flow units, rounded down; at most a million requests/s.
[[nodiscard]] std::int64_t flow_units(double requests_per_s);

struct FlowNetwork {
  std::vector<std::int64_t> prefill;  // capacity of each prefill group
  std::vector<std::int64_t> decode;   // of each decode group
  std::vector<std::int64_t> edges;    // of each pair, at index prefill * decode.size() + decode
};

struct Flow {
  std::int64_t value = 0;
  std::vector<std::int64_t> edges;  // indexed like FlowNetwork's
};

// Boost's push_relabel_max_flow (Cheriyan and Maheshwari's highest label first) on the network with split nodes.
[[nodiscard]] Flow preflow_push(const FlowNetwork& network);

// Dinitz' algorithm after a greedy pass. Stops as soon as either side is full. Reuses its memory between calls.
class BipartiteFlow {
 public:
  using EdgeCapacity = std::function<std::int64_t(std::size_t prefill, std::size_t decode)>;

  // Calls `edge` at most once per pair.
  std::int64_t solve(const std::vector<std::int64_t>& prefill, const std::vector<std::int64_t>& decode,
                     const EdgeCapacity& edge);

  // After solve(): remaining capacity of each group.
  [[nodiscard]] const std::vector<std::int64_t>& prefill_left() const { return prefill_left_; }
  [[nodiscard]] const std::vector<std::int64_t>& decode_left() const { return decode_left_; }

 private:
  std::int64_t& residual(std::size_t p, std::size_t d);
  std::int64_t& flow(std::size_t p, std::size_t d) { return flow_[p * decodes_ + d]; }
  bool make_levels();
  std::int64_t push_from(std::size_t p, std::int64_t most);
  std::int64_t push_into(std::size_t d, std::int64_t most);

  std::size_t prefills_ = 0, decodes_ = 0;
  const EdgeCapacity* edge_ = nullptr;
  std::vector<std::int64_t> prefill_left_, decode_left_;
  std::vector<std::int64_t> residual_;  // -1: not computed yet
  std::vector<std::int64_t> flow_;
  std::vector<int> prefill_level_, decode_level_;
  std::vector<std::size_t> prefill_arc_, decode_arc_, queue_;
};

}  // namespace windlass::hetero
