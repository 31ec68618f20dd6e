// DispatchPolicy: which chain a request goes to, or that it waits. The gateway and the simulator run the same code.
//
// A policy is pure (a random one draws from the stream it was given). It keeps whatever order of the chains its choice needs,
// so the caller says what changed: reset() with all chains, update() when one chain's state changed. The caller owns the queues
// and the counts: it calls choose() when a request arrives and, after a completion or a change of the chains, again for the
// head of the central queue until the answer is none. A request that was sent to a chain with no free slot waits at that chain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace windlass::dispatch {

struct PackingModel;

struct ChainState {
  double service_rate_per_s = 0;  // of one slot (mu_k)
  int capacity = 0;               // c_k
  int in_flight = 0;              // Z_k, those that wait at the chain included; may exceed the capacity
  bool draining = false;          // takes no new request
  // For policies that place requests by their lengths.
  std::uint64_t key = 0;                  // the caller's name of the chain: what a policy knows of it outlives a reset()
  const PackingModel* packing = nullptr;  // what of its latency is known; borrowed until the next reset()
  double weight = 0;                      // its part of the requests beside the other chains'; 0: service_rate x capacity

  [[nodiscard]] bool has_free_slot() const { return !draining && in_flight < capacity; }
  [[nodiscard]] double weight_or_rate() const { return weight > 0 ? weight : service_rate_per_s * capacity; }
  [[nodiscard]] bool takes_requests() const { return !draining && capacity > 0; }  // at once or after waiting
};

// A request as far as it is known when it is dispatched. 0: not known.
struct RequestLengths {
  std::uint64_t id = 0;  // the caller's
  int input_tokens = 0;
  int output_tokens = 0;
};

// Is told what becomes of requests, by policies that place them by their lengths. Ids that were never placed are passed over.
class RequestTracker {
 public:
  virtual ~RequestTracker() = default;
  virtual void placed(std::size_t chain, const RequestLengths& request) = 0;
  virtual void first_token(std::uint64_t id, double now_s) = 0;
  // Tokens after the first: of all that decode at the chain one each, or of one request where iterations are not seen.
  virtual void iterated(std::size_t chain) = 0;
  virtual void tokens_made(std::uint64_t id, int count) = 0;
  // Its answer had so many tokens; 0: it ended without, and nothing is learned.
  virtual void ended(std::uint64_t id, int output_tokens) = 0;
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

  // The same for this request; most policies take all requests to be alike.
  [[nodiscard]] virtual std::optional<std::size_t> choose_for(const RequestLengths& /*request*/, double /*now_s*/) {
    return choose();
  }
  // Null: the policy need not be told of requests. Else choose_for() is to be asked and every event told.
  [[nodiscard]] virtual RequestTracker* tracker() { return nullptr; }
};

}  // namespace windlass::dispatch
