// One decision: what was seen, and what was planned. Plain data that never changes, so threads share it instead of copying.
#pragma once

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

struct Decision {
  planner::Snapshot snapshot;
  planner::Plan plan;
};

}  // namespace windlass::controller
