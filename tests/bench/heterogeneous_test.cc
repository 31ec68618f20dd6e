// Tests the calibration of HexGen-2's cost model on its published throughput (docs/algorithms/hexgen2-calibrated.md).
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/bench/heterogeneous/hexgen2_calibration.h"

namespace windlass::bench {
namespace {

using testing::StartsWith;

std::vector<PublishedThroughput> split_of_table(int table) {
  auto made = published_throughput();
  std::erase_if(made, [&](const PublishedThroughput& of) { return of.table != table || of.system == HexGenSystem::kHexGen; });
  return made;
}

// Given shares; expects H100's and the other GPUs' data sheets scaled by their own, and the links inside machines with the
// message's time.
TEST(Hexgen2Calibration, ScalesDataSheets) {
  HexGenShares shares;
  shares.h100_flops = 0.5;
  shares.other_flops = 0.25;
  shares.bandwidth = 0.1;
  shares.message_s = 1e-4;
  const hetero::GpuCluster sheets = cluster_of({{"h100-80gb", 2}, {"l40", 4}}), scaled = with_shares(sheets, shares);
  for (std::size_t node = 0; node < 2; ++node) {
    const auto &before = sheets.nodes[node].accelerator, &after = scaled.nodes[node].accelerator;
    for (const auto& [type, per_s] : before.peak_flops) {
      EXPECT_DOUBLE_EQ(after.peak_flops.at(type), per_s * (node == 0 ? 0.5 : 0.25));
    }
    EXPECT_DOUBLE_EQ(after.memory_bandwidth_bytes_per_s, 0.1 * before.memory_bandwidth_bytes_per_s);
    EXPECT_DOUBLE_EQ(scaled.nodes[node].within.latency_s, 1e-4);
  }
}

// Given shares near those fitted to Table 3; expects its figures of HexGen-2 and DistServe within a fifth in the mean, and
// HexGen-2 first on every workload, as published. Given the data sheets in full; expects more than eight times the figures.
TEST(Hexgen2Calibration, FitsTableThree) {
  SerialExecutor executor;
  const auto figures = split_of_table(3);
  ASSERT_EQ(figures.size(), 10U);
  const HexGenShares near{0.09, 0.24, 0.9, 1e-7, 4, 1.3};
  const auto error = throughput_error(figures, near, executor);
  ASSERT_TRUE(error.ok()) << error.error().message;
  EXPECT_LT(std::exp(*error), 1.2);
  for (const HexGenWorkload& workload : kHexGenWorkloads) {
    EXPECT_THAT(published_order(3, workload), StartsWith("HexGen-2 > "));
    EXPECT_THAT(modelled_order(3, workload, near).value_or(""), StartsWith("HexGen-2 > ")) << workload.name;
  }
  EXPECT_GT(std::exp(throughput_error(figures, {}, executor).value_or(0)), 8);
}

// Given a start for Table 4; expects a fit with a smaller error, and a batch and message that stay at the data sheet if the
// start leaves them there.
TEST(Hexgen2Calibration, ReducesTheError) {
  SerialExecutor executor;
  const auto figures = split_of_table(4);
  const HexGenShares start{0.5, 0.5, 0.5, 0, kAnyBatch, 1};
  const auto fit = fitted_shares({4}, {start}, executor);
  ASSERT_TRUE(fit.ok()) << fit.error().message;
  EXPECT_EQ(fit->max_batch, kAnyBatch);
  EXPECT_EQ(fit->message_s, 0);
  EXPECT_LT(*throughput_error(figures, *fit, executor), *throughput_error(figures, start, executor));
}

}  // namespace
}  // namespace windlass::bench
