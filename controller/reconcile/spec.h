// Converts the custom resources to the planner's plain types, and a plan to worker specifications. Pure.
#pragma once

#include <optional>
#include <string>

#include "controller/api/accelerator_class.h"
#include "controller/api/model_service.h"
#include "controller/runtime/worker_runtime.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::controller {

// The model's shape from spec.model.architecture, spec.model.config.inline or the text of the ConfigMap in
// spec.model.config.configMapKeyRef. spec.model.dtype overrides the config's dtype. kFailedPrecondition: the spec has none of
// them. Other errors name the field.
[[nodiscard]] Result<planner::ModelShape> model_shape_of(const api::ModelServiceSpec& spec,
                                                         const std::optional<std::string>& config_map_text = std::nullopt);

// The parts that depend on the spec alone; demand, workers and memory are those of a new service.
[[nodiscard]] planner::Service to_planner(const api::ModelService& service, const Result<planner::ModelShape>& shape,
                                          int priority = 0);

// `capacity` is what the nodes have. For a plan from files only, see capacity_from_spec().
[[nodiscard]] planner::AcceleratorState to_planner(const api::AcceleratorClass& object, const GpuCapacity& capacity);

// The capacity of a class without nodes to read: spec.capacity.maxGPUs, or the GPUs of one node.
[[nodiscard]] GpuCapacity capacity_from_spec(const api::AcceleratorClass& object);

// Fills in what a pod of this worker, or of one of its servers, needs of its node's memory and disk. The model's weights pass
// through both.
void request_resources(const api::AcceleratorClass& accelerator, const planner::ModelShape& shape, Launch& launch);

// The worker in `slot` of `pool`. `accelerator` is the pool's class. `layers`: of the model; only chains need them.
[[nodiscard]] Launch worker_spec(const api::ModelService& service, const planner::Pool& pool, int slot,
                                 const api::AcceleratorClass& accelerator, int layers = 0);

}  // namespace windlass::controller
