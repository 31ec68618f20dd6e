// Tests of operator tables reduced to one model: predictions stay those of the full tables, sizes stay within an object's
// limit, and Vidur's profiles become the same tables.
#include "planner/perf/profile_operators.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/perf/operator_csv.h"
#include "planner/perf/operator_times.h"
#include "tests/bench/fidelity/operator_data.h"
#include "tests/effort.h"
#include "tests/paths.h"
#include "tests/says.h"
#include "tests/unit/planner/perf/data_files.h"
#include "tests/unit/planner/perf/performance_profiles.h"

namespace windlass::planner {
namespace {

using testing::HasSubstr;

// Checks that both models agree on random batches, in predictions and in what they are based on.
void expect_unchanged(const PerformanceProfile& profile, const OperatorTables& whole, const OperatorFitRequest& request) {
  const OperatorHardware hardware = operator_hardware(request.accelerator);
  const OperatorTimes times(hardware, efficiency_of(request.accelerator.name, hardware.flops_8bit > 0).efficiency, whole);
  const auto expected = OperatorModel::make(request.shape, request.accelerator, times, request.options);
  ASSERT_TRUE(expected.ok()) << expected.error().message;
  const auto model = iteration_model(profile, request.shape, request.accelerator, 1);
  ASSERT_TRUE(model.ok()) << model.error().message;
  Rng rng(3, "cut");
  int differ = 0;
  for (int i = 0; i < effort(400, 2000); ++i) {
    const Batch batch = random_batch(rng);
    ASSERT_NEAR((*model)->iteration_s(batch) / expected->iteration_s(batch), 1, 2e-3) << "batch " << i;
    differ += (*model)->coverage(batch) != expected->coverage(batch) ? 1 : 0;
  }
  EXPECT_LE(differ, effort(6, 20));  // at the threshold of kMeasuredShare a thousandth decides
}

// Given a grid of generated tables, on 1, 2 and 4 GPUs: fewer rows, the same predictions and coverage, and an error for each
// operator.
TEST(ProfileOperators, CutTablesPredictTheSame) {
  const ModelShape shape = test_shape();
  const AcceleratorSpec spec = test_accelerator();
  const OperatorTables tables = made_tables(shape, spec);
  for (const int gpus : {1, 2, 4}) {
    OperatorFitRequest request{shape, spec, {}, {}};
    request.options.tensor_parallel = gpus;
    const auto fit = fit_operators(tables, request);
    ASSERT_TRUE(fit.ok()) << fit.error().message;
    expect_unchanged(fit->profile, tables, request);
    const auto& less = std::get<MeasuredOperators>(fit->profile.fit).tables;
    EXPECT_LT(less.gemm.size(), tables.gemm.size() * 3 / 4);
    EXPECT_LT(less.context_attention.size(), tables.context_attention.size());
    EXPECT_EQ(fit->profile.errors.size(), gpus == 1 ? 3U : 4U);
    for (const FitError& error : fit->profile.errors) EXPECT_LT(error.median_ape, 0.05) << error.part;
    EXPECT_TRUE(fit->notes.empty());
  }
}

// Given the measured tables of H100 and A100, and models of several sizes: they fit into an object, and predict like the full
// tables.
TEST(ProfileOperators, MeasuredTablesFitIntoAnObject) {
  const std::string root = source_path("/../shared/data");
  if (!read_data("profiles/operators/a100_sxm/gemm_perf.csv.gz")) GTEST_SKIP() << "needs " << root << "/profiles/operators";
  struct Case {
    const char* gpu;
    const char* accelerator;
    const char* model;
    int gpus;
  };
  for (const Case& one : {Case{"a100_sxm", "a100-80gb", "llama3-8b", 1}, Case{"h100_sxm", "h100-80gb", "llama3-70b", 8},
                          Case{"h100_sxm", "h100-80gb", "qwen3-32b", 2}}) {
    const auto gpu = bench::load_operators(root, one.gpu);
    ASSERT_TRUE(gpu.ok()) << gpu.error().message;
    const ModelShape shape = model_shape_by_name(one.model).value();
    const AcceleratorSpec spec = accelerator_by_name(one.accelerator).value();
    OperatorFitRequest request{shape, spec, {}, {2, 0}};
    request.options.tensor_parallel = one.gpus;
    const auto fit = fit_operators(gpu->tables, request);
    ASSERT_TRUE(fit.ok()) << one.model << ": " << fit.error().message;
    EXPECT_LT(to_json(fit->profile).dump().size(), 700'000U) << one.model;
    expect_unchanged(fit->profile, gpu->tables, request);
  }
}

// Given no row that the model can use, and a quantisation without tables: refused, with what is allowed.
TEST(ProfileOperators, RefusesWhatItCannotUse) {
  ModelShape shape = test_shape();
  const AcceleratorSpec spec = test_accelerator();
  OperatorTables tables = made_tables(shape, spec);
  tables.gemm.clear();
  tables.collectives.clear();
  shape.head_dim = 64;
  shape.heads = 64;
  const auto fit = fit_operators(tables, {shape, spec, {}, {}});
  ASSERT_FALSE(fit.ok());
  EXPECT_THAT(fit.error().message,
              HasSubstr("must have rows for this model (got none): bfloat16 products, attention of head_dim 64"));

  EXPECT_EQ(gemm_kind(shape).value(), GemmKind::kBFloat16);
  shape.quantisation = WeightQuantisation{};
  shape.quantisation->method = "gptq";
  shape.quantisation->compute = DType::kFloat16;
  ASSERT_FALSE(gemm_kind(shape).ok());
  EXPECT_THAT(gemm_kind(shape).error().message, HasSubstr("gptq"));
}

// Given texts of each format: recognised by their columns; other texts are not accepted.
TEST(OperatorCsv, TellsTablesApart) {
  OperatorMeasurements all;
  const auto add = [&](const char* text) {
    const auto known = add_operator_csv(text, all);
    EXPECT_TRUE(known.ok()) << known.error().message;
    return known.ok() && *known;
  };
  EXPECT_TRUE(add("device,gemm_dtype,m,n,k,latency\nNVIDIA X,bfloat16,1,2,3,0.5\n"));
  EXPECT_TRUE(
      add("op_name,batch_size,isl,step,num_heads,num_key_value_heads,head_dim,kv_cache_dtype,latency\n"
          "context_attention,1,16,0,8,8,128,bfloat16,0.1\n"));
  EXPECT_TRUE(
      add("op_name,batch_size,isl,step,num_heads,num_key_value_heads,head_dim,kv_cache_dtype,latency\r\n"
          "generation_attention,1,16,4,8,8,128,bfloat16,0.1\r\n"));
  EXPECT_TRUE(add("op_name,nccl_dtype,num_gpus,message_size,latency\nall_reduce,half,2,256,0.01\n"));
  EXPECT_FALSE(add("a,b\n1,2\n"));
  EXPECT_FALSE(add(""));
  EXPECT_EQ(all.tables.gemm.size(), 1U);
  EXPECT_EQ(all.tables.context_attention.size(), 1U);
  ASSERT_EQ(all.tables.generation_attention.size(), 1U);
  EXPECT_EQ(all.tables.generation_attention[0].length, 20);
  EXPECT_EQ(all.tables.collectives.size(), 1U);
  EXPECT_EQ(all.devices, std::vector<std::string>{"NVIDIA X"});
  EXPECT_TRUE(all.has_tables());
  EXPECT_FALSE(all.has_vidur());
  const auto broken = add_operator_csv("gemm_dtype,m,n,k,latency\nbfloat16,1,2,3,-0.5\n", all);
  ASSERT_FALSE(broken.ok());
  EXPECT_THAT(broken.error().message, Says("line 2: latency: must be*(got '-0.5')"));
}

// Given samples as in Vidur: products of the model's own sizes on a GPU, whole prompts, decodes, all-reduces with their
// launches, a line for the CPU with Ray's messages; samples for other numbers of GPUs are ignored.
TEST(ProfileOperators, VidursSamplesAsTables) {
  const ModelShape shape = test_shape();
  VidurProfiles profiles;
  profiles.mlp = {{"mlp_up_proj", 2, 0, {16}, 1e-4}, {"mlp_up_proj", 4, 0, {16}, 5e-5}, {"emb", 2, 0, {16}, 1e-5}};
  profiles.attention = {{"attn_prefill", 2, 0, {512, 0}, 1e-4},
                        {"attn_prefill", 2, 0, {512, 1024}, 2e-4},
                        {"attn_decode", 2, 0, {8, 2048}, 5e-5},
                        {"attn_decode", 2, 0, {1, 32}, 0}};
  profiles.all_reduce = {
      {"all_reduce", 2, 2, {4096}, 1e-5}, {"all_reduce", 2, 1, {4096}, 9e-5}, {"all_gather", 2, 2, {4096}, 1e-5}};
  for (const double batch : {8.0, 16.0, 32.0}) {
    profiles.cpu.push_back({"cpu_schedule", 2, 0, {batch}, 1e-3 + 1e-5 * batch});
    profiles.cpu.push_back({"cpu_sampler_e2e", 2, 0, {batch}, 2e-3});
    profiles.cpu.push_back({"cpu_ray_comm_time", 2, 0, {batch}, 4e-3});
    profiles.cpu.push_back({"cpu_model_execution_e2e", 2, 0, {batch}, 1});
  }
  const auto made = tables_of(profiles, shape, 2);
  ASSERT_TRUE(made.ok()) << made.error().message;
  const AttentionKey key{128, false, 0};
  EXPECT_EQ(made->tables.gemm, (std::vector<GemmRow>{{GemmKind::kBFloat16, 16, 14336, 4096, 1e-4}}));
  EXPECT_EQ(made->tables.context_attention, (std::vector<AttentionRow>{{key, 1, 512, 16, 4, 1e-4}}));
  EXPECT_EQ(made->tables.generation_attention, (std::vector<AttentionRow>{{key, 8, 2048, 16, 4, 5e-5}}));
  EXPECT_EQ(made->tables.collectives, (std::vector<CollectiveRow>{{"all_reduce", "nccl", 2, 2, 4096, 1e-5 + 20e-6}}));
  EXPECT_NEAR(made->overhead.iteration_s, 7e-3, 1e-9);
  EXPECT_NEAR(made->overhead.sequence_s, 1e-5, 1e-9);
  EXPECT_EQ(gpus_of(profiles), (std::vector<int>{2, 4}));
  ASSERT_FALSE(tables_of(profiles, shape, 4).ok());
}

}  // namespace
}  // namespace windlass::planner
