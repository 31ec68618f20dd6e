// DispatchPolicy: which chain a request goes to, or that it waits. The gateway and the simulator run the same code.
//
// A policy is pure (a random one draws from the stream it was given). It keeps whatever order of the chains its choice needs,
// so the caller says what changed: reset() with all chains, update() when one chain's state changed. The caller owns the queues
// and the counts: it calls choose() when a request arrives and, after a completion or a change of the chains, again for the
// head of the central queue until the answer is none. A request that was sent to a chain with no free slot waits at that chain.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace windlass::dispatch {

struct ChainState {
  double service_rate_per_s = 0;  // of one slot (mu_k)
  int capacity = 0;               // c_k
  int in_flight = 0;              // Z_k, those that wait at the chain included; may exceed the capacity
  bool draining = false;          // takes no new request

  [[nodiscard]] bool has_free_slot() const { return !draining && in_flight < capacity; }
  [[nodiscard]] bool takes_requests() const { return !draining && capacity > 0; }  // at once or after waiting
};

class DispatchPolicy {
 public:
  virtual ~DispatchPolicy() = default;

  // Starts over with these chains.
  virtual void reset(std::span<const ChainState> chains) = 0;

  // Chain `index` is now in this state. REQUIRES: index < the number of chains; service_rate_per_s as at the last reset().
  virtual void update(std::size_t index, const ChainState& state) = 0;

  // The index of the chain that takes the next request, or none: it waits in the central queue. A chosen chain is not draining.
  // Changes no chain's state: the caller takes the slot and says so by update().
  [[nodiscard]] virtual std::optional<std::size_t> choose() = 0;
};

}  // namespace windlass::dispatch
