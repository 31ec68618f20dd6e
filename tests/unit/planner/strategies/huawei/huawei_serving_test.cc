// Tests Huawei's scheduler and the rules it is compared with, in the serving simulator: what they know about workers, how they
// split requests, and the results.
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/perf/linear_iteration_model.h"
#include "planner/sim/packing_model.h"
#include "tests/bench/heterogeneous/huawei_setting.h"
#include "tests/effort.h"

namespace windlass::bench {
namespace {

using dispatch::PolicyKind;

// Requests of a seed with Poisson arrivals.
class Drawn final : public workload::RequestSource {
 public:
  Drawn(int count, double rate_per_s) : left_(count), rate_per_s_(rate_per_s) {}
  std::optional<workload::Request> next() override {
    if (left_-- == 0) return std::nullopt;
    workload::Request request;
    request.arrival_s = now_s_ += rng_.exponential(rate_per_s_);
    request.input_tokens = static_cast<int>(std::exp2(rng_.uniform(4, 10)));
    request.output_tokens = static_cast<int>(std::exp2(rng_.uniform(4, 10)));
    return request;
  }

 private:
  int left_;
  double rate_per_s_;
  Rng rng_{11, "drawn"};
  double now_s_ = 0;
};

// Serves `count` requests on two V100 instances on NVLink, of four GPUs and of one.
sim::ServingResult serve(PolicyKind policy, int count, double rate_per_s, bool known = false) {
  HuaweiRoofline roofline;
  roofline.link_bytes_per_s = 150e9;
  roofline.hop_s = 2e-6;
  std::vector<std::shared_ptr<const planner::IterationModel>> models;
  const hetero::ClusterNode v100 = v100_machine(roofline);
  auto options = huawei_service(planner::model_shape_by_name("llama3-8b").value(), roofline,
                                {{"t4", v100, 4, 1}, {"t1", v100, 1, 1}}, models)
                     .value();
  options.dispatch.policy = policy;
  options.dispatch.learns_lengths = !known;
  Drawn source(count, rate_per_s);
  return sim::simulate_serving(source, options).value();
}

// Given a latency model of Huawei's own form; expects the simulator to pass its coefficients to the policy.
TEST(HuaweiServing, KnowsTheWorkersLines) {
  planner::LinearPhase prefill, decode;
  prefill.coefficients = {1e-4, 2e-3, 3e-5, 5e-3};
  decode.coefficients = {1e-7, 1e-4, 2e-6, 2e-2};
  const planner::LinearIterationModel model(prefill, decode, 100'000);
  const dispatch::PackingModel found = sim::packing_model(model, 100'000, 16, 256, planner::LinearForm::kHuawei).model;
  const dispatch::BatchTimes times = dispatch::batch_times(found);
  EXPECT_NEAR(times.prefill_token_s, 1e-4, 1e-8);
  EXPECT_NEAR(times.prefill_request_s, 2e-3, 1e-6);
  EXPECT_NEAR(times.prefill_length_s, 3e-5, 1e-7);
  EXPECT_NEAR(times.prefill_s, 5e-3, 1e-5);
  EXPECT_NEAR(times.context_token_s, 1e-7, 1e-10);
  EXPECT_NEAR(times.decode_request_s, 1e-4, 1e-7);
  EXPECT_NEAR(times.context_length_s, 2e-6, 1e-9);
  EXPECT_NEAR(times.decode_s, 2e-2, 1e-5);
  EXPECT_EQ(found.kv_capacity_tokens, 100'000);
  EXPECT_EQ(sim::packing_model(model, 100'000, 16, 256).model.context_length_s, 0) << "Aladdin's line has no such term";
}

// Given random coefficients, caches and limits on a batch, and many requests at once; expects the simulated throughput of
// continuous batching within 10 % of the closed form.
TEST(HuaweiServing, ServesWhatContinuousBatchingIsEstimatedAt) {
  for (std::uint64_t seed = 1; seed <= effort(10U, 40U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "continuous");
    const auto of = [&](double scale) { return scale * rng.uniform(0.1, 2); };
    const dispatch::BatchTimes times = {of(1e-4), of(1e-3), of(1e-5), of(1e-2), of(1e-7), of(1e-4), of(1e-6), of(1e-2)};
    const double kv_tokens = rng.uniform(10'000, 200'000);
    const int max_requests = static_cast<int>(rng.integer(4, 256));
    planner::LinearPhase prefill, decode;
    prefill.coefficients = {times.prefill_token_s, times.prefill_request_s, times.prefill_length_s, times.prefill_s};
    decode.coefficients = {times.context_token_s, times.decode_request_s, times.context_length_s, times.decode_s};
    const planner::LinearIterationModel model(prefill, decode, kv_tokens);
    sim::ServingOptions options;
    sim::ServingPool& pool = options.pools.emplace_back();
    pool.name = "one";
    pool.workers = 1;
    pool.model = &model;
    pool.spec.engine.max_sequences = max_requests;
    pool.spec.engine.max_batch_tokens = 8192;
    constexpr int kCount = 20'000;
    std::vector<hetero::Lengths> lengths;
    Drawn same(kCount, 1e9), source(kCount, 1e9);
    while (const auto request = same.next()) lengths.emplace_back(request->input_tokens, request->output_tokens);
    const auto estimate = hetero::continuous_batching(times, kv_tokens, max_requests, search::length_moments(lengths));
    const double served_per_s = kCount / sim::simulate_serving(source, options).value().simulated_s;
    EXPECT_NEAR(served_per_s, estimate.requests_per_s, 0.1 * estimate.requests_per_s)
        << kv_tokens << " cache tokens, batches of " << max_requests;
    EXPECT_LE(estimate.batch, max_requests);
    const auto padded = hetero::estimate_throughput(times, kv_tokens, max_requests, lengths);
    ASSERT_TRUE(padded.ok());
    EXPECT_LT(padded->requests_per_s, served_per_s);
  }
}

// Given the rules that ignore load; expects their splits: half each, four to one by GPUs, all to the larger instance.
TEST(HuaweiServing, SplitsByRule) {
  constexpr int kCount = 500;
  const auto at = [&](PolicyKind policy) {
    const sim::ServingResult result = serve(policy, kCount, 20);
    EXPECT_EQ(result.completed, kCount);
    return std::pair(result.workers[0].completed, result.workers[1].completed);
  };
  EXPECT_EQ(at(PolicyKind::kRoundRobin), std::pair(std::int64_t{250}, std::int64_t{250}));
  EXPECT_EQ(at(PolicyKind::kWeightedRoundRobin), std::pair(std::int64_t{400}, std::int64_t{100}));
  EXPECT_EQ(at(PolicyKind::kSingleInstance), std::pair(std::int64_t{500}, std::int64_t{0}));
}

// Given more requests than the large instance alone can serve, half of which the small one can serve; expects the scheduler to
// finish well before round robin and before the large instance alone, with lengths learned or known; and also the memory-based
// rule.
TEST(HuaweiServing, IsAheadOfRoundRobin) {
  constexpr int kCount = 4000;
  constexpr double kRate = 24;
  const double round_robin_s = serve(PolicyKind::kRoundRobin, kCount, kRate).simulated_s;
  const double single_s = serve(PolicyKind::kSingleInstance, kCount, kRate).simulated_s;
  const sim::ServingResult learned = serve(PolicyKind::kHuawei, kCount, kRate);
  const sim::ServingResult known = serve(PolicyKind::kHuawei, kCount, kRate, true);
  for (const sim::ServingResult* huawei : {&learned, &known}) {
    EXPECT_EQ(huawei->completed, kCount);
    EXPECT_GT(huawei->workers[0].decode_tokens, 2 * huawei->workers[1].decode_tokens);
    EXPECT_GT(huawei->workers[1].completed, 0);
    EXPECT_LT(huawei->simulated_s, 0.75 * round_robin_s);
    EXPECT_LT(huawei->simulated_s, 0.95 * single_s);
  }
  EXPECT_LT(serve(PolicyKind::kMemoryBased, kCount, kRate).simulated_s, 0.75 * round_robin_s);
}

}  // namespace
}  // namespace windlass::bench
