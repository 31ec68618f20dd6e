// Tests of Aladdin's worker configuration: each limit by hand, and a brute force over all degrees and batches.
#include "planner/sizing/worker_config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/perf/linear_model.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using ::testing::HasSubstr;

// Prefill 10 ms; decode 10 ms plus 1 ms per request at any context; a cache of 1,000 tokens.
LinearModel simple_model(double kv_tokens = 1000) {
  return LinearModel(LinearCoefficients{0, 0.01, 0, 0.001, 0.01, kv_tokens});
}

// Given a batch of 4 with 21 output tokens; expects a step of 14 ms; a service time of 20 steps and 4 prefills; a TPOT with 3
// prefills of others spread over 20 steps; and a TTFT of the current step, the wait for earlier prefills (M/D/1) and the own
// prefill.
TEST(WorkerTimes, ByHand) {
  const WorkerTimes times = worker_times(simple_model(), 4, Lengths{100, 21});
  EXPECT_DOUBLE_EQ(times.prefill_s, 0.01);
  EXPECT_DOUBLE_EQ(times.decode_s, 0.014);
  EXPECT_DOUBLE_EQ(times.service_s, 4 * 0.01 + 20 * 0.014);
  EXPECT_DOUBLE_EQ(times.tpot_s, 0.014 + 3 * 0.01 / 20);
  const double share = 0.8 * 0.04 / 0.32;
  EXPECT_DOUBLE_EQ(times.ttft_s, 0.014 + 0.01 * share / (2 * (1 - share)) + 0.01);
}

// Given answers of one token; expects no decoding and no TPOT stall.
TEST(WorkerTimes, OneTokenIsPrefillAlone) {
  const WorkerTimes times = worker_times(simple_model(), 2, Lengths{100, 1});
  EXPECT_DOUBLE_EQ(times.service_s, 0.02);
  EXPECT_DOUBLE_EQ(times.tpot_s, times.decode_s);
}

// Given TPOT 20 ms (18 ms after the margin), where 10 + b + (b - 1) / 2 ms at 21 tokens allows b = 5.67; expects a batch of 5,
// limited by TPOT.
TEST(LargestBatch, TpotByHand) {
  const BatchChoice choice = largest_batch(simple_model(), Objective{1, 0.02, 95}, Lengths{50, 21});
  EXPECT_EQ(choice.batch, 5);
  EXPECT_EQ(choice.limit, BatchLimit::kTpot);
}

// Given a cache of 1,000 tokens, requests of 180 + 21 and a block of 16; expects 4 of them, limited by the cache.
TEST(LargestBatch, KvCacheByHand) {
  const BatchChoice choice = largest_batch(simple_model(), Objective{1, 0.05, 95}, Lengths{180, 21});
  EXPECT_EQ(choice.batch, 4);
  EXPECT_EQ(choice.limit, BatchLimit::kKvCache);
}

// Given TTFT 25 ms; expects the largest batch whose current step and prefills fit, limited by TTFT.
TEST(LargestBatch, TtftByHand) {
  const Lengths lengths{50, 201};
  const BatchChoice choice = largest_batch(simple_model(1e6), Objective{0.025, 1, 95}, lengths);
  EXPECT_EQ(choice.limit, BatchLimit::kTtft);
  EXPECT_LE(worker_times(simple_model(1e6), choice.batch, lengths).ttft_s, 0.025);
  EXPECT_GT(worker_times(simple_model(1e6), choice.batch + 1, lengths).ttft_s, 0.025);
}

// Given loose objectives and a huge cache; expects the engine's own limit.
TEST(LargestBatch, EngineLimit) {
  const BatchChoice choice = largest_batch(simple_model(1e9), Objective{100, 100, 95}, Lengths{50, 21});
  EXPECT_EQ(choice.batch, kMaxBatch);
  EXPECT_EQ(choice.limit, BatchLimit::kEngine);
}

