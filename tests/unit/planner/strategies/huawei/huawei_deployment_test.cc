// Huawei's deployment: memory (Eq. 1, 2), fitted latencies (Eq. 3, 4), the throughput estimate (Alg. 1) by hand and against its
// definition, and the plan against the full product of degrees over all machines.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <set>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "controller/cli/console/thread_executor.h"
#include "planner/base/rng.h"
#include "planner/catalog/accelerators_by_name.h"
#include "planner/perf/linear_iteration_model.h"
#include "planner/strategies/core/drawn_requests.h"
#include "planner/strategies/huawei/huawei.h"
#include "planner/strategies/huawei/huawei_latency.h"
#include "tests/effort.h"

namespace windlass::hetero {
namespace {

using ::testing::HasSubstr;

planner::ModelShape shape_of(const char* name) { return planner::model_shape_by_name(name).value(); }
planner::AcceleratorSpec spec_of(const char* name) { return planner::accelerator_by_name(name).value(); }

search::DrawnRequests requests_of(int input, int output) {
  return search::DrawnRequests::make(
             workload::LengthDistribution::independent(workload::UniformTokens{1, input}, workload::UniformTokens{1, output})
                 .value())
      .value();
}

// ---- memory

// Given V100s of 32 GB and Llama-3-8B in 16 bit, expect Eq. 1 with 2 GB on each GPU, and 128 KiB a token, on more GPUs than KV
// heads a copy of it on each further one.
TEST(HuaweiMemory, IsEquation1) {
  const planner::ModelShape shape = shape_of("llama3-8b");
  const planner::AcceleratorSpec v100 = spec_of("v100-32gb");
  const double weights = 2.0 * static_cast<double>(planner::parameter_count(shape));
  for (const int t : {1, 2, 4, 8}) {
    EXPECT_DOUBLE_EQ(kv_cache_bytes(shape, v100, t), t * (0.9 * v100.memory_bytes - 2e9) - weights);
    EXPECT_DOUBLE_EQ(kv_token_bytes(shape, t), 131072);
  }
  EXPECT_DOUBLE_EQ(kv_token_bytes(shape, 16), 2 * 131072);
  EXPECT_DOUBLE_EQ(kv_cache_bytes(shape, v100, 1, {0.5, 0}), 0.5 * v100.memory_bytes - weights);
  EXPECT_LT(kv_cache_bytes(shape_of("llama3-70b"), v100, 4), 0);
}

// ---- latency

dispatch::BatchTimes random_times(Rng& rng) {
  const auto of = [&](double scale) { return scale * rng.uniform(0.1, 2); };
  return {of(1e-4), of(1e-3), of(1e-5), of(1e-2), of(1e-7), of(1e-4), of(1e-6), of(1e-2)};
}

// Given samples that some p1 to p8 make, expect the fit to find these, ordinary and relative; and with 2 % of noise to predict
// batches within 4 %.
TEST(HuaweiLatency, FindsTheCoefficients) {
  for (std::uint64_t seed = 1; seed <= effort(10U, 50U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "latency");
    const dispatch::BatchTimes truth = random_times(rng);
    std::vector<BatchSample> exact, noisy;
    for (const int batch : {2, 4, 8, 16}) {
      for (int i = 0; i < 12; ++i) {
        const int input = static_cast<int>(rng.integer(10, 1500)), output = static_cast<int>(rng.integer(10, 800));
        exact.push_back({batch, input, output, truth.prefill_time_s(batch, input), truth.decode_time_s(batch, input, output)});
        noisy.push_back(exact.back());
        noisy.back().prefill_s *= rng.uniform(0.98, 1.02);
        noisy.back().decode_s *= rng.uniform(0.98, 1.02);
      }
    }
    for (const bool usual : {true, false}) {
      planner::FitOptions options;
      options.non_negative = options.relative = usual;
      const auto fit = fit_batch_times(exact, options);
      ASSERT_TRUE(fit.ok()) << fit.error().message;
      const dispatch::BatchTimes& found = fit->times;
      EXPECT_NEAR(found.prefill_token_s, truth.prefill_token_s, 1e-6 * truth.prefill_token_s);
      EXPECT_NEAR(found.prefill_request_s, truth.prefill_request_s, 1e-5 * truth.prefill_request_s);
      EXPECT_NEAR(found.prefill_length_s, truth.prefill_length_s, 1e-4 * truth.prefill_length_s);
      EXPECT_NEAR(found.prefill_s, truth.prefill_s, 1e-5 * truth.prefill_s);
      EXPECT_NEAR(found.context_token_s, truth.context_token_s, 1e-5 * truth.context_token_s);
      EXPECT_NEAR(found.decode_request_s, truth.decode_request_s, 1e-4 * truth.decode_request_s);
      EXPECT_NEAR(found.context_length_s, truth.context_length_s, 1e-4 * truth.context_length_s);
      EXPECT_NEAR(found.decode_s, truth.decode_s, 1e-5 * truth.decode_s);
    }
    const auto fit = fit_batch_times(noisy);
    ASSERT_TRUE(fit.ok());
    EXPECT_LT(fit->prefill.error.mape, 0.02);
    for (const BatchSample& sample : exact) {
      EXPECT_NEAR(fit->times.prefill_time_s(sample.batch, sample.input_tokens), sample.prefill_s, 0.04 * sample.prefill_s);
      EXPECT_NEAR(fit->times.decode_time_s(sample.batch, sample.input_tokens, sample.output_tokens), sample.decode_s,
                  0.04 * sample.decode_s);
    }
  }
}

// Given samples of one batch size, too few of them, or ones that are none, expect errors that say so.
TEST(HuaweiLatency, RefusesBadSamples) {
  std::vector<BatchSample> samples(3, BatchSample{1, 10, 10, 1, 1});
  auto fit = fit_batch_times(samples);
  ASSERT_FALSE(fit.ok());
  EXPECT_EQ(fit.error().message, "prefill: fit: found 3 samples for 4 coefficients, allowed is at least one each");
  samples.assign(8, BatchSample{1, 10, 10, 1, 1});
  planner::FitOptions ordinary;
  ordinary.non_negative = false;
  fit = fit_batch_times(samples, ordinary);
  ASSERT_FALSE(fit.ok());
  EXPECT_EQ(fit.error().code, ErrorCode::kFailedPrecondition);
  samples[5].output_tokens = 0;
  fit = fit_batch_times(samples);
  ASSERT_FALSE(fit.ok());
  EXPECT_EQ(fit.error().message, "sample 5: found a batch of 1 with 10 tokens in and 0 out, allowed is at least 1 of each");
  samples[5] = {1, 10, 10, 0, 1};
  EXPECT_THAT(fit_batch_times(samples).error().message, HasSubstr("sample 5: found target 0"));
}

// Given a latency model that is Eq. 3 and 4 itself, expect samples of it to give its coefficients back, also where the cache
// holds only two requests.
TEST(HuaweiLatency, ProfilesAModel) {
  planner::LinearPhase prefill, decode;
  prefill.coefficients = {1e-4, 2e-3, 3e-5, 5e-3};
  decode.coefficients = {1e-7, 1e-4, 2e-6, 2e-2};
  const planner::LinearIterationModel model(prefill, decode, 100'000);
  for (const double kv_tokens : {100'000.0, 3000.0}) {
    const auto samples = profile_batches(model, kv_tokens);
    for (const BatchSample& sample : samples) {
      EXPECT_TRUE(sample.batch <= 2 || sample.batch * (sample.input_tokens + sample.output_tokens) <= kv_tokens);
    }
    const auto fit = fit_batch_times(samples);
    ASSERT_TRUE(fit.ok()) << fit.error().message;
    EXPECT_NEAR(fit->times.prefill_token_s, 1e-4, 1e-8);
    EXPECT_NEAR(fit->times.prefill_request_s, 2e-3, 1e-6);
    EXPECT_NEAR(fit->times.prefill_length_s, 3e-5, 1e-8);
    EXPECT_NEAR(fit->times.prefill_s, 5e-3, 1e-6);
    EXPECT_NEAR(fit->times.context_token_s, 1e-7, 1e-10);
    EXPECT_NEAR(fit->times.decode_request_s, 1e-4, 1e-7);
    EXPECT_NEAR(fit->times.context_length_s, 2e-6, 1e-9);
    EXPECT_NEAR(fit->times.decode_s, 2e-2, 1e-5);
  }
}

// ---- throughput

// Alg. 1 as it is written: sums and maxima anew for each request.
double total_by_definition(const dispatch::BatchTimes& times, double kv_tokens, const std::vector<Lengths>& requests) {
  double total = 0;
  std::size_t batched = 0;
  while (batched < requests.size()) {
    const std::size_t begin = batched;
    for (std::size_t r = begin; r < requests.size(); ++r) {
      double sum = 0;
      int longest = 0;
      for (std::size_t i = begin; i <= r; ++i) {
        sum += requests[i].first;
        longest = std::max(longest, requests[i].second);
      }
      if (sum + static_cast<double>(r - begin + 1) * longest > kv_tokens) break;
      ++batched;
    }
    int input = 0, output = 0;
    for (std::size_t i = begin; i < batched; ++i) {
      input = std::max(input, requests[i].first);
      output = std::max(output, requests[i].second);
    }
    const auto batch = static_cast<double>(batched - begin);
    total += times.prefill_time_s(batch, input) + times.decode_time_s(batch, input, output);
  }
  return total;
}

// Given random workloads and caches, expect Alg. 1's total and tokens over it; with a bound on the batch no batch beyond
// it.
TEST(HuaweiThroughput, IsAlgorithm1) {
  for (std::uint64_t seed = 1; seed <= effort(30U, 300U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "throughput");
    const dispatch::BatchTimes times = random_times(rng);
    std::vector<Lengths> requests(static_cast<std::size_t>(rng.integer(1, 60)));
    double tokens = 0;
    for (auto& [input, output] : requests) {
      input = static_cast<int>(rng.integer(1, 1000));
      output = static_cast<int>(rng.integer(1, 1000));
      tokens += input + output;
    }
    const double kv_tokens = rng.uniform(2000, 40'000);
    const auto found = estimate_throughput(times, kv_tokens, 1000, requests);
    ASSERT_TRUE(found.ok());
    const double total = total_by_definition(times, kv_tokens, requests);
    EXPECT_NEAR(found->total_s, total, 1e-9 * total);
    EXPECT_NEAR(found->tokens_per_s, tokens / total, 1e-9 * tokens / total);
    EXPECT_NEAR(found->requests_per_s, static_cast<double>(requests.size()) / total, 1e-9);
    const auto bounded = estimate_throughput(times, kv_tokens, 3, requests);
    ASSERT_TRUE(bounded.ok());
    EXPECT_LE(bounded->largest_batch, 3);
    EXPECT_GE(bounded->batches, found->batches);
  }
}

// Given a request that alone is longer than the cache, no request, or no time at all, expect errors by name.
TEST(HuaweiThroughput, RefusesWhatCannotBe) {
  Rng rng(1, "times");
  const dispatch::BatchTimes times = random_times(rng);
  const std::vector<Lengths> requests = {{10, 10}, {90, 20}};
  EXPECT_EQ(estimate_throughput(times, 100, 256, requests).error().message,
            "request 1: found 90 tokens in and 20 out, allowed are 100 together, which the cache holds");
  EXPECT_FALSE(estimate_throughput(times, 100, 256, {}).ok());
  EXPECT_FALSE(estimate_throughput({}, 1000, 256, requests).ok());
}

// ---- the plan

struct Case {
  std::unique_ptr<search::DrawnRequests> requests;
  search::Problem asked;
  GpuCluster cluster;
  HuaweiOptions options;

  [[nodiscard]] search::Problem problem() const {
    search::Problem problem = asked;
    problem.cluster = std::make_shared<const GpuCluster>(cluster);
    return problem;
  }
};

ClusterNode machine(const std::string& name, const planner::AcceleratorSpec& spec, int gpus, double link_bytes_per_s) {
  return {name, spec, gpus, {link_bytes_per_s, 5e-6}};
}

Case case_of(const char* model, double rate_per_s = 1) {
  Case made;
  made.requests = std::make_unique<search::DrawnRequests>(requests_of(400, 400));
  made.asked.name = "test";
  made.asked.shape = shape_of(model);
  made.asked.requests = made.requests.get();
  made.asked.requests_per_s = rate_per_s;
  return made;
}

// Times without a model: by degree and machine as a hash has them, so that any degree may be the best.
BatchTimesOf made_up_times(std::uint64_t seed) {
  return [seed](const ClusterNode& node, int tensor_parallel, double) -> Result<dispatch::BatchTimes> {
    Rng rng(seed, node.accelerator.name + "/" + std::to_string(node.gpus) + "/" + std::to_string(tensor_parallel));
    return random_times(rng);
  };
}

// The best requests/s over every product of degrees on the machines that `used` says, found one by one.
double best_product(const DeploymentSearch& found, const std::vector<int>& kind_of_machine) {
  std::vector<std::size_t> at(kind_of_machine.size(), 0);
  double best = 0;
  while (true) {
    double sum = 0;
    bool deployable = true;
    for (std::size_t i = 0; i < at.size(); ++i) {
      const InstanceOption& option = found.machines[static_cast<std::size_t>(kind_of_machine[i])].options[at[i]];
      deployable = deployable && option.unfit.empty();
      sum += option.requests_per_s();
    }
    if (deployable) best = std::max(best, sum);
    std::size_t i = 0;
    for (; i < at.size(); ++i) {
      if (++at[i] < found.machines[static_cast<std::size_t>(kind_of_machine[i])].options.size()) break;
      at[i] = 0;
    }
    if (i == at.size()) return best;
  }
}

// Given random clusters of up to five machines of which any degree may be the best, expect the plan to serve what the best
// of the full product of degrees does, on all machines.
TEST(HuaweiPlan, IsTheBestOfTheFullProduct) {
  const std::vector<planner::AcceleratorSpec> specs = {spec_of("v100-32gb"), spec_of("a100-80gb"), spec_of("l40")};
  for (std::uint64_t seed = 1; seed <= effort(25U, 100U); ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "product");
    Case made = case_of("llama3-8b");
    made.options.times_of = made_up_times(seed);
    made.options.sampled_requests = 20;
    for (auto n = rng.integer(1, 5); n > 0; --n) {
      const int gpus = 1 << rng.integer(0, 3);
      made.cluster.nodes.push_back(
          machine("n" + std::to_string(n), specs[static_cast<std::size_t>(rng.integer(0, 2))], gpus, 16e9));
    }
    const auto found = search_tensor_parallel(made.problem(), {}, made.options);
    ASSERT_TRUE(found.ok()) << found.error().message;
    std::vector<int> kind_of_machine;
    double configurations = 0;
    for (std::size_t kind = 0; kind < found->machines.size(); ++kind) {
      for (std::size_t i = 0; i < found->machines[kind].nodes.size(); ++i) {
        kind_of_machine.push_back(static_cast<int>(kind));
        configurations += std::log10(found->machines[kind].options.size());
      }
    }
    ASSERT_EQ(kind_of_machine.size(), made.cluster.nodes.size());
    EXPECT_NEAR(found->log10_configurations, configurations, 1e-9);
    const auto plan = huawei_plan(made.problem(), {}, made.options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const double best = best_product(*found, kind_of_machine);
    EXPECT_NEAR(plan->predicted.capacity_requests_per_s, best, 1e-9 * best);
    EXPECT_EQ(plan->gpus, made.cluster.gpus());
    // Every GPU in one group, all of a group's on one machine.
    std::set<int> gpus;
    double sum = 0;
    for (const planner::Chain& chain : plan->deployment.chains) {
      ASSERT_EQ(chain.hops.size(), 1U);
      EXPECT_EQ(chain.hops.front().layers, made.asked.shape.layers);
      sum += chain.requests_per_s;
      for (const int gpu : chain.hops.front().gpus) {
        EXPECT_TRUE(gpus.insert(gpu).second);
        EXPECT_EQ(made.cluster.node_of(gpu), made.cluster.node_of(chain.hops.front().gpus.front()));
      }
    }
    EXPECT_EQ(static_cast<int>(gpus.size()), made.cluster.gpus());
    EXPECT_NEAR(sum, plan->predicted.capacity_requests_per_s, 1e-9 * sum);
    for (const auto& runner : plan->considered) {
      EXPECT_LE(runner.predicted.capacity_requests_per_s, plan->predicted.capacity_requests_per_s * (1 + 1e-12));
    }
  }
}

// Given bounds on GPUs or cost, expect of all sets of machines the one that serves most inside them.
TEST(HuaweiPlan, KeepsToItsBounds) {
  const std::vector<planner::AcceleratorSpec> specs = {spec_of("v100-32gb"), spec_of("a100-80gb"), spec_of("l40")};
  int bounded = 0;
  for (std::uint64_t seed = 1; seed <= 60; ++seed) {
    SCOPED_TRACE(seed);
    Rng rng(seed, "bounds");
    Case made = case_of("llama3-8b");
    made.options.times_of = made_up_times(seed);
    made.options.sampled_requests = 20;
    const auto machines = static_cast<std::size_t>(rng.integer(2, 7));
    for (std::size_t n = 0; n < machines; ++n) {
      made.cluster.nodes.push_back(
          machine("n" + std::to_string(n), specs[static_cast<std::size_t>(rng.integer(0, 2))], 1 << rng.integer(0, 3), 16e9));
    }
    if (rng.uniform() < 0.7) made.asked.max_gpus = static_cast<int>(rng.integer(8, 24));
    if (rng.uniform() < 0.7) made.asked.max_cost_per_hour = rng.uniform(10, 30);
    const auto plan = huawei_plan(made.problem(), {}, made.options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_LE(plan->gpus, made.asked.max_gpus);
    EXPECT_LE(plan->cost_per_hour, made.asked.max_cost_per_hour * (1 + 1e-6));
    if (plan->gpus < made.cluster.gpus()) ++bounded;
    const auto found = search_tensor_parallel(made.problem(), {}, made.options);
    ASSERT_TRUE(found.ok());
    std::vector<double> worth(machines);
    for (const MachineKind& kind : found->machines) {
      for (const int node : kind.nodes) {
        worth[static_cast<std::size_t>(node)] = kind.options[static_cast<std::size_t>(kind.best)].requests_per_s();
      }
    }
    double best = 0;
    for (unsigned set = 1; set < 1U << machines; ++set) {
      int gpus = 0;
      double cost = 0, served = 0;
      for (std::size_t n = 0; n < machines; ++n) {
        if ((set >> n & 1U) == 0) continue;
        const ClusterNode& node = made.cluster.nodes[n];
        gpus += node.gpus;
        cost += node.gpus * node.accelerator.price_per_hour;
        served += worth[n];
      }
      if (gpus <= made.asked.max_gpus && cost <= made.asked.max_cost_per_hour) best = std::max(best, served);
    }
    EXPECT_NEAR(plan->predicted.capacity_requests_per_s, best, 1e-6 * best);
  }
  EXPECT_GT(bounded, 20);
}

// Given a cluster of 500 machines, of four degrees each, expect an answer that says how many configurations there were and what
// was pruned, from as many estimates as there are kinds times degrees.
TEST(HuaweiPlan, SaysWhatWasPruned) {
  Case made = case_of("llama3-8b", 1e9);
  made.options.times_of = made_up_times(3);
  for (int n = 0; n < 500; ++n) {
    made.cluster.nodes.push_back(machine("n" + std::to_string(n), spec_of(n % 2 == 0 ? "v100-32gb" : "a100-80gb"), 8, 16e9));
  }
  const auto plan = huawei_plan(made.problem(), {}, made.options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->iterations, 8);
  EXPECT_EQ(plan->gpus, 4000);
  EXPECT_FALSE(plan->holds);
  EXPECT_EQ(plan->reasons.front(),
            "8 degrees of tensor parallelism on 2 kinds of machines were estimated, 8 can be deployed; "
            "they make about 10^301 configurations of 500 machines");
  EXPECT_THAT(plan->reasons[1], HasSubstr("so 6 degrees are dominated by another one of their machine"));
  EXPECT_THAT(plan->reasons.back(), HasSubstr("asked are 1000000000.00 requests/s"));
  EXPECT_EQ(plan->considered.size(), 6U);
}

// Given a roofline, expect the same plan on one thread and on four, and one that is as good with a faster link or better.
TEST(HuaweiPlan, IsTheSameOnAnyNumberOfThreads) {
  Case made = case_of("llama3-8b");
  made.cluster.nodes = {machine("n0", spec_of("v100-32gb"), 4, 16e9), machine("n1", spec_of("a100-80gb"), 2, 300e9)};
  const auto one = huawei_plan(made.problem(), {});
  ASSERT_TRUE(one.ok()) << one.error().message;
  cli::ThreadExecutor executor(4);
  search::Effort effort;
  effort.executor = &executor;
  const auto four = huawei_plan(made.problem(), effort);
  ASSERT_TRUE(four.ok());
  EXPECT_EQ(one->reasons, four->reasons);
  EXPECT_EQ(one->predicted.capacity_requests_per_s, four->predicted.capacity_requests_per_s);
  made.cluster.nodes[0].within.bytes_per_s = 150e9;
  const auto faster = huawei_plan(made.problem(), {});
  ASSERT_TRUE(faster.ok());
  EXPECT_GE(faster->predicted.capacity_requests_per_s, one->predicted.capacity_requests_per_s);
}

// Given a machine that cannot hold the model beside one that can, expect the second alone and to hear how much the first lacks;
// given none that can, an error with each degree's lack; no link between GPUs leaves one GPU; no machine in the bounds is said.
TEST(HuaweiPlan, SaysWhatDoesNotFit) {
  Case made = case_of("llama3-70b");
  made.options.times_of = made_up_times(1);
  made.cluster.nodes = {machine("small", spec_of("v100-32gb"), 4, 16e9)};
  auto plan = huawei_plan(made.problem(), {}, made.options);
  ASSERT_FALSE(plan.ok());
  EXPECT_EQ(plan.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(plan.error().message, HasSubstr("test: no machine can hold the model: 4 x v100-32gb (small) with tensor "
                                              "parallelism 1: needs "));
  EXPECT_THAT(plan.error().message, HasSubstr("GB more for weights of 141.1 GB"));
  made.cluster.nodes.push_back(machine("large", spec_of("a100-80gb"), 4, 300e9));
  plan = huawei_plan(made.problem(), {}, made.options);
  ASSERT_TRUE(plan.ok()) << plan.error().message;
  EXPECT_EQ(plan->gpus, 4);
  for (const planner::Chain& chain : plan->deployment.chains) EXPECT_GE(chain.hops.front().gpus.front(), 4);
  EXPECT_THAT(plan->reasons, ::testing::Contains("4 x v100-32gb (small): not used, the model does not fit"));
  made.asked.max_gpus = 3;
  plan = huawei_plan(made.problem(), {}, made.options);
  ASSERT_FALSE(plan.ok());
  EXPECT_THAT(plan.error().message, HasSubstr("found room for 3 GPUs and inf an hour, allowed is one machine at least: 4 x "
                                              "a100-80gb (large) takes 4 GPUs and 8.00 an hour"));

  Case apart = case_of("llama3-8b");
  apart.options.times_of = made_up_times(1);
  apart.cluster.nodes = {machine("n0", spec_of("v100-32gb"), 4, 0)};
  plan = huawei_plan(apart.problem(), {}, apart.options);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->deployment.chains.size(), 4U);
}

// Given a workload, options or clusters that cannot be, expect errors that name the field; stopped at once, Cancelled.
TEST(HuaweiPlan, RefusesBadInput) {
  Case made = case_of("llama3-8b");
  EXPECT_THAT(huawei_plan(made.problem(), {}).error().message, HasSubstr("cluster.nodes: found none"));
  made.cluster.nodes = {machine("n0", spec_of("v100-32gb"), 4, 16e9)};
  search::Effort stopped;
  stopped.stop = [] { return true; };
  EXPECT_EQ(huawei_plan(made.problem(), stopped).error().code, ErrorCode::kCancelled);
  made.asked.requests_per_s = 0;
  EXPECT_EQ(huawei_plan(made.problem(), {}).error().message, "test: requestsPerSecond: found 0, allowed is a number above 0");
  made.asked.requests_per_s = 1;
  made.options.memory.share = 1.5;
  EXPECT_THAT(huawei_plan(made.problem(), {}, made.options).error().message, HasSubstr("memory: found a share of 1.5"));
  made.options = {};
  made.options.sampled_requests = 0;
  EXPECT_THAT(huawei_plan(made.problem(), {}, made.options).error().message, HasSubstr("sampled requests: found 0"));
  made.asked.requests = nullptr;
  EXPECT_THAT(huawei_plan(made.problem(), {}).error().message, HasSubstr("found no requests"));
}

}  // namespace
}  // namespace windlass::hetero
