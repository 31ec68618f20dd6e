// Deployment: pools of workers and how requests find them: what strategies propose and the simulator tries.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "planner/dispatch/dispatch_settings.h"
#include "planner/perf/iteration_model.h"
#include "planner/sim/serving_options.h"
#include "planner/strategies/core/problem.h"

namespace windlass::search {

struct PlannedPool {
  dispatch::Role role = dispatch::Role::kUnified;
  int kind = 0;  // index in Problem::kinds
  int workers = 1;
  planner::EngineSettings engine;  // kv_blocks 0: of the kind
  // Of a worker whose GPUs are power-capped (Splitwise's HHcap), or that runs something beside the model (TetriInfer's
  // predictor): its latency then, none: the kind's; and its share of the kind's power.
  std::shared_ptr<const planner::IterationModel> model = nullptr;
  double power_share = 1;
};

struct Deployment {
  std::vector<PlannedPool> pools;  // of one role each: unified alone, or prefill and decode
  dispatch::DispatchSettings dispatch{.policy = dispatch::PolicyKind::kJsq};
  bool pairs_share_a_node = false;  // prefill and decode workers: caches move within a node
};

[[nodiscard]] const WorkerKind& kind_of(const Problem& problem, const PlannedPool& pool);
[[nodiscard]] int gpus_of(const Problem& problem, const Deployment& deployment);
[[nodiscard]] double cost_per_hour(const Problem& problem, const Deployment& deployment);
[[nodiscard]] double power_watts(const Problem& problem, const Deployment& deployment);
// What the problem's goal counts, less being better: dollars an hour, watts; for throughput GPUs.
[[nodiscard]] double worth_of(const Problem& problem, const Deployment& deployment);
// Inside the accelerators' GPUs, the GPUs and the cost that a plan may have. The error says which of them is short and by how
// much.
[[nodiscard]] Result<void> check_room(const Problem& problem, const Deployment& deployment);
// "4 x h100-80gb-2", "prefill 2 x h100-80gb-1 + decode 3 x a100-80gb-4 (PP 2)", "... (at 70 % of its power)".
[[nodiscard]] std::string describe(const Problem& problem, const Deployment& deployment);

// As the simulator takes it. Borrows the latency models.
[[nodiscard]] sim::ServingService serving_service(const Problem& problem, const Deployment& deployment);

}  // namespace windlass::search
