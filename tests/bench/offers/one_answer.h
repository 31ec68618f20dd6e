// One question, one answer: what `windlass plan`, the controller, `auto` and each strategy say a service should run, and what
// the simulator makes of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "planner/deployment/offer.h"
#include "planner/policy/snapshot.h"

namespace windlass::bench {

// A service with a model, objectives and load drawn from the seed, on all accelerators of the catalog.
[[nodiscard]] planner::Snapshot random_service(std::uint64_t seed);

struct OneAnswer {
  std::string service;
  std::vector<std::string> preview;     // pools of `windlass plan`: "4 x h100-80gb-1 (unified)"
  std::vector<std::string> controller;  // pools of a controller that begins on closed forms and hears the strategies later
  double closed_cost_per_hour = 0;      // of the closed forms alone; 0: nothing is feasible
  double preview_cost_per_hour = 0, controller_cost_per_hour = 0;
  std::optional<double> auto_cost_per_hour;      // `windlass plan --strategy auto`; none: nothing meets the objective
  std::vector<planner::StrategyAnswer> answers;  // of each strategy
  std::optional<double> attainment;              // of the preview's deployment in the simulator at the assumed rate
  double asked = 0;                              // attainment that the objective asks for
  bool confirmed = false;                        // the preview is a confirmed offer
};

// REQUIRES: the snapshot has one service, without workers.
[[nodiscard]] OneAnswer one_answer(const planner::Snapshot& snapshot);

}  // namespace windlass::bench
