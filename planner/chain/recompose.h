// Recomposition: composes new chains when demand or servers change, and plans the transition: which server keeps, loads and
// drops which blocks, in which order, and whether it is worthwhile. Not in the papers. Pure and deterministic.
//
// Steps. A server that can hold its old and its new range together, with room for the caches of one request on each block,
// loads first, keeps serving the old range, and drops later (two steps). Any other server drops first and, while it loads,
// serves only the blocks in both ranges (one step). Steps are grouped into waves. A wave begins with its drops, which are
// immediate. Then its servers load at the same time, and each serves its new blocks once it has all of them. The wave ends with
// its longest load. A full chain exists exactly if every block is on some server, so a wave interrupts service while some block
// is on none.
//
// Order. The search is greedy. If greedy finds no order that keeps service up, every order of the servers that drop first is
// searched, for at most 20 such servers. If no order keeps service up, the result is the one with the shortest interruption.
//
// Worth. Everything is measured in request-seconds (the mean number of requests in the system, integrated over time) under the
// new demand lambda, over the T seconds of the transition and the horizon H after it. In the fluid limit, a set of chains with
// total rate nu and capacity C that starts with b waiting requests accumulates in t seconds
//   lambda < nu:   lambda R t + b t - (nu - lambda) t^2 / 2 while b drains, at most b^2 / (2 (nu - lambda)), with R the lower
//                  bound of Theorem 3.7 on the mean response
//   lambda >= nu:  p t + b t + (lambda - nu) t^2 / 2, where p is C, but at least what the new chains have in the system:
//                  chains that cannot keep up are never better than chains that can
// So having no chain costs lambda t^2 / 2 more. Every wave is charged with the state at its beginning for all its length.
//   gain = old chains over the H seconds after T, with what waits by then, - new chains over H seconds, none waiting
//          (both stable: H lambda (R_old - R_new); only the new ones stable: mostly (lambda - nu_old) H^2 / 2)
//   cost = the waves, and draining what waits after them, - old chains over the first T seconds
// Several orders, and the old c as well as the best, are compared by what has accumulated H seconds after the longest of them.
// A transition is proposed if gain > cost, or if the remaining old servers hold no full chain.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/compose.h"
#include "planner/chain/transition_order.h"

namespace windlass::chain {

struct RecomposeOptions {
  double horizon_s = 3600;  // how long the new chains are expected to be useful
  Tuning tuning = Tuning::kLowerBound;
};

struct Transition {
  bool proposed = false;
  std::string reason;  // why, or why not; one sentence

  Composition current;            // what the remaining old servers serve under the new demand; indices of the new instance
  Composition next;               // the new composition; on the ranges of `current` if nothing needs to move
  std::vector<std::string> gone;  // servers of the old instance that are missing in the new one

  std::vector<ServerChange> changes;  // in server order
  std::vector<TransitionWave> waves;  // of the transition, whether proposed or not
  double seconds = 0;                 // total of all waves
  double loaded_gb = 0;
  bool interrupted = false;  // some wave has no full chain
  double interrupted_s = 0;
  bool order_proved = true;  // false: too many servers drop first to try every order, so an uninterrupted one may exist

  double horizon_s = 0;
  double gain_request_s = 0;
  double cost_request_s = 0;
};

// Plans the transition from `old`, made for `old_instance`, to new chains for `new_instance`. Servers are matched by name.
// Errors: kInvalidArgument if the instances have different models (blocks, blockSizeGB), a range lies outside the model, or a
// horizon or load bandwidth is not positive; compose()'s error if no full chain can be placed and the remaining old servers
// hold none either.
[[nodiscard]] Result<Transition> recompose(const Instance& old_instance, const Composition& old, const Instance& new_instance,
                                           const RecomposeOptions& options = {});

}  // namespace windlass::chain