// Given 64 heads and 8 KV heads; expects degrees that divide the heads, over which KV heads split or repeat evenly, and that
// divide the widths of the MLP and of experts: 5 divides the 40 heads of Llama 2 13B, but not its 13,824.
TEST(TensorParallel, DegreesDivideHeadsAndWidths) {
  EXPECT_EQ(tensor_parallel_degrees(model_shape_by_name("llama3-70b").value(), 16), (std::vector<int>{1, 2, 4, 8, 16}));
  EXPECT_EQ(tensor_parallel_degrees(model_shape_by_name("qwen2.5-7b").value(), 8), (std::vector<int>{1, 2, 4}));
  EXPECT_EQ(tensor_parallel_degrees(model_shape_by_name("llama2-13b").value(), 8), (std::vector<int>{1, 2, 4, 8}));
  ModelShape shape = model_shape_by_name("llama3-70b").value();
  shape.experts = MixtureOfExperts{.experts = 8, .experts_per_token = 2, .intermediate = 12, .layers = shape.layers};
  shape.intermediate = 7;  // used by no layer
  EXPECT_EQ(tensor_parallel_degrees(shape, 16), (std::vector<int>{1, 2, 4}));
  shape.experts->shared_intermediate = 6;
  EXPECT_EQ(tensor_parallel_degrees(shape, 16), (std::vector<int>{1, 2}));
  shape.experts->layers -= 1;
  EXPECT_EQ(tensor_parallel_degrees(shape, 16), (std::vector<int>{1}));
}

// The search as a brute force: every degree, every batch, the conditions as in the paper.
struct Brute {
  int gpus = 0;
  int batch = 0;
  double throughput = 0;
};

std::optional<Brute> brute_force(const WorkerSearchInput& in) {
  std::optional<Brute> best;
  const int context = in.max_context_tokens > 0 ? in.max_context_tokens : in.shape.max_context_tokens;
  for (int n = 1; n <= std::min(in.max_gpus, in.accelerator.gpus_per_node); ++n) {
    if (in.shape.heads % n != 0 || (in.shape.kv_heads % n != 0 && n % in.shape.kv_heads != 0)) continue;
    if (in.shape.intermediate % n != 0 || (in.shape.experts && in.shape.experts->intermediate % n != 0)) continue;
    const LinearCoefficients c = linear_coefficients(in.shape, in.accelerator, n, EngineType::kWindlass);
    if (c.kv_capacity_tokens < 1 || c.kv_capacity_tokens < context) continue;
    const double prefill = c.k1 * in.lengths.input_tokens + c.c1;
    const double steps = in.lengths.output_tokens - 1;
    int batch = 0;
    bool tpot_binds = false;
    for (int b = 1; b <= 256; ++b) {
      const double step = (c.k2 * (in.lengths.input_tokens + 0.5 * in.lengths.output_tokens) + c.c2) * b + c.c3;
      const double service = b * prefill + steps * step;
      const double share = 0.8 * b * prefill / service;
      const double ttft = b == 1 ? prefill : step + prefill * share / (2 * (1 - share)) + prefill;
      const bool tpot_holds = step + (b - 1) * prefill / steps <= 0.9 * in.objective.tpot_s;
      if (!tpot_holds || ttft > in.objective.ttft_s ||
          b * (in.lengths.input_tokens + in.lengths.output_tokens + 16) > c.kv_capacity_tokens) {
        tpot_binds = !tpot_holds;
        break;
      }
      batch = b;
    }
    if (batch == 0) continue;
    const double step = (c.k2 * (in.lengths.input_tokens + 0.5 * in.lengths.output_tokens) + c.c2) * batch + c.c3;
    const double iteration = tpot_binds ? 0.9 * in.objective.tpot_s : step + (batch - 1) * prefill / steps;
    const double throughput = batch / (n * iteration);
    if (!best || throughput > best->throughput) best = Brute{n, batch, throughput};
  }
  return best;
}

