// Deployment: pools of like workers and how requests find them: what strategies propose and the simulator tries. Plain data.
// Pure.
#pragma once

#include <string>
#include <vector>

#include "planner/deployment/engine_settings.h"
#include "planner/dispatch/dispatch_settings.h"
#include "planner/dispatch/role.h"

namespace windlass::planner {

// What a worker is. A worker of another spec is another pod; its role is not part of it, for that changes while it runs.
struct WorkerSpec {
  std::string accelerator;  // a class
  int tensor_parallel = 1;
  int pipeline_stages = 1;
  EngineSettings engine = {};     // kv_blocks 0: as many as fit beside the weights
  double power_share = 1;         // of its GPUs' power, where that is capped (Splitwise's HHcap)
  bool length_predictor = false;  // runs TetriInfer's predictor beside the model

  [[nodiscard]] int gpus() const { return tensor_parallel * pipeline_stages; }

  bool operator==(const WorkerSpec&) const = default;
};

// Workers of one spec and role.
struct Pool {
  WorkerSpec spec;
  dispatch::Role role = dispatch::Role::kUnified;
  int workers = 1;
};

struct Deployment {
  std::vector<Pool> pools;  // unified ones alone, or prefill and decode
  dispatch::DispatchSettings dispatch{.policy = dispatch::PolicyKind::kJsq};
  bool pairs_share_a_node = false;  // prefill and decode workers: caches move within a node
};

[[nodiscard]] int gpus_of(const Deployment& deployment);

// For people: "h100-80gb-2", "h100-80gb-4 (PP 2)".
[[nodiscard]] std::string worker_text(const WorkerSpec& spec);
// "4 x h100-80gb-2", "prefill 2 x h100-80gb-1 + decode 3 x a100-80gb-4 (PP 2)", "... (at 70 % of its power)".
[[nodiscard]] std::string describe(const Deployment& deployment);

}  // namespace windlass::planner
