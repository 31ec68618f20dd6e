// Tests of OperatorTimes: exact at measured rows, roofline elsewhere, and tables refused if they contradict the chip.
#include "planner/perf/operator_times.h"

#include <cmath>
#include <filesystem>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/bench/fidelity/operator_data.h"
#include "tests/effort.h"
#include "tests/unit/planner/perf/data_files.h"

namespace windlass::planner {
namespace {

OperatorHardware hardware() {
  return {.flops_16bit = 1e15, .flops_8bit = 2e15, .memory_bandwidth_bytes_per_s = 3e12, .link_bandwidth_bytes_per_s = 4e11};
}

// A grid of products and attentions whose times are the roofline's times a factor of 1 to 2.
OperatorTables made_up_tables(Rng& rng) {
  OperatorTables tables;
  const AcceleratorEfficiency efficiency;
  for (const double m : {1.0, 16.0, 17.0, 256.0, 4096.0}) {
    for (const double n : {512.0, 4096.0, 16384.0}) {
      for (const double k : {512.0, 4096.0, 16384.0}) {
        tables.gemm.push_back({GemmKind::kBFloat16, m, n, k,
                               rng.uniform(1, 2) * gemm_roofline_s(hardware(), efficiency, GemmKind::kBFloat16, m, n, k)});
      }
    }
  }
  for (const double batch : {1.0, 8.0, 64.0}) {
    for (const double length : {16.0, 512.0, 8192.0}) {
      for (const double heads : {8.0, 32.0}) {
        const double slower = rng.uniform(1, 2);
        tables.context_attention.push_back(
            {{},
             batch,
             length,
             heads,
             8,
             slower * context_attention_roofline_s(hardware(), efficiency, {}, batch, length, heads, 8)});
        tables.generation_attention.push_back(
            {{},
             batch,
             length,
             heads,
             8,
             slower * generation_attention_roofline_s(hardware(), efficiency, {}, batch, length, heads, 8)});
      }
    }
  }
  tables.collectives = {{"all_reduce", "nccl", 2, 2, 1e3, 10e-6},      {"all_reduce", "nccl", 2, 2, 1e6, 20e-6},
                        {"all_reduce", "vllm_graph", 2, 2, 1e3, 5e-6}, {"all_reduce", "vllm_graph", 2, 2, 1e6, 40e-6},
                        {"all_reduce", "vllm_eager", 2, 2, 1e3, 1e-6}, {"all_gather", "nccl", 2, 2, 1e3, 1e-6}};
  return tables;
}

// Given made-up tables: each measured row's own time, and coverage measured.
TEST(OperatorTimes, IsExactAtMeasuredRows) {
  Rng rng(6, "tables");
  const OperatorTables tables = made_up_tables(rng);
  const OperatorTimes times(hardware(), {}, tables);
  EXPECT_TRUE(times.turned_away().empty());
  for (const GemmRow& row : tables.gemm) {
    const OperatorTime found = times.gemm(row.kind, row.m, row.n, row.k);
    EXPECT_NEAR(found.s, row.time_s, 1e-9 * row.time_s);
    EXPECT_EQ(found.coverage, Coverage::kMeasured);
  }
  for (const AttentionRow& row : tables.context_attention) {
    EXPECT_NEAR(times.context_attention(row.key, row.batch, row.length, row.heads, row.kv_heads).s, row.time_s,
                1e-9 * row.time_s);
  }
  for (const AttentionRow& row : tables.generation_attention) {
    EXPECT_NEAR(times.generation_attention(row.key, row.batch, row.length, row.heads, row.kv_heads).s, row.time_s,
                1e-9 * row.time_s);
  }
}

// Given tables of 1 to 2 times the roofline: random queries, inside and outside the tables, stay within the range of their
// neighbours.
TEST(OperatorTimes, StaysNearTheRoofline) {
  Rng rng(7, "queries");
  const OperatorTimes times(hardware(), {}, made_up_tables(rng));
  // Efficiencies lie in [1, 2]; a plane may exceed that by at most half their spread in logarithms.
  const double low = 1 / std::sqrt(2.0) * 0.999;
  const double high = 2 * std::sqrt(2.0) * 1.001;
  for (int instance = 0; instance < effort(300, 3000); ++instance) {
    const auto size = [&](double most) { return std::exp(rng.uniform(0, std::log(most))); };
    const double n = size(1e5), k = size(1e5), batch = size(200), length = size(3e4), heads = size(64);
    const double m = std::vector<double>{1, 16, 17, 256, 4096, 20000}[static_cast<std::size_t>(rng.integer(0, 5))];
    const double product =
        times.gemm(GemmKind::kBFloat16, m, n, k).s / gemm_roofline_s(hardware(), {}, GemmKind::kBFloat16, m, n, k);
    EXPECT_GT(product, low);
    EXPECT_LT(product, high);
    const double attention = times.context_attention({}, batch, length, heads, 8).s /
                             context_attention_roofline_s(hardware(), {}, {}, batch, length, heads, 8);
    EXPECT_GT(attention, low);
    EXPECT_LT(attention, high);
    EXPECT_GE(times.cold_gemm(GemmKind::kBFloat16, m, n, k).s, times.gemm(GemmKind::kBFloat16, m, n, k).s);
  }
}

// Given m between two measured values: the line between their times. Beyond the last: extrapolated, growing.
TEST(OperatorTimes, InterpolatesBetweenMeasuredM) {
  Rng rng(8, "between");
  const OperatorTimes times(hardware(), {}, made_up_tables(rng));
  const auto at = [&](double m) { return times.gemm(GemmKind::kBFloat16, m, 4096, 4096); };
  EXPECT_NEAR(at(16.5).s, (at(16).s + at(17).s) / 2, 1e-12);
  EXPECT_EQ(at(8192).coverage, Coverage::kExtrapolated);
  EXPECT_GT(at(8192).s, at(4096).s);
  EXPECT_EQ(times.gemm(GemmKind::kBFloat16, 16, 4096, 1e6).coverage, Coverage::kExtrapolated);
  EXPECT_EQ(times.measured_m(GemmKind::kBFloat16), (std::vector<double>{1, 16, 17, 256, 4096}));
}

// Given no table: the roofline, and the matching coverage.
TEST(OperatorTimes, FallsBackToTheRoofline) {
  const OperatorTimes times(hardware(), {});
  EXPECT_EQ(times.gemm(GemmKind::kFloat8, 8, 64, 64).coverage, Coverage::kModelled);
  EXPECT_EQ(times.gemm(GemmKind::kFloat8, 8, 64, 64).s, gemm_roofline_s(hardware(), {}, GemmKind::kFloat8, 8, 64, 64));
  EXPECT_EQ(times.context_attention({}, 1, 64, 8, 8).coverage, Coverage::kModelled);
  EXPECT_EQ(times.generation_attention({}, 1, 64, 8, 8).coverage, Coverage::kModelled);
  EXPECT_EQ(times.all_reduce(4, 1e6).s, all_reduce_roofline_s(hardware(), {}, 4, 1e6));
  EXPECT_TRUE(times.measured_m(GemmKind::kBFloat16).empty());
}

// Given two implementations: the faster at each size; other operations, eager launches and other numbers of GPUs do not count.
TEST(OperatorTimes, TakesTheFastestAllReduce) {
  Rng rng(9, "collectives");
  const OperatorTimes times(hardware(), {}, made_up_tables(rng));
  EXPECT_NEAR(times.all_reduce(2, 1e3).s, 5e-6, 1e-12);
  EXPECT_NEAR(times.all_reduce(2, 1e6).s, 20e-6, 1e-12);
  EXPECT_NEAR(times.all_reduce(2, 10).s, 5e-6, 1e-12);
  EXPECT_EQ(times.all_reduce(2, 1e7).coverage, Coverage::kExtrapolated);
  EXPECT_EQ(times.all_reduce(8, 1e3).coverage, Coverage::kModelled);
  EXPECT_EQ(times.all_reduce(1, 1e9).s, 0);
}

// Given an attention table ten times faster than peak FLOP/s: refused, named, and the roofline used instead.
TEST(OperatorTimes, RefusesImpossibleTables) {
  Rng rng(10, "impossible");
  OperatorTables tables = made_up_tables(rng);
  for (AttentionRow& row : tables.context_attention) {
    row.time_s =
        0.1 * context_attention_work({}, row.batch, row.length, row.heads, row.kv_heads).flops / hardware().flops_16bit;
  }
  const OperatorTimes times(hardware(), {}, tables);
  ASSERT_EQ(times.turned_away().size(), 1u);
  EXPECT_EQ(times.turned_away()[0].rfind("context attention, head_dim 128", 0), 0u) << times.turned_away()[0];
  EXPECT_EQ(times.context_attention({}, 8, 512, 32, 8).coverage, Coverage::kModelled);
  EXPECT_EQ(times.generation_attention({}, 8, 512, 32, 8).coverage, Coverage::kMeasured);
}

// Given the published tables: nothing of A100 and H100 is refused. H200's context attention is, with or without a window,
// because some rows exceed peak FLOP/s; so is L40S's with an FP8 cache.
TEST(OperatorTimes, PublishedTables) {
  if (!std::filesystem::exists(data_path("profiles/operators"))) GTEST_SKIP() << "no " << data_path("profiles/operators");
  for (const auto& [folder, away] : std::map<std::string, std::size_t>{{"a100_sxm", 0}, {"h100_sxm", 0}, {"l40s", 1}}) {
    const auto gpu = bench::load_operators(data_path(""), folder);
    ASSERT_TRUE(gpu.ok()) << gpu.error().message;
    const OperatorTimes times(gpu->hardware, efficiency_of(gpu->accelerator, true).efficiency, gpu->tables);
    EXPECT_EQ(times.turned_away().size(), away) << folder;
    const GemmRow& row = gpu->tables.gemm[gpu->tables.gemm.size() / 2];
    EXPECT_NEAR(times.gemm(row.kind, row.m, row.n, row.k).s, row.time_s, 1e-9 * row.time_s);
  }
  const auto h200 = bench::load_operators(data_path(""), "h200_sxm");
  ASSERT_TRUE(h200.ok()) << h200.error().message;
  const OperatorTimes times(h200->hardware, efficiency_of(h200->accelerator, true).efficiency, h200->tables);
  EXPECT_EQ(times.context_attention({}, 1, 4096, 32, 8).coverage, Coverage::kModelled);
  EXPECT_EQ(times.generation_attention({}, 1, 4096, 32, 8).coverage, Coverage::kMeasured);
}

}  // namespace
}  // namespace windlass::planner
