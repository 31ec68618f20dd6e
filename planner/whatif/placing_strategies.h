// Lets the strategies that place a model on nodes (Huawei's and HexGen-2) compete for services whose workers run anywhere in
// their class.
//
// They serve as many requests as a cluster can and know neither prices nor objectives. So each is asked about a small cluster
// of the classes that give most for their price. It decides which workers are best there, in which proportion, and how requests
// are spread; how many of them the service needs is then counted by simulation. Pure.
#pragma once

#include <vector>

#include "planner/policy/snapshot.h"
#include "planner/strategies/core/strategy.h"

namespace windlass::search {

inline constexpr int kPlacedGpus = 8;  // of each class, at least

// Nodes of two classes that can hold the model: the one with the most computing power for its price, and the one with the most
// memory bandwidth for its price. They may be the same.
[[nodiscard]] std::vector<planner::NodeState> nodes_to_place_on(const Problem& problem);

// Nodes "CLASS-0", "CLASS-1" and so on that have this many GPUs together.
void add_nodes(const planner::AcceleratorSpec& spec, int gpus, std::vector<planner::NodeState>& nodes);

// `placing`'s workers in the fewest numbers, in its proportion, that meet the objectives of `problem`. `on_nodes`: the same
// problem with a cluster. Unified workers of several kinds are tried one kind at a time; the cheapest wins. Errors: those of
// `placing`; kNotFound if such workers cannot run without nodes, or no number of them holds; Cancelled.
[[nodiscard]] Result<Offer> plan_anywhere(const NamedStrategy& placing, const Problem& on_nodes, const Problem& problem,
                                          const Effort& effort);

}  // namespace windlass::search
