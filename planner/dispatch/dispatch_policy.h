// DispatchPolicy decides which chain a request goes to, or that it waits. The gateway and the simulator run the same code.
//
// A policy is pure (a random policy draws from the stream that it was given). It keeps whatever order of chains it needs, so
// the caller reports changes: reset() with all chains, update() when the state of one chain changed. The caller owns the queues
// and the counts. It calls choose() when a request arrives and, after a completion or a change of the chains, again for the
// head of the central queue until the answer is none. A request sent to a chain without a free slot waits at that chain.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "planner/dispatch/role.h"

namespace windlass::dispatch {

struct PackingModel;

struct ChainState {
  double service_rate_per_s = 0;  // mu_k of one slot
  int capacity = 0;               // c_k
  int in_flight = 0;              // Z_k, including requests waiting at the chain; may exceed the capacity
  bool draining = false;          // takes no new requests
  // For policies that place requests by their lengths.
  std::uint64_t key = 0;                  // the caller's id of the chain; what a policy knows about it survives reset()
  const PackingModel* packing = nullptr;  // latency, if known; borrowed until the next reset()
  double weight = 0;                      // relative share of requests; 0: service_rate x capacity
  Role role = Role::kUnified;             // for policies that use chains of several roles
  double share = 1;                       // fraction of the chain's slots that the caller has; others use the rest
  bool own_role_only = false;             // takes no phase of the other role: for policies with a mixed pool

  [[nodiscard]] bool has_free_slot() const { return !draining && in_flight < capacity; }
  [[nodiscard]] double weight_or_rate() const { return weight > 0 ? weight : service_rate_per_s * capacity; }
  [[nodiscard]] bool takes_requests() const { return !draining && capacity > 0; }  // immediately or after waiting
};

// What is known about a request when it is dispatched. 0: unknown.
struct RequestLengths {
  std::uint64_t id = 0;  // assigned by the caller
  int input_tokens = 0;
  int output_tokens = 0;
};

// Receives the events of requests, for policies that place them by length. Ids that were never placed are ignored.
class RequestTracker {
 public:
  virtual ~RequestTracker() = default;
  virtual void placed(std::size_t chain, const RequestLengths& request) = 0;
  virtual void first_token(std::uint64_t id, double now_s) = 0;
  // Reports a new token: for every request that decodes at the chain, or for one request if iterations are not visible.
  virtual void iterated(std::size_t chain) = 0;
  virtual void tokens_made(std::uint64_t id, int count) = 0;
  // The request ended with this number of output tokens; 0: it failed, and nothing is learned.
  virtual void ended(std::uint64_t id, int output_tokens) = 0;
  // Requests that went to another worker than the policy's first choice, to even out errors of predicted lengths; in total.
  [[nodiscard]] virtual std::int64_t rebalanced() const { return 0; }
};

class DispatchPolicy {
 public:
  virtual ~DispatchPolicy() = default;

  // Restarts with these chains.
  virtual void reset(std::span<const ChainState> chains) = 0;

  // Chain `index` is now in this state. REQUIRES: index < the number of chains; service_rate_per_s as at the last reset().
  virtual void update(std::size_t index, const ChainState& state) = 0;

  // Index of the chain that takes the next request; none: it waits in the central queue. Never a draining chain. Takes
  // no slot: the caller does, and calls update(). A policy may keep its last answer, for placed().
  [[nodiscard]] virtual std::optional<std::size_t> choose() = 0;

  // The same for this request; most policies treat all requests alike.
  [[nodiscard]] virtual std::optional<std::size_t> choose_for(const RequestLengths& /*request*/, double /*now_s*/) {
    return choose();
  }
  // Null: the policy needs no events. Otherwise the caller uses choose_for() and reports every event.
  [[nodiscard]] virtual RequestTracker* tracker() { return nullptr; }
};

}  // namespace windlass::dispatch
