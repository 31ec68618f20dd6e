// Finds the latency model of a worker from its spec: the model of the problem's kind, changed if the worker has a power cap,
// padded chunks or a length predictor. Pure.
#pragma once

#include <memory>

#include "planner/perf/iteration_model.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

// The problem's kind with this accelerator and these degrees; null if there is none.
[[nodiscard]] const WorkerKind* find_kind(const Problem& problem, const WorkerSpec& spec);
// REQUIRES: the kind exists.
[[nodiscard]] const WorkerKind& kind_of(const Problem& problem, const WorkerSpec& spec);
[[nodiscard]] std::shared_ptr<const planner::IterationModel> model_of(const Problem& problem, const WorkerSpec& spec);

// Adds a kind of worker to the problem that takes no time and holds any number of caches, on an accelerator of its own. Used
// for one phase, to study the other alone. Returns its spec, with the problem's engine settings.
WorkerSpec add_instant_kind(Problem& problem);

}  // namespace windlass::search
