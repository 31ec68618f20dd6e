// Tests of the parsers of operator tables: units, columns, errors by line and column, foreign bytes.
#include "planner/perf/operator_table.h"

#include <string>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

constexpr const char* kGemm = "framework,gemm_dtype,m,n,k,latency\nVLLM,bfloat16,8,4096,5120,0.025\nVLLM,fp8_block,1,2,3,1.5\n";
constexpr const char* kAttention =
    "batch_size,isl,num_heads,num_key_value_heads,head_dim,attn_dtype,kv_cache_dtype,step,window_size,latency\n"
    "4,1,32,8,128,bfloat16,fp8,1023,128,0.02\n";

// Given a table of products: kinds by name, milliseconds as seconds.
TEST(OperatorTable, ReadsGemm) {
  const auto rows = parse_gemm_csv(kGemm);
  ASSERT_TRUE(rows.ok()) << rows.error().message;
  ASSERT_EQ(rows->size(), 2u);
  EXPECT_EQ((*rows)[0], (GemmRow{GemmKind::kBFloat16, 8, 4096, 5120, 0.025e-3}));
  EXPECT_EQ((*rows)[1].kind, GemmKind::kFloat8Block);
}

// Given one row: in generation the context is step + isl, in prefill the length is isl; the key says which kernel.
TEST(OperatorTable, ReadsAttention) {
  const auto generation = parse_generation_attention_csv(kAttention);
  const auto context = parse_context_attention_csv(kAttention);
  ASSERT_TRUE(generation.ok() && context.ok());
  EXPECT_EQ(generation->front(), (AttentionRow{{128, true, 128}, 4, 1024, 32, 8, 0.02e-3}));
  EXPECT_EQ(context->front().length, 1);
}

// Given sizes in elements: bytes by the data type.
TEST(OperatorTable, ReadsCollectives) {
  const auto nccl = parse_nccl_csv(
      "op_name,nccl_dtype,num_gpus,message_size,latency\nall_reduce,half,4,1000,0.01\nall_gather,int8,2,1000,0.02\n");
  ASSERT_TRUE(nccl.ok()) << nccl.error().message;
  EXPECT_EQ((*nccl)[0], (CollectiveRow{"all_reduce", "nccl", 4, 2, 2000, 0.01e-3}));
  EXPECT_EQ((*nccl)[1].bytes, 1000);
  const auto custom = parse_custom_all_reduce_csv(
      "op_name,allreduce_dtype,num_gpus,message_size,latency,backend\nall_reduce,bfloat16,8,4,0.01,vllm_graph\n");
  ASSERT_TRUE(custom.ok()) << custom.error().message;
  EXPECT_EQ(custom->front().implementation, "vllm_graph");
  EXPECT_EQ(custom->front().bytes, 8);
}

// Given Vidur's tables: one sample for each operator in a row, with the sizes that it depends on.
TEST(OperatorTable, ReadsVidur) {
  const auto mlp =
      parse_vidur_mlp_csv("time_stats.add.median,time_stats.emb.median,num_tokens,num_tensor_parallel_workers\n0.1,,64,2\n");
  ASSERT_TRUE(mlp.ok()) << mlp.error().message;
  ASSERT_EQ(mlp->size(), 1u);
  EXPECT_EQ(mlp->front(), (VidurSample{"add", 2, 0, {64}, 0.1e-3}));
  const auto attention = parse_vidur_attention_csv(
      "time_stats.attn_decode.median,time_stats.attn_prefill.median,num_tensor_parallel_workers,batch_size,prefill_chunk_size,"
      "kv_cache_size,"
      "is_prefill\n0.2,,2,16,0,512,False\n,0.3,2,1,128,512,True\n");
  ASSERT_TRUE(attention.ok()) << attention.error().message;
  EXPECT_EQ((*attention)[0], (VidurSample{"attn_decode", 2, 0, {16, 512}, 0.2e-3}));
  EXPECT_EQ((*attention)[1], (VidurSample{"attn_prefill", 2, 0, {128, 512}, 0.3e-3}));
  const auto collective =
      parse_vidur_collective_csv("time_stats.send_recv.median,num_workers,size,devices_per_node\n0.4,2,2048,1\n");
  ASSERT_TRUE(collective.ok()) << collective.error().message;
  EXPECT_EQ(collective->front(), (VidurSample{"send_recv", 2, 1, {2048}, 0.4e-3}));
  const auto cpu = parse_vidur_cpu_csv("schedule_median,batch_size,tensor_parallel_degree\n0.5,8,2\n");
  ASSERT_TRUE(cpu.ok()) << cpu.error().message;
  EXPECT_EQ(cpu->front(), (VidurSample{"cpu_schedule", 2, 0, {8}, 0.5e-3}));
}

// Given errors: line and column, what was found and what is allowed.
TEST(OperatorTable, NamesMistakes) {
  EXPECT_EQ(parse_gemm_csv("gemm_dtype,m,n,k\n").error().message,
            "line 1: must have the columns gemm_dtype, m, n, k, latency (missing: latency)");
  EXPECT_EQ(parse_gemm_csv("gemm_dtype,m,n,k,latency\nint3,1,1,1,1\n").error().message,
            "line 2: gemm_dtype: must be one of bfloat16, float16, fp8, fp8_block (got 'int3')");
  EXPECT_NE(parse_gemm_csv("gemm_dtype,m,n,k,latency\nfp8,0,1,1,1\n").error().message.find("line 2: m: must be"),
            std::string::npos);
  EXPECT_NE(parse_gemm_csv("gemm_dtype,m,n,k,latency\nfp8,1,1,1,-1\n").error().message.find("line 2: latency: must be"),
            std::string::npos);
  std::string more_kv_heads = kAttention;
  more_kv_heads.replace(more_kv_heads.find(",32,8,"), 6, ",32,64");
  EXPECT_FALSE(parse_context_attention_csv(more_kv_heads).ok());
}

// Given a valid table with one byte changed, many times: rows or an error that names a line, and no crash.
TEST(OperatorTable, SurvivesForeignBytes) {
  Rng rng(4, "bytes");
  for (int instance = 0; instance < effort(300, 3000); ++instance) {
    std::string text = rng.integer(0, 1) == 0 ? kGemm : kAttention;
    text[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(text.size()) - 1))] =
        static_cast<char>(rng.integer(0, 255));
    const auto gemm = parse_gemm_csv(text);
    const auto attention = parse_context_attention_csv(text);
    EXPECT_TRUE(gemm.ok() || gemm.error().message.rfind("line ", 0) == 0) << gemm.error().message;
    EXPECT_TRUE(attention.ok() || attention.error().message.rfind("line ", 0) == 0) << attention.error().message;
  }
}

}  // namespace
}  // namespace windlass::planner
