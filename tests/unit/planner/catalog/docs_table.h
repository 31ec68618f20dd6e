// Prints the rows of the tables in docs/catalog.md from the catalog's figures.
#pragma once

#include <fstream>
#include <iterator>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "tests/paths.h"

namespace windlass::planner::testing {

inline std::string file_text(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file.good()) << path;
  return {std::istreambuf_iterator<char>(file), {}};
}

inline std::string catalog_page() { return file_text(source_path("/docs/catalog.md")); }

// name, architecture, parameters, active ones, weights in GB, KV cache in KiB a token
inline std::string model_row(const std::string& name, const ModelShape& shape) {
  return fmt::format("| {} | {} | {} | {:.2f} | {:.1f} | {:g} |\n", name, shape.architecture, parameter_count(shape),
                     static_cast<double>(active_parameter_count(shape)) / 1e9, weight_bytes(shape) / 1e9,
                     kv_bytes_per_token(shape) / 1024);
}

// name, memory in MiB, TFLOP/s by type, memory, intra-node and network bandwidth in GB/s, price, power; the source follows
inline std::string accelerator_row(const AcceleratorSpec& spec) {
  const auto peak = [&](DType dtype) {
    const auto found = spec.peak_flops.find(dtype);
    return found == spec.peak_flops.end() ? std::string("-") : fmt::format("{:.5g}", found->second / 1e12);
  };
  return fmt::format("| {} | {:.0f} | {} | {} | {} | {} | {} | {:g} | {:g} | {:.3g} | {:g} | {:g} |", spec.name,
                     spec.memory_bytes / (1024 * 1024), peak(DType::kFloat32), peak(DType::kFloat16), peak(DType::kBFloat16),
                     peak(DType::kFloat8), peak(DType::kInt8), spec.memory_bandwidth_bytes_per_s / 1e9,
                     spec.intra_link_bandwidth_bytes_per_s / 1e9, spec.inter_link_bandwidth_bytes_per_s / 1e9,
                     spec.price_per_hour, spec.power_watts);
}

}  // namespace windlass::planner::testing
