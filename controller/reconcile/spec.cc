// See spec.h.
#include "controller/reconcile/spec.h"

#include <algorithm>

#include <fmt/format.h>

#include "controller/runtime/engine_args.h"

namespace windlass::controller {
namespace {

planner::DType to_planner(api::Dtype dtype) {
  switch (dtype) {
    case api::Dtype::kFP32: return planner::DType::kFloat32;
    case api::Dtype::kBF16: return planner::DType::kBFloat16;
    case api::Dtype::kFP16: return planner::DType::kFloat16;
    case api::Dtype::kFP8: return planner::DType::kFloat8;
    // the planner counts bytes and operations, and INT8 has one byte too
    case api::Dtype::kINT8: return planner::DType::kFloat8;
  }
  return planner::DType::kBFloat16;
}

planner::Family to_planner(api::Strategy strategy) {
  switch (strategy) {
    case api::Strategy::kAuto: return planner::Family::kAuto;
    case api::Strategy::kReplicated: return planner::Family::kReplicated;
    case api::Strategy::kDisaggregated: return planner::Family::kDisaggregated;
    case api::Strategy::kChained: return planner::Family::kChained;
  }
  return planner::Family::kAuto;
}

planner::Mode to_planner(api::ScalingMode mode) {
  switch (mode) {
    case api::ScalingMode::kApply: return planner::Mode::kApply;
    case api::ScalingMode::kRecommend: return planner::Mode::kRecommend;
    case api::ScalingMode::kPaused: return planner::Mode::kPaused;
  }
  return planner::Mode::kApply;
}

std::optional<int> narrow(const std::optional<std::int64_t>& value) {
  return value ? std::optional<int>(static_cast<int>(*value)) : std::nullopt;
}

}  // namespace

Result<planner::ModelShape> model_shape_of(const api::ModelServiceSpec& spec,
                                           const std::optional<std::string>& config_map_text) {
  Result<planner::ModelShape> shape = [&]() -> Result<planner::ModelShape> {
    if (!spec.model.architecture.empty()) {
      auto named = planner::model_shape_by_name(spec.model.architecture);
      return named.ok() ? named : named.error().within("spec.model.architecture");
    }
    if (!spec.model.config_inline_json.empty()) {
      auto parsed = planner::model_shape_from_config_json(spec.model.config_inline_json);
      return parsed.ok() ? parsed : parsed.error().within("spec.model.config.inline");
    }
    if (config_map_text) {
      auto parsed = planner::model_shape_from_config_json(*config_map_text);
      return parsed.ok() ? parsed : parsed.error().within("spec.model.config.configMapKeyRef");
    }
    return Error{
        ErrorCode::kFailedPrecondition,
        "the model's shape is not known: set spec.model.architecture or spec.model.config (windlass model describe MODEL "
        "prints it)"};
  }();
  if (shape.ok() && spec.model.dtype) shape->dtype = to_planner(*spec.model.dtype);
  return shape;
}

planner::Service to_planner(const api::ModelService& service, const Result<planner::ModelShape>& shape, int priority) {
  const api::ModelServiceSpec& spec = service.spec;
  planner::Service out;
  out.id = {service.metadata.name_space, service.metadata.name, service.metadata.uid};
  out.generation = service.metadata.generation;
  out.served_name = service.served_name();
  if (shape.ok()) {
    out.shape = *shape;
  } else {
    out.shape_unknown_reason = shape.error().message;
  }
  out.max_context_tokens = static_cast<int>(spec.model.max_context_tokens.value_or(0));
  out.engine = spec.engine.type;
  if (spec.engine.type == api::EngineType::kWindlass) {
    out.may_split = true;
    // Ranks hold whole KV heads. A degree that divides the model evenly and is at most this divides the KV heads. A model with
    // projections between embedding and layers is not divided.
    const int most = !out.shape ? kMaxWindlassRanks : out.shape->embedding_dim > 0 ? 1 : out.shape->kv_heads;
    out.max_gpus_per_worker = std::min(kMaxWindlassRanks, most);
  } else {
    out.may_split = false;
    out.reserves_context = spec.engine.type == api::EngineType::kLlamaCpp;  // --ctx-size is divided among the slots
  }
  out.slo = {spec.slo.time_to_first_token_s, spec.slo.time_per_output_token_s, spec.slo.percentile, spec.slo.window_s};
  if (spec.workload.requests_per_s) out.workload.requests_per_s = *spec.workload.requests_per_s;
  if (spec.workload.input_tokens) out.workload.input_tokens = static_cast<double>(*spec.workload.input_tokens);
  if (spec.workload.output_tokens) out.workload.output_tokens = static_cast<double>(*spec.workload.output_tokens);
  for (const api::AcceleratorChoice& choice : spec.accelerators) {
    out.accelerators.push_back({choice.accelerator_class, narrow(choice.max_gpus)});
  }
  out.scaling.strategy = to_planner(spec.scaling.strategy);
  out.scaling.min_workers = static_cast<int>(spec.scaling.min_workers);
  out.scaling.max_workers = narrow(spec.scaling.max_workers);
  out.scaling.max_cost_per_hour = spec.scaling.max_cost_per_hour;
  out.scaling.idle_to_zero_after_s = spec.scaling.idle_to_zero_after_s;
  out.scaling.drain_timeout_s = spec.scaling.drain_timeout_s;
  out.scaling.scale_up_stabilization_s = spec.scaling.scale_up_stabilization_s;
  out.scaling.scale_down_stabilization_s = spec.scaling.scale_down_stabilization_s;
  out.scaling.scale_up_max_per_minute = narrow(spec.scaling.scale_up_max_per_minute);
  out.scaling.scale_down_max_per_minute = narrow(spec.scaling.scale_down_max_per_minute);
  out.scaling.tolerance = spec.scaling.tolerance;
  out.scaling.mode = to_planner(spec.scaling.mode);
  out.priority = priority;
  return out;
}

planner::AcceleratorState to_planner(const api::AcceleratorClass& object, const GpuCapacity& capacity) {
  const api::AcceleratorClassSpec& spec = object.spec;
  planner::AcceleratorState out;
  out.spec.name = object.metadata.name;
  out.spec.memory_bytes = static_cast<double>(spec.memory_bytes);
  for (const auto& [dtype, flops] : spec.peak_flops_per_s) {
    // FP8 and INT8 map to the same type; take the faster one.
    double& peak = out.spec.peak_flops[to_planner(dtype)];
    peak = std::max(peak, flops);
  }
  out.spec.memory_bandwidth_bytes_per_s = spec.memory_bandwidth_bytes_per_s;
  if (spec.intra_node_link) {
    out.spec.intra_link_bandwidth_bytes_per_s = spec.intra_node_link->bandwidth_bytes_per_s;
    out.spec.intra_link_latency_s = spec.intra_node_link->latency_s;
  }
  if (spec.inter_node_link) {
    out.spec.inter_link_bandwidth_bytes_per_s = spec.inter_node_link->bandwidth_bytes_per_s;
    out.spec.inter_link_latency_s = spec.inter_node_link->latency_s;
  }
  out.spec.gpus_per_node = static_cast<int>(spec.gpus_per_node);
  out.spec.price_per_hour = spec.price_per_hour.value_or(0);
  out.spec.power_watts = spec.power_watts.value_or(0);
  out.mode =
      spec.capacity.mode == api::CapacityMode::kElastic ? planner::CapacityMode::kElastic : planner::CapacityMode::kObserved;
  out.max_gpus = narrow(spec.capacity.max_gpus);
  out.allocatable_gpus = capacity.allocatable;
  out.used_by_others = capacity.used_by_others;
  return out;
}

GpuCapacity capacity_from_spec(const api::AcceleratorClass& object) {
  return {1, static_cast<int>(object.spec.capacity.max_gpus.value_or(object.spec.gpus_per_node)), 0};
}

void request_resources(const api::AcceleratorClass& accelerator, const planner::ModelShape& shape, Launch& launch) {
  constexpr double kGiB = 1024.0 * 1024 * 1024;
  constexpr double kProcessBytes = 2 * kGiB;  // of an engine's process for one GPU, with CUDA's and Python's libraries
  constexpr double kLoadingBytes = 8 * kGiB;  // engines load a file or a piece of it at a time, and drop it then
  constexpr double kDownloadFactor = 1.1;     // a file that is downloaded is there in part twice
  const double weights = planner::weight_bytes(shape);
  const double loaded = weights / launch.stages;
  const bool on_processors = accelerator.spec.resource_name.rfind("windlass.dev/", 0) == 0;
  launch.memory_bytes = on_processors ? static_cast<double>(accelerator.spec.memory_bytes) * launch.gpus_of_server()
                                      : kProcessBytes * launch.gpus_of_server() + std::min(loaded, kLoadingBytes);
  if (launch.model_uri.rfind("hf://", 0) == 0) launch.storage_bytes = kDownloadFactor * weights;
}

Launch worker_spec(const api::ModelService& service, const planner::Pool& pool, int slot,
                   const api::AcceleratorClass& accelerator, int layers) {
  Launch out;
  out.name = fmt::format("{}-{}-{}", service.metadata.name, pool.name, slot);
  out.name_space = service.metadata.name_space;
  out.service = service.metadata.name;
  out.service_uid = service.metadata.uid;
  out.pool = pool.name;
  out.slot = slot;
  out.role = dispatch::to_string(pool.role);
  out.accelerator = pool.spec.accelerator;
  out.resource_name = accelerator.spec.resource_name;
  out.node_selector = accelerator.spec.node_selector;
  out.tolerations = accelerator.spec.tolerations;
  out.gpus = pool.spec.gpus();
  out.stages = pool.spec.pipeline_stages;
  out.layers = out.stages > 1 ? layers : 0;
  out.settings = pool.spec.engine;
  out.max_concurrency = pool.each.max_concurrency;
  if (const auto chosen = planner::told(pool.spec.engine).max_sequences) {
    // Not more than its memory holds, which the plan knows better than a search over many kinds of workers.
    const int sequences = *chosen * pool.spec.pipeline_stages;
    out.max_concurrency = out.max_concurrency > 0 ? std::min(out.max_concurrency, sequences) : sequences;
  }
  const api::EngineSpec& engine = service.spec.engine;
  out.engine = api::to_string(engine.type);
  out.image = engine.image;
  out.program = engine.program;
  out.extra_args = engine.args;
  for (const api::EnvVar& variable : engine.env) {
    WorkerEnv one{variable.name, variable.value, std::nullopt, std::nullopt};
    if (variable.secret_key_ref) one.secret = {variable.secret_key_ref->name, variable.secret_key_ref->key};
    if (variable.config_map_key_ref) one.config_map = {variable.config_map_key_ref->name, variable.config_map_key_ref->key};
    out.env.push_back(std::move(one));
  }
  out.pod_template_json = engine.pod_template_json;
  out.served_name = service.served_name();
  out.model_uri = service.spec.model.uri;
  out.max_context_tokens = static_cast<int>(service.spec.model.max_context_tokens.value_or(0));
  if (out.max_context_tokens == 0 && engine.type == api::EngineType::kLlamaCpp) {
    // The engine divides one context among its slots, so it needs the share of a request.
    if (const auto shape = model_shape_of(service.spec); shape.ok()) out.max_context_tokens = shape->max_context_tokens;
  }
  out.drain_timeout_s = service.spec.scaling.drain_timeout_s;
  out.priority_class = service.spec.priority_class_name;
  return out;
}

}  // namespace windlass::controller
