// Tests moving measured operators between GPUs on tables made by hand.
#include "planner/perf/table_transfer.h"

#include <vector>

#include <gtest/gtest.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/operator_model.h"

namespace windlass::planner {
namespace {

GpuTables gpu(const char* name) {
  return {operator_hardware(*accelerator_by_name(name)), efficiency_of(name, true).efficiency, {}};
}

AttentionRow decode_row(double batch, double context, double time_s) {
  return {.key = {}, .batch = batch, .length = context, .heads = 32, .kv_heads = 8, .time_s = time_s};
}

double roofline_s(const GpuTables& of, const AttentionRow& row) {
  return generation_attention_roofline_s(of.hardware, of.efficiency, row.key, row.batch, row.length, row.heads, row.kv_heads);
}

// Given a GPU without tables; expects the reference's rows, each at the same multiple of its own roofline.
TEST(TableTransfer, MissingTablesKeepTheirDistanceToTheRoofline) {
  GpuTables reference = gpu("h100-80gb");
  reference.tables.gemm = {{GemmKind::kBFloat16, 512, 4096, 4096, 50e-6}};
  reference.tables.generation_attention = {decode_row(64, 4096, 1e-3)};
  reference.tables.collectives = {
      {.operation = "all_reduce", .implementation = "nccl", .gpus = 2, .bytes = 1e6, .time_s = 2e-5}};
  const GpuTables h200 = gpu("h200-141gb");
  std::vector<Replaced> replaced;
  const OperatorTables tables = completed_from(h200, reference, &replaced);
  ASSERT_EQ(tables.gemm.size(), 1u);
  const GemmRow& product = tables.gemm.front();
  EXPECT_DOUBLE_EQ(product.time_s / gemm_roofline_s(h200.hardware, h200.efficiency, product.kind, 512, 4096, 4096),
                   50e-6 / gemm_roofline_s(reference.hardware, reference.efficiency, product.kind, 512, 4096, 4096));
  ASSERT_EQ(tables.generation_attention.size(), 1u);
  const AttentionRow& row = tables.generation_attention.front();
  EXPECT_DOUBLE_EQ(row.time_s / roofline_s(h200, row), 1e-3 / roofline_s(reference, row));
  EXPECT_LT(row.time_s, 1e-3) << "H200 has more bandwidth";
  EXPECT_EQ(tables.collectives, reference.tables.collectives);
  ASSERT_EQ(replaced.size(), 2u);
  EXPECT_EQ(replaced[0].table, "products in bfloat16");
  EXPECT_EQ(replaced[1].table, "generation attention of 128-wide heads");
}

// Given a decode that is six times slower than on a GPU with less bandwidth, and one that is faster; expects the first to be
// replaced, the second to stay, and the table named. Given the GPU with less bandwidth; expects nothing to change.
TEST(TableTransfer, NothingIsSlowerWithMoreBandwidth) {
  GpuTables h100 = gpu("h100-80gb"), h200 = gpu("h200-141gb");
  h100.tables.generation_attention = {decode_row(64, 4096, 1e-3), decode_row(8, 4096, 2e-4)};
  h200.tables.generation_attention = {decode_row(64, 4096, 6e-3), decode_row(8, 4096, 1.5e-4)};
  std::vector<Replaced> replaced;
  const OperatorTables tables = completed_from(h200, h100, &replaced);
  ASSERT_EQ(tables.generation_attention.size(), 2u);
  EXPECT_LT(tables.generation_attention[0].time_s, 1e-3);
  EXPECT_EQ(tables.generation_attention[1].time_s, 1.5e-4);
  ASSERT_EQ(replaced.size(), 1u);
  EXPECT_EQ(replaced[0].rows, 1u);
  EXPECT_EQ(replaced[0].of, 2u);
  EXPECT_EQ(replaced[0].why, "slower than on a GPU with less bandwidth");
  EXPECT_EQ(completed_from(h100, h200).generation_attention, h100.tables.generation_attention);
}

// Given context attention that needs more FLOP/s than the data sheet has; expects all of its kernel from the reference.
TEST(TableTransfer, ImpossibleKernelsAreReplacedAsAWhole) {
  GpuTables h100 = gpu("h100-80gb"), h200 = gpu("h200-141gb");
  const auto prompt = [](double length, double time_s) {
    return AttentionRow{.key = {}, .batch = 8, .length = length, .heads = 32, .kv_heads = 8, .time_s = time_s};
  };
  h100.tables.context_attention = {prompt(4096, 5e-3), prompt(8192, 20e-3)};
  h200.tables.context_attention = {prompt(4096, 1e-6), prompt(8192, 19e-3)};
  std::vector<Replaced> replaced;
  const OperatorTables tables = completed_from(h200, h100, &replaced);
  ASSERT_EQ(tables.context_attention.size(), 2u);
  EXPECT_GT(tables.context_attention[0].time_s, 1e-3);
  EXPECT_NE(tables.context_attention[1].time_s, 19e-3);
  ASSERT_EQ(replaced.size(), 1u);
  EXPECT_EQ(replaced[0].why, "needs more FLOP/s than the data sheet has");
}

}  // namespace
}  // namespace windlass::planner
