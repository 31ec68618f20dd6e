// From the custom resources to the planner's plain types, and from a plan to what a worker is to be. Pure.
#pragma once

#include <optional>
#include <string>

#include "controller/api/accelerator_class.h"
#include "controller/api/model_service.h"
#include "controller/runtime/worker_runtime.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

// The model's shape from spec.model.architecture, spec.model.config.inline or the text of the ConfigMap that
// spec.model.config.configMapKeyRef names; spec.model.dtype overrides the config's. kFailedPrecondition: the spec says none of
// them; else the error names the field.
[[nodiscard]] Result<planner::ModelShape> model_shape_of(const api::ModelServiceSpec& spec,
                                                         const std::optional<std::string>& config_map_text = std::nullopt);

// Everything that the spec alone says; demand, workers and memory are left as they are in a new service.
[[nodiscard]] planner::Service to_planner(const api::ModelService& service, const Result<planner::ModelShape>& shape,
                                          int priority = 0);

// `capacity` is what the nodes have. For a plan made from files alone see capacity_from_spec().
[[nodiscard]] planner::AcceleratorState to_planner(const api::AcceleratorClass& object, const GpuCapacity& capacity);

// What a class promises where no node can be asked: spec.capacity.maxGPUs, or one node's GPUs.
[[nodiscard]] GpuCapacity capacity_from_spec(const api::AcceleratorClass& object);

// A worker of `pool` in `slot`. `accelerator` is the pool's class.
[[nodiscard]] Launch worker_spec(const api::ModelService& service, const planner::Pool& pool, int slot,
                                 const api::AcceleratorClass& accelerator);

}  // namespace windlass::controller
