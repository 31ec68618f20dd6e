// Tests that OperatorModels shares work and changes nothing: each model is the one that OperatorModel::make() builds alone.
#include "planner/perf/operator_models.h"

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/catalog/efficiency.h"
#include "tests/effort.h"

namespace windlass::planner {
namespace {

// Rows of every kind of product and of several attention kernels, with random times.
OperatorTables random_tables(Rng& rng) {
  OperatorTables tables;
  for (const GemmKind kind : {GemmKind::kBFloat16, GemmKind::kFloat8, GemmKind::kFloat8Block}) {
    for (const double m : {1.0, 64.0, 1000.0}) {
      for (const double n : {1024.0, 8192.0}) tables.gemm.push_back({kind, m, n, 4096, rng.uniform(1e-5, 1e-4)});
    }
  }
  for (const AttentionKey& key : {AttentionKey{128, false, 0}, AttentionKey{128, true, 0}, AttentionKey{64, false, 0}}) {
    for (const double batch : {1.0, 32.0}) {
      for (const double length : {16.0, 4096.0}) {
        tables.context_attention.push_back({key, batch, length, 32, 8, rng.uniform(1e-2, 1e-1)});
        tables.generation_attention.push_back({key, batch, length, 32, 8, rng.uniform(1e-5, 1e-4)});
      }
    }
  }
  for (const double bytes : {1e3, 1e6})
    tables.collectives.push_back({"all_reduce", "nccl", 2, 2, bytes, rng.uniform(1e-6, 1e-5)});
  return tables;
}

// Runs the last task first.
class BackwardExecutor final : public Executor {
 public:
  [[nodiscard]] int concurrency() const override { return 2; }
  void run(std::size_t count, const std::function<void(std::size_t)>& task) override {
    for (std::size_t i = count; i-- > 0;) task(i);
  }
};

// Given tables of many kernels, two shapes, two types of weights, GPUs, stages and overheads in random order, with and without
// an executor; expects the times, the basis and the cache of a model built alone from all rows, bit by bit.
TEST(OperatorModels, AreTheModelsBuiltAlone) {
  const AcceleratorSpec spec = *accelerator_by_name("h100-80gb");
  const AcceleratorEfficiency efficiency = efficiency_of(spec.name, true).efficiency;
  Rng rng(1, "operator-models");
  const OperatorTables tables = random_tables(rng);
  const OperatorTimes times(operator_hardware(spec), efficiency, tables);
  EXPECT_TRUE(times.turned_away().empty());
  BackwardExecutor backward;
  for (Executor* executor : {static_cast<Executor*>(nullptr), static_cast<Executor*>(&backward)}) {
    OperatorModels models(spec, tables, executor);
    for (int round = 0; round < effort(12, 100); ++round) {
      const ModelShape shape = *model_shape_by_name(rng.uniform() < 0.5 ? "llama3-8b" : "llama3-70b");
      OperatorModelOptions options;
      options.tensor_parallel = rng.uniform() < 0.5 ? 1 : 2;
      options.pipeline_parallel = static_cast<int>(rng.integer(1, 3));
      options.weights = rng.uniform() < 0.5 ? GemmKind::kBFloat16 : GemmKind::kFloat8;
      options.float8_cache = rng.uniform() < 0.5;
      options.overhead.iteration_s = rng.uniform(0, 1e-3);
      const auto shared = models.make(shape, options);
      const auto alone = OperatorModel::make(shape, spec, times, options);
      ASSERT_TRUE(shared.ok() && alone.ok());
      ASSERT_EQ((*shared)->kv_capacity_tokens(), alone->kv_capacity_tokens());
      ASSERT_EQ((*shared)->pipeline_stages(), alone->pipeline_stages());
      for (int i = 0; i < 20; ++i) {
        Batch batch = decode_batch(static_cast<int>(rng.integer(1, 300)), static_cast<double>(rng.integer(1, 9000)));
        if (i % 2 == 0) batch.add_prefill(static_cast<double>(rng.integer(1, 3000)));
        ASSERT_EQ((*shared)->iteration_s(batch), alone->iteration_s(batch)) << "round " << round;
        ASSERT_EQ((*shared)->basis(batch).measured_share(), alone->basis(batch).measured_share()) << "round " << round;
      }
    }
  }
}

// Given degrees that do not fit, before and after a model that does; expects the errors of OperatorModel::make().
TEST(OperatorModels, NameWhatDoesNotFit) {
  const ModelShape shape = *model_shape_by_name("llama3-8b");
  OperatorModels models(*accelerator_by_name("h100-80gb"), {});
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(models.make(shape, {.tensor_parallel = 3}).error().message,
              "tensor_parallel: must be a divisor of the model's 32 heads (got 3)");
    EXPECT_EQ(models.make(shape, {.pipeline_parallel = 33}).error().message,
              "pipeline_parallel: must be from 1 to the model's 32 layers (got 33)");
    EXPECT_TRUE(models.make(shape, {}).ok());
  }
}

}  // namespace
}  // namespace windlass::planner