// Given random models, accelerators, objectives and lengths; expects the brute force's degree, batch and throughput, or none
// from both.
TEST(WorkerConfig, AgreesWithBruteForce) {
  Rng rng(31, "instances");
  const auto names = model_shape_names();
  int feasible = 0;
  for (int i = 0; i < effort(400, 4000); ++i) {
    WorkerSearchInput in;
    in.shape = model_shape_by_name(names[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(names.size()) - 1))])
                   .value();
    in.accelerator = testing::h100();
    in.accelerator.memory_bytes = rng.uniform(10, 200) * testing::kGiB;
    in.accelerator.peak_flops = {{DType::kBFloat16, rng.uniform(50e12, 2000e12)}, {DType::kFloat32, rng.uniform(5e12, 100e12)}};
    in.accelerator.memory_bandwidth_bytes_per_s = rng.uniform(0.3e12, 8e12);
    in.accelerator.intra_link_bandwidth_bytes_per_s = rng.uniform(10e9, 900e9);
    in.accelerator.intra_link_latency_s = rng.uniform(1e-6, 20e-6);
    in.accelerator.gpus_per_node = static_cast<int>(rng.integer(1, 8));
    in.max_gpus = static_cast<int>(rng.integer(1, 8));
    in.objective = Objective{rng.uniform(0.05, 3), rng.uniform(0.003, 0.15), 95};
    in.lengths = Lengths{std::floor(rng.uniform(1, 4000)), std::floor(rng.uniform(2, 1000))};
    in.max_context_tokens = static_cast<int>(rng.integer(0, 8192));
    const auto expected = brute_force(in);
    const WorkerSearch found = search_worker_config(in);
    ASSERT_EQ(found.best.has_value(), expected.has_value()) << "instance " << i;
    if (!expected) continue;
    ++feasible;
    ASSERT_EQ(found.best->spec.gpus(), expected->gpus) << "instance " << i;
    ASSERT_EQ(found.best->batch, expected->batch) << "instance " << i;
    ASSERT_NEAR(found.best->tokens_per_s_per_gpu, expected->throughput, 1e-9 * expected->throughput) << "instance " << i;
    ASSERT_EQ(found.feasible.size() + found.rejected.size(),
              tensor_parallel_degrees(in.shape, std::min(in.max_gpus, in.accelerator.gpus_per_node)).size());
  }
  EXPECT_GT(feasible, effort(60, 1000)) << "the instances must not be trivial";
  EXPECT_LT(feasible, effort(390, 3900));
}

WorkerSearchInput chat_on(const AcceleratorSpec& accelerator, const char* model) {
  return WorkerSearchInput{model_shape_by_name(model).value(), accelerator, Objective{1, 0.05, 95}, Lengths{512, 256}, 8, 0};
}

// Given each reason for refusal; expects its code and a message with the figures.
TEST(WorkerConfig, SaysWhyNot) {
  WorkerSearchInput in = chat_on(testing::l4(), "llama3-70b");
  WorkerSearch search = search_worker_config(in);
  ASSERT_EQ(search.rejected.size(), 1U);
  EXPECT_EQ(search.rejected[0].code, RejectCode::kDoesNotFit);
  EXPECT_THAT(search.rejected[0].message, HasSubstr("the model's 131 GiB do not fit into the 24 GiB of 1 x l4"));

  in = chat_on(testing::l4(), "llama3-8b");
  in.max_context_tokens = 100'000;
  EXPECT_EQ(search_worker_config(in).rejected.at(0).code, RejectCode::kContextDoesNotFit);

  in = chat_on(testing::h100(), "llama3-8b");
  in.objective.tpot_s = 0.001;
  search = search_worker_config(in);
  ASSERT_EQ(search.rejected.size(), 4U);
  EXPECT_EQ(search.rejected[3].code, RejectCode::kTpot);
  EXPECT_THAT(search.rejected[3].message, HasSubstr("above 90 % of timePerOutputToken 1 ms"));
  EXPECT_LT(search.rejected[3].smallest_tpot_s, search.rejected[0].smallest_tpot_s);

  in = chat_on(testing::h100(), "llama3-8b");
  in.objective.ttft_s = 0.001;
  EXPECT_EQ(search_worker_config(in).rejected.at(0).code, RejectCode::kTtft);

  in = chat_on(testing::h100(), "llama3-8b");
  in.accelerator.peak_flops = {{DType::kBFloat16, 1e15}};
  in.shape.dtype = DType::kFloat32;
  EXPECT_EQ(search_worker_config(in).rejected.at(0).code, RejectCode::kDataType);
}

// Given the smallest objective named by a rejection; expects that it can be met, and slightly less cannot.
TEST(WorkerConfig, TheNamedObjectiveCanBeMet) {
  WorkerSearchInput in = chat_on(testing::h100(), "llama3-8b");
  in.objective.tpot_s = 0.001;
  const double needed_s = search_worker_config(in).rejected.back().smallest_tpot_s;
  in.objective.tpot_s = needed_s * (1 + 1e-9);
  EXPECT_TRUE(search_worker_config(in).best.has_value());
  in.objective.tpot_s = needed_s * (1 - 1e-6);
  EXPECT_FALSE(search_worker_config(in).best.has_value());
}

}  // namespace
}  // namespace windlass::planner
