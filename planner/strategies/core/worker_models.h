// The latency of a worker, by its spec: that of the problem's kind, with what a power cap, padded chunks and a length predictor
// do to it. Pure.
#pragma once

#include <memory>

#include "planner/perf/iteration_model.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

// The problem's kind with this accelerator and these degrees; null: it has none such.
[[nodiscard]] const WorkerKind* find_kind(const Problem& problem, const WorkerSpec& spec);
// REQUIRES: there is one.
[[nodiscard]] const WorkerKind& kind_of(const Problem& problem, const WorkerSpec& spec);
[[nodiscard]] std::shared_ptr<const planner::IterationModel> model_of(const Problem& problem, const WorkerSpec& spec);

// Gives the problem a kind of worker that takes no time and holds any number of caches, on an accelerator of its own: where it
// does one phase, the other is studied alone. Returns its spec, with the problem's engine settings.
WorkerSpec add_instant_kind(Problem& problem);

}  // namespace windlass::search
