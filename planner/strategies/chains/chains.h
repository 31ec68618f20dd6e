// Server chains: a model is cut into blocks over servers of unequal memory and speed, and several chains of servers hold it
// (Sun, He, Hou 2026, "Serving Chain-structured Jobs with Large Memory Footprints", Alg. 1). For models that fit no worker, and
// for GPUs that are too small or too different to hold one alone.
//
// A server is one GPU, or the GPUs of a node that split each layer; every degree is tried. For a number c of requests at once,
// times are those of iterations with c requests, and GBP-CR composes the chains. Of all degrees, numbers and sets of classes,
// the plan takes the fewest chains that meet the objectives in simulation, at the least cost. Requests go to the fastest chain
// with a free slot (JFFC). docs/algorithms/chains-plan.md lists differences from the paper. Pure.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/instance.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::hetero {

// Servers in the order of the instance.
struct ChainServer {
  int node = 0;           // of the problem's cluster
  std::vector<int> gpus;  // of the cluster
};

// The cluster's servers of these classes with up to `tensor_parallel` GPUs each (as many as the model's heads and the node
// allow), with the times of iterations with `capacity` requests of mean lengths. A server's communication is the slowest of its
// links to other servers, since it may follow any of them. Errors: those of the latency model.
struct ChainServers {
  chain::Instance instance;
  std::vector<ChainServer> servers;
};
[[nodiscard]] Result<ChainServers> chain_servers(const search::Problem& problem, const std::set<std::string>& classes,
                                                 int tensor_parallel, int capacity);

// Errors: kNotFound if no chain can hold the model, with the memory that is missing; Cancelled.
[[nodiscard]] Result<search::Offer> chains_plan(const search::Problem& problem, const search::Effort& effort);

}  // namespace windlass::hetero
