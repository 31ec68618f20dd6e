// Tests of accelerators: impossible figures are refused by name, and known accelerators agree with the chart, the docs and the
// measured systems.
#include "planner/catalog/accelerator.h"

#include <cmath>
#include <filesystem>
#include <map>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <yaml-cpp/yaml.h>

#include "planner/catalog/accelerators_by_name.h"
#include "tests/paths.h"
#include "tests/says.h"
#include "tests/unit/planner/catalog/docs_table.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;

constexpr double kGiB = 1024.0 * 1024 * 1024;

AcceleratorSpec named(const std::string& name) { return accelerator_by_name(name).value(); }

// Given impossible figures; expects an error that names the class, the field, what was found and what is allowed.
TEST(Accelerator, RefusesImpossibleFigures) {
  EXPECT_TRUE(validate(named("h100-80gb")).ok());
  AcceleratorSpec spec = named("h100-80gb");
  spec.memory_bytes = 0;
  EXPECT_EQ(validate(spec).error().message, "accelerator h100-80gb: memory: must be greater than 0 (got 0)");
  spec = named("h100-80gb");
  spec.peak_flops[DType::kFloat8] = -1;
  EXPECT_EQ(validate(spec).error().message, "accelerator h100-80gb: peak FLOP/s of float8: must be greater than 0 (got -1)");
  spec = named("h100-80gb");
  spec.gpus_per_node = 0;
  EXPECT_EQ(validate(spec).error().message, "accelerator h100-80gb: GPUs per node: must be at least 1 (got 0)");
  spec = named("h100-80gb");
  spec.price_per_hour = -0.5;
  EXPECT_EQ(validate(spec).error().message, "accelerator h100-80gb: price per hour: must be at least 0 (got -0.5)");
}

// Given a chip without 8-bit floats; expects float8 at the speed of int8. Given one without bfloat16; expects that of float16.
// Given one without 16-bit types; expects that of float32.
TEST(Accelerator, FallsBackToTheNextLargerType) {
  EXPECT_DOUBLE_EQ(peak_flops_for(named("a100-80gb"), DType::kFloat8), 624e12);
  EXPECT_DOUBLE_EQ(peak_flops_for(named("v100-32gb"), DType::kFloat8), 125e12);
  EXPECT_DOUBLE_EQ(peak_flops_for(named("t4"), DType::kBFloat16), 65e12);
  AcceleratorSpec cpu;
  cpu.peak_flops = {{DType::kFloat32, 1e11}};
  EXPECT_DOUBLE_EQ(peak_flops_for(cpu, DType::kFloat16), 1e11);
  cpu.peak_flops = {{DType::kFloat16, 1e11}};
  EXPECT_DOUBLE_EQ(peak_flops_for(cpu, DType::kFloat32), 0);
}

// Given every name; expects valid and plausible figures: types of half the size at least as fast, the whole memory read in 10
// to 120 ms, and a network no faster than the links inside a node.
TEST(AcceleratorsByName, ArePlausible) {
  EXPECT_EQ(accelerator_names().size(), 14U);
  for (const std::string& name : accelerator_names()) {
    const AcceleratorSpec spec = named(name);
    EXPECT_EQ(spec.name, name);
    ASSERT_TRUE(validate(spec).ok()) << validate(spec).error().message;
    const auto peak = [&](DType dtype) { return peak_flops_for(spec, dtype); };
    EXPECT_LT(peak(DType::kFloat32), peak(DType::kFloat16)) << name;
    EXPECT_LE(peak(DType::kFloat16), peak(DType::kInt8)) << name;
    EXPECT_EQ(peak(DType::kFloat16), peak(DType::kBFloat16)) << name;
    const double sweep_s = spec.memory_bytes / spec.memory_bandwidth_bytes_per_s;
    EXPECT_GT(sweep_s, 0.010) << name;
    EXPECT_LT(sweep_s, 0.120) << name;
    EXPECT_GT(spec.intra_link_bandwidth_bytes_per_s, spec.inter_link_bandwidth_bytes_per_s) << name;
    EXPECT_GT(spec.inter_link_bandwidth_bytes_per_s, 0) << name;
    EXPECT_LE(spec.intra_link_latency_s, spec.inter_link_latency_s) << name;
    EXPECT_GT(spec.price_per_hour, 0) << name;
    EXPECT_GT(spec.power_watts, 0) << name;
  }
}

// Given a name that ends in a size in GB; expects that much memory, minus at most 12 % for the driver and ECC.
TEST(AcceleratorsByName, HaveTheMemoryOfTheirNames) {
  const std::map<std::string, double> nominal_gib = {{"l4", 24}, {"l40", 48},   {"l40s", 48},     {"a10g", 24},
                                                     {"t4", 16}, {"a6000", 48}, {"rtx-4090", 24}, {"mi300x", 192}};
  for (const std::string& name : accelerator_names()) {
    double size_bytes = 0;
    if (const auto found = nominal_gib.find(name); found != nominal_gib.end()) {
      size_bytes = found->second * kGiB;
    } else {
      size_bytes = std::stod(name.substr(name.find('-') + 1)) * 1e9;
    }
    EXPECT_GT(named(name).memory_bytes, 0.88 * size_bytes) << name;
    EXPECT_LT(named(name).memory_bytes, 1.08 * size_bytes) << name;  // "80 GB" of an A100 means 80 GiB
  }
}

