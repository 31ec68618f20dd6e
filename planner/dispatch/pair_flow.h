// Computes what share of a service's requests goes from each of its prefill workers to each of its decode workers. The gateways
// use the shares as pair weights. The method is HexGen-2's maximum flow (Jiang, Yan, Yuan, ICLR 2025, Section 3.3) for running
// workers, from what is known about their machines.
//
// As in the paper, a request flows from the coordinator through a prefill worker, over a connection to a decode worker, and
// back; workers have capacities. The paper gives every pair of groups its own connection. But a GPU has one link to the others
// in its machine and one to the network, whoever it sends to. So here each worker has two more capacities: caches per second
// over its links inside the machine, and over those between machines. Machines and the network themselves are not a limit.
//
// In this network the maximum flow has a closed form and needs no search. Inside each machine, as much flows as both sides can
// take; what is left flows between machines, again as much as both sides can take. This is a maximum flow. Suppose less flows
// inside a machine than could. Then a worker on each side has spare capacity on its internal link. Each of them either has
// spare capacity itself, or exchanges with other machines what it could exchange with the other one, and the partners there can
// take each other's. So some maximum flow has the most inside every machine, and this is it. It remains to divide the flow
// inside a machine: first to workers whose flow could not go between machines for lack of links, then in proportion to what
// each has left. Between machines it is divided in proportion too. So identical workers have equal shares. Pure.
#pragma once

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

namespace windlass::hetero {

struct PairedWorker {
  std::string node;           // the machine; workers of unknown machines count as one machine
  double requests_per_s = 0;  // capacity; finite
  double within_per_s = std::numeric_limits<double>::infinity();   // caches over its links inside the machine; 0: none
  double between_per_s = std::numeric_limits<double>::infinity();  // the same between machines
};

struct PairFlow {
  std::size_t prefill = 0, decode = 0;  // indices of the workers
  double requests_per_s = 0;            // above 0

  bool operator==(const PairFlow&) const = default;
};

// Sorted by (prefill, decode), each pair once. The sum is the value of the maximum flow. At most O(pairs).
[[nodiscard]] std::vector<PairFlow> pair_flow(const std::vector<PairedWorker>& prefill,
                                              const std::vector<PairedWorker>& decode);

}  // namespace windlass::hetero
