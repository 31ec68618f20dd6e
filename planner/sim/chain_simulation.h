// simulate_chains(): discrete-event simulation of requests that a dispatch policy sends to server chains of fixed capacities.
//
// Sun, He, Hou 2026, Section 2.1: chain k serves up to c_k requests at once, each at its own pace (T_k for one of size 1),
// however many others it holds. A request the policy does not place waits in the central queue; one it sends to a full chain
// waits at that chain; both queues are first come first served. Time is integer nanoseconds, and events are ordered by (time,
// insertion id), so that one source and policy give one result on every platform. Memory grows with the capacities and the
// longest backlog, not with the number of requests. Time O(log C) per request besides the policy's.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "planner/chain/instance.h"
#include "planner/chain/placement.h"
#include "planner/dispatch/dispatch_policy.h"
#include "planner/sim/recorder.h"
#include "planner/workload/request_source.h"

namespace windlass::sim {

// How long a chain takes for a request, from its tokens (footnote 11 of the paper, summed over the chain's servers).
struct TokenServiceTime {
  double base_s = 0;              // all servers' communication up to the first token, and their blocks' overhead
  double s_per_input_token = 0;   // prefill
  double s_per_output_token = 0;  // decode and communication, of each output token after the first

  bool operator==(const TokenServiceTime&) const = default;
};

struct SimulatedChain {
  double service_time_s = 0;  // T_k: mean, of a request of size 1; the policy sees its reciprocal
  int capacity = 0;           // c_k
  std::optional<TokenServiceTime> token_time;

  // By the tokens where both the chain and the request have them, else size * service_time_s.
  [[nodiscard]] double service_time_of(const workload::Request& request) const;

  bool operator==(const SimulatedChain&) const = default;
};

// None when a server of the chain has no token times.
[[nodiscard]] std::optional<TokenServiceTime> token_service_time(const chain::Instance& instance, std::span<const int> servers,
                                                                 std::span<const int> blocks);

[[nodiscard]] SimulatedChain simulated_chain(const chain::Instance& instance, const chain::ServerChain& chain);
[[nodiscard]] std::vector<SimulatedChain> simulated_chains(const chain::Instance& instance,
                                                           std::span<const chain::ServerChain> chains);

struct ChainSimulationOptions {
  // Requests taken from the source, those of the warm-up included; the run ends when the last of them is served.
  std::int64_t max_requests = std::numeric_limits<std::int64_t>::max();
  std::int64_t warm_up_requests = 0;  // the first ones, which are served but not measured
  // Called every 2^18 arrivals, with their number so far. May be empty.
  std::function<void(std::int64_t arrivals)> progress;
};

// REQUIRES: service_time_s finite and > 0 and capacity >= 0 in every chain; the source ends, or max_requests is given. An
// arrival later than 2^62 ns (146 years) ends the run. A request that the policy never places is not measured (it happens only
// without any capacity).
[[nodiscard]] SimulationResult simulate_chains(std::span<const SimulatedChain> chains, workload::RequestSource& source,
                                               dispatch::DispatchPolicy& policy, const ChainSimulationOptions& options);

}  // namespace windlass::sim