// Given an unknown name; expects an error that lists the known names.
TEST(AcceleratorsByName, UnknownNamesListTheKnownOnes) {
  const auto result = accelerator_by_name("tpu-v5e");
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(result.error().message, Says("accelerator: must be one of v100-32gb, a100-40gb, a100-80gb*(got 'tpu-v5e')"));
}

// "3350G", "79Gi".
double quantity(const std::string& text) {
  std::size_t end = 0;
  const double number = std::stod(text, &end);
  const std::map<std::string, double> suffixes = {{"", 1}, {"G", 1e9}, {"T", 1e12}, {"Gi", kGiB}};
  return number * suffixes.at(text.substr(end));
}

// Given the AcceleratorClasses of the chart; expects the catalog's figures. Memory is rounded down to whole GiB there.
TEST(AcceleratorsByName, AgreeWithTheChart) {
  const std::map<std::string, std::string> names = {{"nvidia-l4", "l4"},
                                                    {"nvidia-l40s", "l40s"},
                                                    {"nvidia-a100-80gb", "a100-80gb"},
                                                    {"nvidia-h100-80gb", "h100-80gb"},
                                                    {"nvidia-h200", "h200-141gb"},
                                                    {"nvidia-b200", "b200-192gb"}};
  const std::map<std::string, DType> types = {{"fp32", DType::kFloat32},
                                              {"fp16", DType::kFloat16},
                                              {"bf16", DType::kBFloat16},
                                              {"fp8", DType::kFloat8},
                                              {"int8", DType::kInt8}};
  const YAML::Node classes = YAML::Load(testing::file_text(source_path("/charts/windlass/values.yaml")))["acceleratorClasses"];
  ASSERT_EQ(classes.size(), names.size());
  for (const auto& item : classes) {
    const auto chart_name = item.first.as<std::string>();
    ASSERT_TRUE(names.contains(chart_name)) << chart_name;
    const AcceleratorSpec spec = named(names.at(chart_name));
    const YAML::Node& values = item.second;
    const auto number = [&](const YAML::Node& node) { return quantity(node.as<std::string>()); };
    EXPECT_DOUBLE_EQ(number(values["memory"]), std::floor(spec.memory_bytes / kGiB) * kGiB) << chart_name;
    EXPECT_DOUBLE_EQ(number(values["memoryBandwidthBytesPerSecond"]), spec.memory_bandwidth_bytes_per_s) << chart_name;
    EXPECT_EQ(values["peakFlopsPerSecond"].size(), spec.peak_flops.size()) << chart_name;
    for (const auto& peak : values["peakFlopsPerSecond"]) {
      EXPECT_DOUBLE_EQ(number(peak.second), spec.peak_flops.at(types.at(peak.first.as<std::string>()))) << chart_name;
    }
    EXPECT_DOUBLE_EQ(number(values["intraNodeLink"]["bandwidthBytesPerSecond"]), spec.intra_link_bandwidth_bytes_per_s);
    EXPECT_DOUBLE_EQ(number(values["intraNodeLink"]["latencyMicroseconds"]) * 1e-6, spec.intra_link_latency_s) << chart_name;
    EXPECT_EQ(values["gpusPerNode"].as<int>(), spec.gpus_per_node) << chart_name;
    EXPECT_DOUBLE_EQ(number(values["pricePerHour"]), spec.price_per_hour) << chart_name;
    EXPECT_DOUBLE_EQ(number(values["powerWatts"]), spec.power_watts) << chart_name;
  }
}

// Given the systems on which operators were measured; expects data-sheet figures within 0.1 %, and memory within 8 % (there it
// is the nominal size).
TEST(AcceleratorsByName, AgreeWithTheMeasuredSystems) {
  const std::string folder = source_path("/../shared/data/profiles/operators/");
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not there";
  const std::map<std::string, std::string> systems = {
      {"a100_sxm", "a100-80gb"}, {"h100_sxm", "h100-80gb"}, {"h200_sxm", "h200-141gb"}, {"l40s", "l40s"}};
  for (const auto& [system, name] : systems) {
    const YAML::Node gpu = YAML::Load(testing::file_text(folder + system + "/system.yaml"));
    const AcceleratorSpec spec = named(name);
    const auto expect_near = [&](const char* what, double found, double expected, double tolerance) {
      EXPECT_NEAR(found, expected, tolerance * expected) << name << " " << what;
    };
    expect_near("bf16", spec.peak_flops.at(DType::kBFloat16), gpu["gpu"]["bfloat16_tc_flops"].as<double>(), 0.001);
    expect_near("int8", spec.peak_flops.at(DType::kInt8), gpu["gpu"]["int8_tc_flops"].as<double>(), 0.001);
    expect_near("memory bandwidth", spec.memory_bandwidth_bytes_per_s, gpu["gpu"]["mem_bw"].as<double>(), 0.001);
    expect_near("memory", spec.memory_bytes, gpu["gpu"]["mem_capacity"].as<double>(), 0.08);
    expect_near("power", spec.power_watts, gpu["gpu"]["power"].as<double>(), 0.001);
    expect_near("link", spec.intra_link_bandwidth_bytes_per_s, gpu["node"]["intra_node_bw"].as<double>(), 0.001);
  }
}

// Given docs/catalog.md; expects its table of accelerators to agree with the catalog.
TEST(AcceleratorsByName, DocsAgree) {
  const std::string page = testing::catalog_page();
  for (const std::string& name : accelerator_names()) EXPECT_THAT(page, HasSubstr(testing::accelerator_row(named(name))));
}

}  // namespace
}  // namespace windlass::planner
