// Tests OperatorModel against operators added by hand, what must grow, and what is refused.
#include "planner/perf/operator_model.h"

#include <cmath>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

AcceleratorSpec h100() { return *accelerator_by_name("h100-80gb"); }
OperatorTimes roofline_of(const AcceleratorSpec& spec) {
  return OperatorTimes(operator_hardware(spec), efficiency_of(spec.name, true).efficiency);
}
OperatorModel make(const std::string& name, const OperatorModelOptions& options = {}) {
  return *OperatorModel::make(*model_shape_by_name(name), h100(), roofline_of(h100()), options);
}

// Given Llama-3-8B under tensor parallelism: token-level, attention and communication parts equal the operators of a layer,
// listed one by one.
TEST(OperatorModel, AddsUpALayersOperators) {
  const ModelShape shape = *model_shape_by_name("llama3-8b");
  const OperatorTimes times = roofline_of(h100());
  for (const double tp : {1.0, 2.0, 4.0}) {
    const OperatorModel model = make("llama3-8b", {.tensor_parallel = static_cast<int>(tp)});
    for (const double tokens : {1.0, 16.0, 256.0, 4096.0}) {
      const auto product = [&](double n, double k) { return times.cold_gemm(GemmKind::kBFloat16, tokens, n, k).s; };
      const double products = product((32 + 16) * 128 / tp, 4096) + product(4096, 4096 / tp) + product(2 * 14336 / tp, 4096) +
                              product(4096, 14336 / tp);
      const double row = tokens * 4096 * 2;
      const double small = 2 * times.elementwise_s(4 * row) + times.elementwise_s(2 * tokens * (32 + 8) * 128 / tp * 2) +
                           times.elementwise_s(2 * tokens * 2 * 8 * 128 / tp * 2) +
                           times.elementwise_s(3 * tokens * 14336 / tp * 2);
      Batch batch;
      batch.add_prefill(tokens);
      const OperatorModel::Parts parts = model.parts(batch);
      const double expected = 32 * (products + small) + times.elementwise_s(2 * row);
      EXPECT_NEAR(parts.token_level_s, expected, 1e-9 * expected);
      EXPECT_NEAR(parts.communication_s, tp > 1 ? 65 * times.all_reduce(static_cast<int>(tp), row).s : 0, 1e-12);
      const double attention = shape.layers * times.context_attention({}, 1, tokens, 32 / tp, 8 / tp).s;
      EXPECT_NEAR(parts.prefill_attention_s, attention, 1e-9 * attention);
      EXPECT_EQ(parts.decode_attention_s, 0);
    }
    const double attention = shape.layers * times.generation_attention({}, 64, 1024, 32 / tp, 8 / tp).s;
    EXPECT_NEAR(model.parts(decode_batch(64, 1024)).decode_attention_s, attention, 1e-9 * attention);
  }
}

// Given random attentions off the grid: within 1 % of the operator itself.
TEST(OperatorModel, GridIsFine) {
  const ModelShape shape = *model_shape_by_name("llama3-8b");
  const OperatorTimes times = roofline_of(h100());
  const OperatorModel model = make("llama3-8b");
  Rng rng(11, "grid");
  for (int instance = 0; instance < effort(300, 3000); ++instance) {
    const int batch = static_cast<int>(rng.integer(1, 1000));
    const double length = std::floor(std::exp(rng.uniform(0, std::log(100000.0))));
    const double decode = shape.layers * times.generation_attention({}, batch, length, 32, 8).s;
    EXPECT_NEAR(model.parts(decode_batch(batch, length)).decode_attention_s, decode, 0.01 * decode);
    const double prefill = shape.layers * times.context_attention({}, batch, length, 32, 8).s;
    EXPECT_NEAR(model.parts(prefill_batch(batch, length)).prefill_attention_s, prefill, 0.01 * prefill);
  }
}

// Given random batches of every kind of model: positive times that grow with prompts, contexts and sequences.
TEST(OperatorModel, GrowsWithTheBatch) {
  Rng rng(12, "grow");
  for (const std::string& name : model_shape_names()) {
    const Result<OperatorModel> model = OperatorModel::make(*model_shape_by_name(name), h100(), roofline_of(h100()), {});
    ASSERT_TRUE(model.ok()) << name << ": " << model.error().message;
    for (int instance = 0; instance < effort(40, 200); ++instance) {
      Batch batch;
      const std::int64_t prefills = rng.integer(0, 4);
      for (std::int64_t i = 0; i < prefills; ++i) {
        batch.add_prefill(static_cast<double>(rng.integer(1, 3000)), static_cast<double>(rng.integer(0, 3000)));
      }
      const std::int64_t decodes = rng.integer(prefills == 0 ? 1 : 0, 100);
      for (std::int64_t i = 0; i < decodes; ++i) batch.add_decode(static_cast<double>(rng.integer(1, 5000)));
      const double s = model->iteration_s(batch);
      EXPECT_GT(s, 0) << name;
      EXPECT_EQ(model->coverage(batch), Coverage::kModelled);
      Batch more = batch;
      more.add_decode(1000);
      EXPECT_GE(model->iteration_s(more), s * (1 - 1e-9)) << name;
      more = batch;
      more.add_prefill(500);
      EXPECT_GE(model->iteration_s(more), s * (1 - 1e-9)) << name;
      if (batch.decode_sequences == 0) continue;
      more = batch;
      more.decode_context_tokens += 10000;
      EXPECT_GE(model->iteration_s(more), s * (1 - 1e-9)) << name;
    }
  }
}

