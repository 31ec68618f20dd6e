// The flow of requests from the prefill workers of a service to its decode workers: HexGen-2's maximum flow (Jiang, Yan, Yuan,
// ICLR 2025, Section 3.3) for workers that run, from what is known of their machines. Its shares are the gateways' weights of
// pairs.
//
// As there, a request flows from the coordinator through a prefill worker, each with a capacity, over a connection to a decode
// worker and back. The paper gives every pair of groups a connection of its own; but a GPU has one link to the others of its
// machine and one to the network, whoever it sends to. So a worker here has two capacities more, of the caches that pass its
// links inside the machine and those between machines; machines and the network let through whatever the links do.
//
// In this network the maximum flow can be written down, and needs no search. Inside each machine as much flows as both sides
// can take; what either side has left flows between machines, as much as both sides can take. That is a maximum flow: where
// less flows inside a machine than could, a worker of each side has its link inside to spare; each of them either has capacity
// to spare too, or sends to (gets from) other machines what it could exchange with the other one, while the partners there take
// each other's. So among the maximum flows there is one with the most inside every machine, and this is it. It remains who has
// which part of what flows inside: first what could not flow between machines anyway, for want of links; then in proportion to
// what each has left. Between machines, in proportion too. So workers that are alike have equal shares. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace windlass::hetero {

struct PairedWorker {
  std::string node;                                                // the machine; those of no known machine are on one
  double requests_per_s = 0;                                       // that it serves; finite
  double within_per_s = std::numeric_limits<double>::infinity();   // caches that pass its links inside the machine; 0: none do
  double between_per_s = std::numeric_limits<double>::infinity();  // the same between machines
};

struct PairFlow {
  std::size_t prefill = 0, decode = 0;  // indices
  double requests_per_s = 0;            // above 0

  bool operator==(const PairFlow&) const = default;
};

// In the order of (prefill, decode), each pair once; their sum is the value of the maximum flow. O(pairs) at most.
[[nodiscard]] std::vector<PairFlow> pair_flow(const std::vector<PairedWorker>& prefill,
                                              const std::vector<PairedWorker>& decode);

}  // namespace windlass::hetero
