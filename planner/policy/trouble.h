// Workers in trouble: which resources they still hold, and how to describe their trouble.
//
// A worker in trouble serves no requests. It still holds its GPUs if a node gave them to it (its image cannot be pulled, it
// crashes, it was killed for memory). It holds none if no node takes it or its node is gone.
#pragma once

#include <optional>

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// The reported trouble, or else the one that the worker's state implies.
[[nodiscard]] WorkerTrouble trouble_of(const Worker& worker);

// Whether it takes requests.
[[nodiscard]] bool serves(const Worker& worker);

// True while starting, ready, or in a trouble that leaves it on its node; false while draining.
[[nodiscard]] bool holds_gpus(const Worker& worker);

// Whether it started within kFreshS and has never served, so that little is lost if it goes.
[[nodiscard]] bool is_fresh(const Worker& worker, double now_s);

// Whether no node has taken it for longer than kUnschedulableGraceS.
[[nodiscard]] bool is_stranded(const Worker& worker, double now_s);

// Describes the trouble of all workers for the condition AbleToScale; its reason is the most frequent one. Nullopt if no worker
// is in trouble.
[[nodiscard]] std::optional<Hint> trouble_hint(const Service& service);

}  // namespace windlass::planner