// Given a batch with more tokens than the curves and more context than the surfaces: times continue to grow.
TEST(OperatorModel, CarriesOnBeyondItsGrid) {
  const OperatorModel model = make("llama3-8b");
  EXPECT_NEAR(model.iteration_s(prefill_batch(100, 1000)) / model.iteration_s(prefill_batch(50, 1000)), 2, 0.1);
  EXPECT_NEAR(model.parts(prefill_batch(1, 2e6)).prefill_attention_s / model.parts(prefill_batch(1, 1e6)).prefill_attention_s,
              4, 0.05);
  EXPECT_NEAR(model.parts(decode_batch(1, 2e6)).decode_attention_s / model.parts(decode_batch(1, 1e6)).decode_attention_s, 2,
              0.05);
}

// Given more GPUs: a prefill of 4,096 tokens is faster, but by less than their number.
TEST(OperatorModel, TensorParallelismHelps) {
  double before = make("llama3-8b").iteration_s(prefill_batch(1, 4096));
  for (const int tp : {2, 4, 8}) {
    const double s = make("llama3-8b", {.tensor_parallel = tp}).iteration_s(prefill_batch(1, 4096));
    EXPECT_LT(s, before);
    EXPECT_GT(s, before / 2);
    before = s;
  }
}

// Given pipeline stages: the hops between them are added, and the model is spread.
TEST(OperatorModel, PipelineStagesAddHops) {
  const OperatorModel one = make("llama3-8b");
  const OperatorModel four = make("llama3-8b", {.pipeline_parallel = 4});
  EXPECT_EQ(four.pipeline_stages(), 4);
  EXPECT_GT(four.iteration_s(decode_batch(8, 100)), one.iteration_s(decode_batch(8, 100)));
  EXPECT_GT(four.kv_capacity_tokens(), 4 * one.kv_capacity_tokens());
}

// Given a small share of GPU memory: the tokens left after weights and reserve; FP8 weights and cache leave more.
TEST(OperatorModel, KvCapacity) {
  const ModelShape shape = *model_shape_by_name("llama3-8b");
  const OperatorModelOptions options{.overhead = {.memory_share = 0.8, .reserved_bytes = 1e9}};
  const double expected = (0.8 * h100().memory_bytes - 1e9 - weight_bytes(shape)) / kv_bytes_per_token(shape);
  EXPECT_NEAR(make("llama3-8b", options).kv_capacity_tokens(), expected, 1e-6 * expected);
  OperatorModelOptions float8 = options;
  float8.weights = GemmKind::kFloat8;
  float8.float8_cache = true;
  EXPECT_GT(make("llama3-8b", float8).kv_capacity_tokens(), 2 * expected);
  EXPECT_LT(make("llama3-70b").kv_capacity_tokens(), 0);
}

// Given a mixture of experts: one token reads few of them, many tokens read all; the dense model of its size costs more per
// token.
TEST(OperatorModel, ReadsOnlyChosenExperts) {
  const ModelShape shape = *model_shape_by_name("mixtral-8x7b");
  const OperatorModel model = make("mixtral-8x7b");
  const double all_weights_s = matmul_weight_bytes(shape) / h100().memory_bandwidth_bytes_per_s;
  EXPECT_LT(model.iteration_s(decode_batch(1, 10)), 0.6 * all_weights_s);
  EXPECT_GT(model.iteration_s(decode_batch(64, 10)), 0.9 * all_weights_s);
}

// Given an overhead: it is added to each iteration; without a graph, a layer takes at least its launches.
TEST(OperatorModel, EngineOverhead) {
  const OperatorModel bare = make("llama3-8b");
  const OperatorModel engine = make(
      "llama3-8b", {.overhead = {.iteration_s = 1e-3, .sequence_s = 1e-5, .eager_layer_s = 1e-3, .largest_graph_tokens = 32}});
  EXPECT_NEAR(engine.iteration_s(decode_batch(8, 100)), bare.iteration_s(decode_batch(8, 100)) + 1e-3 + 8e-5, 1e-9);
  EXPECT_GE(engine.iteration_s(decode_batch(33, 100)), 32e-3);
  const Batch large = prefill_batch(1, 8192);
  EXPECT_NEAR(engine.iteration_s(large), bare.iteration_s(large) + 1e-3 + 1e-5, 1e-9);
}

