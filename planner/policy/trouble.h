// Workers in trouble: what they still count for, and the words for them.
//
// One in trouble serves nobody. It still holds its GPUs where a node gave them to it (its image cannot be fetched, it crashes,
// it was killed for memory); one that no node takes, or whose node is gone, holds none.
#pragma once

#include <optional>

#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner {

// The trouble that its reporter named, or else the one that its state stands for.
[[nodiscard]] WorkerTrouble trouble_of(const Worker& worker);

// Takes requests.
[[nodiscard]] bool serves(const Worker& worker);

// Starting, ready, or in a trouble that leaves it on its node; not draining.
[[nodiscard]] bool holds_gpus(const Worker& worker);

// No node has taken it for long.
[[nodiscard]] bool is_stranded(const Worker& worker, double now_s);

// The trouble of most workers in one, in words, as AbleToScale says it. None: nobody is in trouble.
[[nodiscard]] std::optional<Hint> trouble_hint(const Service& service);

}  // namespace windlass::planner
