// Checks the figures of an accelerator and finds its speed for a data type.
#include "planner/catalog/accelerator.h"

#include <cmath>
#include <vector>

#include <fmt/format.h>

namespace windlass::planner {
namespace {

// Types whose speed `dtype` can use, best first.
std::vector<DType> fallbacks(DType dtype) {
  switch (dtype) {
    case DType::kFloat8: return {DType::kFloat8, DType::kInt8, DType::kBFloat16, DType::kFloat16, DType::kFloat32};
    case DType::kInt8: return {DType::kInt8, DType::kFloat8, DType::kBFloat16, DType::kFloat16, DType::kFloat32};
    case DType::kBFloat16: return {DType::kBFloat16, DType::kFloat16, DType::kFloat32};
    case DType::kFloat16: return {DType::kFloat16, DType::kBFloat16, DType::kFloat32};
    case DType::kFloat32: return {DType::kFloat32};
  }
  return {};
}

}  // namespace

Result<void> validate(const AcceleratorSpec& spec) {
  auto wrong = [&](const char* field, double found, const char* allowed) {
    return Error{ErrorCode::kInvalidArgument,
                 fmt::format("accelerator {}: {}: must be {} (got {})", spec.name, field, allowed, found)};
  };
  auto positive = [](double value) { return std::isfinite(value) && value > 0; };
  auto not_negative = [](double value) { return std::isfinite(value) && value >= 0; };
  if (!positive(spec.memory_bytes)) return wrong("memory", spec.memory_bytes, "greater than 0");
  if (!positive(spec.memory_bandwidth_bytes_per_s)) {
    return wrong("memory bandwidth", spec.memory_bandwidth_bytes_per_s, "greater than 0");
  }
  if (spec.peak_flops.empty()) return wrong("peak FLOP/s", 0, "given for at least one data type");
  for (const auto& [dtype, flops] : spec.peak_flops) {
    if (!positive(flops)) return wrong(fmt::format("peak FLOP/s of {}", to_string(dtype)).c_str(), flops, "greater than 0");
  }
  if (spec.gpus_per_node < 1) return wrong("GPUs per node", spec.gpus_per_node, "at least 1");
  if (!not_negative(spec.intra_link_bandwidth_bytes_per_s)) {
    return wrong("intra-node bandwidth", spec.intra_link_bandwidth_bytes_per_s, "at least 0");
  }
  if (!not_negative(spec.intra_link_latency_s)) return wrong("intra-node latency", spec.intra_link_latency_s, "at least 0");
  if (!not_negative(spec.inter_link_bandwidth_bytes_per_s)) {
    return wrong("inter-node bandwidth", spec.inter_link_bandwidth_bytes_per_s, "at least 0");
  }
  if (!not_negative(spec.inter_link_latency_s)) return wrong("inter-node latency", spec.inter_link_latency_s, "at least 0");
  if (!not_negative(spec.price_per_hour)) return wrong("price per hour", spec.price_per_hour, "at least 0");
  if (!not_negative(spec.power_watts)) return wrong("power", spec.power_watts, "at least 0");
  return {};
}

double peak_flops_for(const AcceleratorSpec& spec, DType dtype) {
  for (DType candidate : fallbacks(dtype)) {
    if (const auto found = spec.peak_flops.find(candidate); found != spec.peak_flops.end()) return found->second;
  }
  return 0;
}

}  // namespace windlass::planner
