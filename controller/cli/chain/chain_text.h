// Formats server chains for people: the output of `windlass chain` without -o json. Pure.
#pragma once

#include <string>

#include "controller/cli/console/chain_choice.h"
#include "planner/chain/recompose.h"

namespace windlass::cli {

// How c was chosen and the runners-up, the fastest chains with their servers and blocks, totals, load, bounds, unused servers.
[[nodiscard]] std::string composition_text(const ChosenChains& chosen);

// "s0 1-19 > s4 20-38": the blocks that each server of the chain processes. Long chains are abbreviated.
[[nodiscard]] std::string hops_text(const chain::Instance& instance, const chain::ServerChain& chain);

// The transition in waves, and whether its benefit exceeds its cost. `instance` is the new one.
[[nodiscard]] std::string transition_text(const chain::Instance& instance, const chain::Transition& transition);

// "a, b, c and 4 more".
[[nodiscard]] std::string names_text(const std::vector<std::string>& names);

}  // namespace windlass::cli
