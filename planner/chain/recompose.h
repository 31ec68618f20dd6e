// Recomposition: when demand or servers change, the chains composed anew, and the way there: which server keeps, loads and
// drops which blocks, in which order, and whether that is worth it. Not in the papers. Pure and deterministic.
//
// Steps. A server that can hold its old and its new range together, with room for the caches of one request on each block,
// loads first, keeps serving the old range, and drops later (two steps). Another drops first and serves, while it loads, only
// the blocks in both ranges (one step). Steps are grouped in waves; in a wave, drops happen at once at its beginning, then all
// its servers load at the same time, each serving its blocks as soon as it has them all; the wave ends with its longest load. A
// full chain exists exactly when every block is on some server: a wave interrupts service for as long as some block is on none.
//
// Order. Greedy; when greedy finds no way, every order of the servers that drop first is searched if there are at most 20 of
// them. If no order keeps service up, the one found that loses it for the shortest time is given.
//
// Worth. All in request-seconds (the mean number of requests in the system, integrated over time), under the new demand lambda,
// over the T seconds of the transition and the horizon H after it. A set of chains with total rate nu and capacity C that
// starts with b requests waiting accumulates in t seconds, in the fluid limit,
//   lambda < nu:   lambda R t + b t - (nu - lambda) t^2 / 2 while b drains, at most b^2 / (2 (nu - lambda)), with R the lower
//                  bound of Theorem 3.7 on the mean response
//   lambda >= nu:  p t + b t + (lambda - nu) t^2 / 2, where p is C, but no less than what the new chains have in the system:
//                  chains that cannot keep up are never better than chains that can
// so that no chain at all costs lambda t^2 / 2 more. Every wave is charged with the state at its beginning for all its length.
//   gain = old chains over the H seconds after T, with what waits by then, - new chains over H seconds, none waiting
//          (both stable: H lambda (R_old - R_new); only the new ones: mostly (lambda - nu_old) H^2 / 2)
//   cost = the waves and the draining after them of what waits - old chains over the first T seconds
// Several orders, and the old c beside the best, are compared by what has accumulated at one time, H after the longest of them.
// A transition is proposed if gain > cost, or if the old servers that are left hold no full chain.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/base/result.h"
#include "planner/chain/compose.h"
#include "planner/chain/transition_order.h"

namespace windlass::chain {

struct RecomposeOptions {
  double horizon_s = 3600;  // how long the new chains are expected to be of use
  Tuning tuning = Tuning::kLowerBound;
};

struct Transition {
  bool proposed = false;
  std::string reason;  // why, or why not; one sentence

  Composition current;            // what the old servers that are left serve, under the new demand; indices of the new instance
  Composition next;               // composed anew; on current's ranges when nothing needs to move
  std::vector<std::string> gone;  // servers of the old instance that the new one lacks

  std::vector<ServerChange> changes;  // in the order of the servers
  std::vector<TransitionWave> waves;  // of the transition, proposed or not
  double seconds = 0;                 // all waves
  double loaded_gb = 0;
  bool interrupted = false;  // some wave leaves no full chain
  double interrupted_s = 0;
  bool order_proved = true;  // false: too many servers drop first for trying every order, so an uninterrupted one may exist

  double horizon_s = 0;
  double gain_request_s = 0;
  double cost_request_s = 0;
};

// From `old`, made for `old_instance`, to new chains for `new_instance`. Servers are matched by name. Errors: kInvalidArgument
// when the two instances have different models (blocks, blockSizeGB), a range lies outside of the model, a horizon or load
// bandwidth is not positive; compose()'s error when no full chain can be placed and the old servers that are left hold none
// either.
[[nodiscard]] Result<Transition> recompose(const Instance& old_instance, const Composition& old, const Instance& new_instance,
                                           const RecomposeOptions& options = {});

}  // namespace windlass::chain
