// DispatchPolicy: which chain a request goes to, or that it waits. The gateway and the simulator run the same code.
//
// A policy is pure: it sees the state of the chains and answers. The caller owns the central queue and the counts, calls
// choose() when a request arrives and, after a completion or a change of the table, again for the head of the queue until the
// answer is "wait".
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace windlass::dispatch {

struct ChainState {
  double service_rate_per_s = 0;  // of one slot (mu_k)
  int capacity = 0;               // c_k
  int in_flight = 0;              // Z_k; may exceed the capacity after it was lowered
  bool draining = false;          // takes no new request

  [[nodiscard]] bool has_free_slot() const { return !draining && in_flight < capacity; }
};

class DispatchPolicy {
 public:
  virtual ~DispatchPolicy() = default;

  // The index of the chain that takes the next request, or none: it waits in the central queue. A chosen chain is not draining.
  [[nodiscard]] virtual std::optional<std::size_t> choose(std::span<const ChainState> chains) const = 0;
};

}  // namespace windlass::dispatch
