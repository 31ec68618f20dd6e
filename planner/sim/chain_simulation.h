// simulate_chains(): discrete-event simulation of requests that a dispatch policy sends to server chains of fixed capacity.
//
// Sun, He, Hou 2026, Section 2.1: chain k serves up to c_k requests at once, each at its own pace (T_k for size 1), however
// many others it holds. A request that the policy does not place waits in the central queue; one sent to a full chain waits at
// that chain. Both queues are first come, first served. Time is integer nanoseconds and events are ordered by (time, insertion
// id), so one source and policy give the same result on every platform. Memory grows with the capacities and the longest
// backlog, not with the number of requests. Time O(log C) per request, plus the policy's.
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

// Service time of a request on a chain, from its tokens (footnote 11 of the paper, summed over the chain's servers).
struct TokenServiceTime {
  double base_s = 0;              // communication of all servers up to the first token, and overhead of their blocks
  double s_per_input_token = 0;   // prefill
  double s_per_output_token = 0;  // decode and communication, for each output token after the first

  bool operator==(const TokenServiceTime&) const = default;
};

struct SimulatedChain {
  double service_time_s = 0;  // T_k: mean service time of a request of size 1; the policy sees its reciprocal
  int capacity = 0;           // c_k
  std::optional<TokenServiceTime> token_time;

  // From the tokens if both the chain and the request have them; otherwise size * service_time_s.
  [[nodiscard]] double service_time_of(const workload::Request& request) const;

  bool operator==(const SimulatedChain&) const = default;
};

// None if a server of the chain has no token times.
[[nodiscard]] std::optional<TokenServiceTime> token_service_time(const chain::Instance& instance, std::span<const int> servers,
                                                                 std::span<const int> blocks);

[[nodiscard]] SimulatedChain simulated_chain(const chain::Instance& instance, const chain::ServerChain& chain);
[[nodiscard]] std::vector<SimulatedChain> simulated_chains(const chain::Instance& instance,
                                                           std::span<const chain::ServerChain> chains);

struct ChainSimulationOptions {
  // Requests taken from the source, including warm-up; the run ends when the last of them is served.
  std::int64_t max_requests = std::numeric_limits<std::int64_t>::max();
  std::int64_t warm_up_requests = 0;  // the first requests, which are served but not measured
  // Called every 2^18 arrivals with the number of arrivals so far. May be empty.
  std::function<void(std::int64_t arrivals)> progress;
};

// REQUIRES: in every chain service_time_s is finite and > 0 and capacity >= 0; the source ends, or max_requests is given. An
// arrival later than 2^62 ns (146 years) ends the run. A request that the policy never places is not measured (this happens
// only without any capacity).
[[nodiscard]] SimulationResult simulate_chains(std::span<const SimulatedChain> chains, workload::RequestSource& source,
                                               dispatch::DispatchPolicy& policy, const ChainSimulationOptions& options);

}  // namespace windlass::sim
