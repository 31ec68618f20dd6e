// Tests of the roofline: its two limits, what must grow by physics, and the built-in coefficients.
#include "planner/perf/roofline.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/operator_model.h"

namespace windlass::planner {
namespace {

OperatorHardware plain_hardware() {
  return {.flops_16bit = 1e15, .flops_8bit = 2e15, .memory_bandwidth_bytes_per_s = 3e12, .link_bandwidth_bytes_per_s = 4e11};
}

// Given work of equal compute and memory time: their sum with sharpness 1 (HexGen-2), almost the larger with a large one
// (DistServe), and never less than the data sheet's floor.
TEST(Roofline, LiesBetweenSumAndMaximum) {
  const OperatorWork work{.flops = 1e12, .bytes = 3e9};
  OperatorEfficiency efficiency{.launch_s = 0, .compute = 1, .bandwidth = 1, .sharpness = 1};
  EXPECT_NEAR(roofline_s(work, 1e15, 3e12, efficiency), 2e-3, 1e-9);
  efficiency.sharpness = 60;
  EXPECT_NEAR(roofline_s(work, 1e15, 3e12, efficiency), 1e-3, 2e-5);
  EXPECT_GE(roofline_s(work, 1e15, 3e12, efficiency), physical_floor_s(work, 1e15, 3e12, true));
}

// Given a cache: small data come from it, large ones do not, and cold data never do.
TEST(Roofline, PricesTheCache) {
  const OperatorEfficiency efficiency{.launch_s = 0, .bandwidth = 1, .cache_gain = 3, .cache_bytes = 1e7};
  EXPECT_NEAR(roofline_s({.bytes = 1e3}, 1e15, 1e12, efficiency), 1e3 / 4e12, 1e-15);
  EXPECT_NEAR(roofline_s({.bytes = 1e10}, 1e15, 1e12, efficiency), 1e10 / 1e12, 1e-6);
  EXPECT_EQ(roofline_s({.bytes = 1e3}, 1e15, 1e12, efficiency, true), 1e3 / 1e12);
}

// Given 5,000 random sizes and every built-in set of coefficients: times are positive, and more work takes no less time.
TEST(Roofline, GrowsWithWork) {
  Rng rng(5, "grow");
  for (int instance = 0; instance < 5000; ++instance) {
    const std::vector<std::string> names = accelerator_names();
    const std::string name = names[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(names.size()) - 1))];
    const OperatorHardware chip = operator_hardware(*accelerator_by_name(name));
    const AcceleratorEfficiency efficiency = efficiency_of(name, chip.flops_8bit > 0).efficiency;
    const auto size = [&](double most) { return std::floor(std::exp(rng.uniform(0, std::log(most)))); };
    const double m = size(8192), n = size(65536), k = size(65536);
    for (const GemmKind kind : {GemmKind::kBFloat16, GemmKind::kFloat8, GemmKind::kFloat8Block}) {
      const double s = gemm_roofline_s(chip, efficiency, kind, m, n, k, true);
      EXPECT_GT(s, 0);
      EXPECT_GE(gemm_roofline_s(chip, efficiency, kind, 2 * m, n, k, true), s);
      EXPECT_GE(gemm_roofline_s(chip, efficiency, kind, m, n + 1, k, true), s);
      EXPECT_GE(gemm_roofline_s(chip, efficiency, kind, m, n, 3 * k, true), s);
    }
    const double batch = size(256), length = size(16384), kv_heads = size(8), heads = kv_heads * size(8);
    const double context_s = context_attention_roofline_s(chip, efficiency, {}, batch, length, heads, kv_heads);
    EXPECT_GT(context_s, 0);
    EXPECT_GE(context_attention_roofline_s(chip, efficiency, {}, batch, 2 * length, heads, kv_heads), context_s);
    EXPECT_GE(context_s,
              context_attention_roofline_s(chip, efficiency, {.window_tokens = 128}, batch, length, heads, kv_heads));
    const double bytes = size(1e9);
    EXPECT_GT(all_reduce_roofline_s(chip, efficiency, 2, bytes), 0);
    EXPECT_GE(all_reduce_roofline_s(chip, efficiency, 8, bytes), all_reduce_roofline_s(chip, efficiency, 2, bytes));
    EXPECT_GE(all_reduce_roofline_s(chip, efficiency, 4, 2 * bytes), all_reduce_roofline_s(chip, efficiency, 4, bytes));
  }
  EXPECT_EQ(all_reduce_roofline_s(plain_hardware(), {}, 1, 1e6), 0);
}

// Given names: the measured four have their own coefficients, all others those of a measured one, and say so; fractions are
// between 0 and 1.
TEST(Roofline, CoefficientsShipForEveryAccelerator) {
  int measured = 0;
  for (const std::string& name : accelerator_names()) {
    const EfficiencyEntry entry = efficiency_of(name, true);
    measured += entry.measured ? 1 : 0;
    EXPECT_EQ(entry.measured, entry.measured_on == name);
    for (const OperatorEfficiency& e :
         {entry.efficiency.gemm_16bit, entry.efficiency.gemm_float8, entry.efficiency.gemm_float8_block,
          entry.efficiency.context_attention, entry.efficiency.generation_attention}) {
      EXPECT_GT(e.launch_s, 1e-7);
      EXPECT_LT(e.launch_s, 1e-4);
      EXPECT_GT(e.compute, 0);
      EXPECT_LE(e.compute, 1);
      EXPECT_GT(e.bandwidth, 0);
      EXPECT_LE(e.bandwidth, 1);
      EXPECT_GE(e.sharpness, 1);
    }
  }
  EXPECT_EQ(measured, 4);
  EXPECT_EQ(efficiency_of("a chip of next year", true).measured_on, "h100-80gb");
  EXPECT_EQ(efficiency_of("a chip of ten years ago", false).measured_on, "a100-80gb");
}

// Given a chip without FP8: FP8 weights save bytes, and compute at 16-bit speed.
TEST(Roofline, FloatEightWithoutTensorCores) {
  OperatorHardware chip = plain_hardware();
  EXPECT_EQ(peak_flops(chip, GemmKind::kFloat8), 2e15);
  chip.flops_8bit = 0;
  EXPECT_EQ(peak_flops(chip, GemmKind::kFloat8), 1e15);
  EXPECT_LT(gemm_work(GemmKind::kFloat8, 1, 4096, 4096).bytes, gemm_work(GemmKind::kBFloat16, 1, 4096, 4096).bytes);
}

}  // namespace
}  // namespace windlass::planner