// Given 1 ms of CPU time per sequence that passes while the GPU computes; expects no more time while kernels take longer, and
// 1 ms for each of 64 sequences where they take less. Given time for prompts; expects it only with a prompt.
TEST(OperatorModel, OverlappedCpuTimeShowsOnlyBeyondTheKernels) {
  const OperatorModel bare = make("llama3-8b");
  const OperatorModel engine =
      make("llama3-8b", {.overhead = {.prefill_s = 3e-3, .sequence_s = 1e-3, .largest_graph_tokens = 1e6, .overlaps = true}});
  EXPECT_EQ(engine.iteration_s(decode_batch(1, 100)), bare.iteration_s(decode_batch(1, 100)));
  const Batch many = decode_batch(64, 100);
  ASSERT_LT(bare.parts(many).layers_s(), 64e-3);
  EXPECT_NEAR(engine.iteration_s(many), 64e-3 + bare.parts(many).output_s, 1e-9);
  const Batch prompt = prefill_batch(1, 8192);
  EXPECT_NEAR(engine.iteration_s(prompt), bare.iteration_s(prompt) + 3e-3, 1e-9);
}

// Given measured products over all sizes of a model, and no attention: the basis contains the kernel time of parts(). A prompt
// of 500 tokens and decodes with short contexts are measured; decodes of 100,000 tokens each, nearly all attention, come from
// the roofline; a batch with more tokens than measured is an extrapolation of the table.
TEST(OperatorModel, CoverageGoesByTheShareOfTime) {
  const ModelShape shape = *model_shape_by_name("llama3-8b");
  const OperatorTimes roofline = roofline_of(h100());
  OperatorTables tables;
  for (const double m : {1.0, 8.0, 64.0, 512.0, 2048.0}) {
    for (double n = 512; n <= 262144; n *= 2) {
      for (double k = 512; k <= 32768; k *= 2) {
        tables.gemm.push_back({GemmKind::kBFloat16, m, n, k, roofline.gemm(GemmKind::kBFloat16, m, n, k).s});
      }
    }
  }
  const OperatorTimes times(operator_hardware(h100()), efficiency_of("h100-80gb", true).efficiency, tables);
  const OperatorModelOptions options{.overhead = {.iteration_s = 1}};  // not counted
  const Result<OperatorModel> model = OperatorModel::make(shape, h100(), times, options);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->coverage(prefill_batch(1, 500)), Coverage::kMeasured);
  EXPECT_EQ(model->coverage(decode_batch(8, 100)), Coverage::kMeasured);
  EXPECT_EQ(model->coverage(decode_batch(8, 100000)), Coverage::kModelled);
  EXPECT_EQ(model->coverage(prefill_batch(8, 1000)), Coverage::kExtrapolated);
  Rng rng(13, "basis");
  for (int instance = 0; instance < effort(200, 2000); ++instance) {
    Batch batch;
    for (std::int64_t i = rng.integer(0, 3); i > 0; --i) batch.add_prefill(static_cast<double>(rng.integer(1, 3000)));
    for (std::int64_t i = rng.integer(1, 50); i > 0; --i) batch.add_decode(static_cast<double>(rng.integer(1, 30000)));
    const OperatorModel::Basis basis = model->basis(batch);
    EXPECT_NEAR(basis.kernels_s, model->iteration_s(batch) - 1, 1e-9);
    EXPECT_GE(basis.extrapolated_s, 0);
    EXPECT_GE(basis.modelled_s, model->parts(batch).decode_attention_s * (1 - 1e-6));
    EXPECT_LE(basis.extrapolated_s + basis.modelled_s, basis.kernels_s * (1 + 1e-6));
    EXPECT_EQ(model->coverage(batch) == Coverage::kMeasured, basis.measured_share() >= OperatorModel::kMeasuredShare);
  }
}

// Given an impossible parallelism: an error that says what is possible.
TEST(OperatorModel, NamesWhatDoesNotFit) {
  const ModelShape shape = *model_shape_by_name("llama3-8b");
  const auto tensor = OperatorModel::make(shape, h100(), roofline_of(h100()), {.tensor_parallel = 3});
  EXPECT_EQ(tensor.error().message, "tensor_parallel: must be a divisor of the model's 32 heads (got 3)");
  const auto pipeline = OperatorModel::make(shape, h100(), roofline_of(h100()), {.pipeline_parallel = 33});
  EXPECT_EQ(pipeline.error().message, "pipeline_parallel: must be from 1 to the model's 32 layers (got 33)");
}

}  // namespace
}  // namespace windlass::planner
