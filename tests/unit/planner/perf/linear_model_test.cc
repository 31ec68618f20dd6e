// Tests the linear model's coefficients against sums by hand, and their size against known hardware.
#include "planner/perf/linear_model.h"

#include <gtest/gtest.h>

#include "planner/catalog/accelerators_by_name.h"
#include "planner/catalog/efficiency.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/operator_model.h"
#include "tests/unit/planner/catalog/configs.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

AcceleratorSpec paper_accelerator() {
  AcceleratorSpec spec;
  spec.memory_bytes = 10'000;
  spec.peak_flops = {{DType::kFloat16, 1000}};
  spec.memory_bandwidth_bytes_per_s = 100;
  spec.intra_link_bandwidth_bytes_per_s = 50;
  spec.intra_link_latency_s = 0.5;
  return spec;
}

Efficiency paper_efficiency() {
  Efficiency efficiency;
  efficiency.compute = 0.5;
  efficiency.bandwidth = 0.8;
  efficiency.link = 0.5;
  efficiency.memory = 0.9;
  efficiency.layer_overhead_s = 1;
  return efficiency;
}

// Given one GPU; expects 656 FLOP per token at 500 FLOP/s; 656 bytes of weights at 80 B/s and 1 s per layer; 16 bytes of KV per
// token and request; a cache of 9000 bytes minus 776 of weights minus 6400 of activations.
TEST(LinearModel, OneGpuByHand) {
  const LinearCoefficients c = linear_coefficients(testing::paper_shape(), paper_accelerator(), 1, paper_efficiency());
  EXPECT_DOUBLE_EQ(c.k1, 656.0 / 500);
  EXPECT_DOUBLE_EQ(c.c1, 656.0 / 80 + 2);
  EXPECT_DOUBLE_EQ(c.k2, 16.0 / 80);
  EXPECT_DOUBLE_EQ(c.c2, 656.0 / 500);
  EXPECT_DOUBLE_EQ(c.c3, 656.0 / 80 + 2);
  EXPECT_DOUBLE_EQ(c.kv_capacity_tokens, 114);  // 1824 / 16
}

// Given two GPUs; expects compute and weights halved; four all-reduces of 8 bytes per token at 2 * 1/2 / 25 s per byte and of
// two half-second steps each; the single KV head on both GPUs.
TEST(LinearModel, TwoGpusByHand) {
  const LinearCoefficients c = linear_coefficients(testing::paper_shape(), paper_accelerator(), 2, paper_efficiency());
  EXPECT_DOUBLE_EQ(c.k1, 656.0 / 1000 + 4 * 8 * 0.04);
  EXPECT_DOUBLE_EQ(c.c3, 656.0 / 160 + 2 + 4 * 2 * 0.5);
  EXPECT_DOUBLE_EQ(c.k2, 32.0 / 160);
  EXPECT_DOUBLE_EQ(c.kv_capacity_tokens, 238);  // (18000 - 776 - 9600) / 32, rounded down
}

// Given coefficients, expect Eq. 2 and 3 from the model and Eq. 4 as the inverse of Eq. 3.
TEST(LinearModel, FollowsThePapersEquations) {
  const LinearCoefficients c{0.001, 0.02, 1e-6, 1e-4, 0.01, 5000};
  const LinearModel model(c);
  EXPECT_DOUBLE_EQ(model.prefill_s(300), 0.32);
  EXPECT_DOUBLE_EQ(model.decode_s(10, 500), (5e-4 + 1e-4) * 10 + 0.01);
  EXPECT_DOUBLE_EQ(model.kv_capacity_tokens(), 5000);
  EXPECT_NEAR(max_mean_context(c, 10, model.decode_s(10, 500)), 500, 1e-9);
  EXPECT_LT(max_mean_context(c, 1000, 0.05), 0);
}

// Given llama3-8b on one H100; expects what is measured on it: around 7 ms per decode step alone, 20-40 ms to prefill 1000
// tokens, and a KV cache of 400,000 to 500,000 tokens.
TEST(LinearModel, AgreesWithMeasurementsOnAnH100) {
  const LinearModel model(
      linear_coefficients(model_shape_by_name("llama3-8b").value(), testing::h100(), 1, EngineType::kWindlass));
  EXPECT_GT(model.decode_s(1, 500), 0.005);
  EXPECT_LT(model.decode_s(1, 500), 0.009);
  EXPECT_GT(model.prefill_s(1000), 0.02);
  EXPECT_LT(model.prefill_s(1000), 0.04);
  EXPECT_GT(model.kv_capacity_tokens(), 400'000);
  EXPECT_LT(model.kv_capacity_tokens(), 500'000);
}

// Given llama3-70b; expects that it does not fit one H100, fits two, and that each doubling makes a step faster but less than
// twice as fast.
TEST(LinearModel, TensorParallelismHelpsLessAndLess) {
  const ModelShape shape = model_shape_by_name("llama3-70b").value();
  EXPECT_LE(linear_coefficients(shape, testing::h100(), 1, EngineType::kWindlass).kv_capacity_tokens, 0);
  EXPECT_GT(linear_coefficients(shape, testing::h100(), 2, EngineType::kWindlass).kv_capacity_tokens, 0);
  double before = LinearModel(linear_coefficients(shape, testing::h100(), 1, EngineType::kWindlass)).decode_s(1, 500);
  for (int gpus : {2, 4, 8}) {
    const double now = LinearModel(linear_coefficients(shape, testing::h100(), gpus, EngineType::kWindlass)).decode_s(1, 500);
    EXPECT_LT(now, before);
    EXPECT_GT(now, before / 2);
    before = now;
  }
}

// Given engines with published runs; expects their lines to agree with the operator model at the sampled iterations to 3 %, at
// which it interpolates, and with their CPU time.
TEST(LinearModel, LinesOfKnownEnginesFollowTheRoofline) {
  const ModelShape shape = model_shape_by_name("llama3-8b").value();
  const AcceleratorSpec h100 = *accelerator_by_name("h100-80gb");
  const OperatorHardware hardware = operator_hardware(h100);
  const OperatorTimes times(hardware, efficiency_of("h100-80gb", true).efficiency);
  for (const EngineType engine : {EngineType::kVLLM, EngineType::kSGLang, EngineType::kTensorRTLLM}) {
    OperatorModelOptions options;
    options.overhead = overhead_of(engine).value();
    const auto operators = OperatorModel::make(shape, h100, times, options);
    ASSERT_TRUE(operators.ok()) << operators.error().message;
    const LinearModel line(linear_coefficients(shape, h100, 1, engine));
    EXPECT_NEAR(line.decode_s(16, 1024) / operators->iteration_s(decode_batch(16, 1024)), 1, 0.1) << to_string(engine);
    EXPECT_NEAR(line.prefill_s(512) / operators->iteration_s(prefill_batch(1, 512)), 1, 0.03) << to_string(engine);
    for (const auto& [batch, context] : {std::pair(1, 512), std::pair(64, 512), std::pair(64, 4096)}) {
      EXPECT_NEAR(line.decode_s(batch, context) / operators->iteration_s(decode_batch(batch, context)), 1, 0.03)
          << to_string(engine) << ", " << batch << " x " << context;
    }
    EXPECT_NEAR(line.prefill_s(8192) / operators->iteration_s(prefill_batch(1, 8192)), 1, 0.03) << to_string(engine);
    EXPECT_EQ(line.kv_capacity_tokens(), linear_coefficients(shape, h100, 1, EngineType::kWindlass).kv_capacity_tokens);
  }
}

// Given a model whose prompts take as long as the CPU needs to launch them; expects a token of a prompt to cost something
// still, and no prompt to cost less than nothing.
TEST(LinearModel, PromptTokensAreNeverFree) {
  ModelShape shape = model_shape_by_name("llama3-8b").value();
  shape.hidden = 576;
  shape.heads = 9;
  shape.kv_heads = 3;
  shape.head_dim = 64;
  shape.intermediate = 1536;
  const LinearCoefficients line = linear_coefficients(shape, *accelerator_by_name("h100-80gb"), 1, EngineType::kTensorRTLLM);
  EXPECT_GT(line.k1, 0);
  EXPECT_GE(line.c1, 0);
  EXPECT_GT(line.c3, 0);
}

// Given weights whose products were not measured, and 32-bit ones; expects the line of fixed shares.
TEST(LinearModel, LinesOfUnknownProductsAreThoseOfTheDataSheet) {
  ModelShape shape = model_shape_by_name("llama3-8b").value();
  for (const DType dtype : {DType::kFloat32, DType::kInt8}) {
    ModelShape other = shape;
    other.dtype = dtype;
    EXPECT_FALSE(has_roofline_line(other, EngineType::kVLLM));
  }
  shape.quantisation.emplace();
  shape.quantisation->method = "gptq";
  shape.quantisation->weight_bits = 4;
  shape.quantisation->group_columns = 128;
  EXPECT_EQ(linear_coefficients(shape, testing::h100(), 1, EngineType::kVLLM),
            linear_coefficients(shape, testing::h100(), 1, EngineType::kWindlass));
}

}  // namespace
}  // namespace windlass::planner
