// Tests the simulator against closed forms of queueing theory, and its warm-up, limits, tokens and seeds.
#include "planner/sim/chain_simulation.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/policies.h"
#include "planner/queueing/chain_bounds.h"
#include "planner/queueing/erlang.h"
#include "planner/workload/synthetic_source.h"

namespace windlass::sim {
namespace {

using dispatch::PolicyKind;
using workload::Request;

struct Scenario {
  std::vector<SimulatedChain> chains = {};
  double rate_per_s = 1;
  double gap_cv = 1;
  PolicyKind policy = PolicyKind::kJffc;
  std::int64_t requests = 60'000;  // measured
  std::int64_t warm_up = 6'000;
};

SimulationResult run(const Scenario& scenario, std::uint64_t seed) {
  workload::SyntheticSource source({scenario.rate_per_s, scenario.gap_cv, seed});
  const auto policy = dispatch::make_policy(scenario.policy, Rng(seed, "policy"));
  ChainSimulationOptions options;
  options.max_requests = scenario.warm_up + scenario.requests;
  options.warm_up_requests = scenario.warm_up;
  return simulate_chains(scenario.chains, source, *policy, options);
}

struct Estimates {
  MeanEstimate waiting, response, p95_waiting;
};

Estimates replicate(const Scenario& scenario, int replications) {
  std::vector<double> waiting, response, p95;
  for (int seed = 1; seed <= replications; ++seed) {
    const SimulationResult result = run(scenario, static_cast<std::uint64_t>(seed));
    EXPECT_EQ(result.requests, scenario.requests);
    waiting.push_back(result.waiting.mean_s);
    response.push_back(result.response.mean_s);
    p95.push_back(result.waiting.p95_s);
  }
  return {mean_over_replications(waiting), mean_over_replications(response), mean_over_replications(p95)};
}

// Expects a narrow interval and a value within 1.5 of its half-widths (0.3 % of seeds fail this; these do not).
void expect_estimate(const MeanEstimate& found, double expected, double narrow) {
  EXPECT_LT(*found.half_width, narrow * expected);
  EXPECT_NEAR(found.mean, expected, 1.5 * *found.half_width);
}

// Given equal chains under JFFC; expects an M/M/c queue: Erlang C's mean wait and the 95th percentile of the wait.
TEST(ChainSimulation, EqualChainsAreErlangsQueue) {
  for (const double load : {0.6, 0.8, 0.85}) {
    SCOPED_TRACE(load);
    const Scenario scenario{.chains = {3, SimulatedChain{2, 4, {}}}, .rate_per_s = load * 6};
    const planner::MmcQueue queue{12, load * 6, 2};
    const Estimates found = replicate(scenario, 10);
    expect_estimate(found.waiting, queue.mean_wait_s(), 0.1);
    expect_estimate(found.response, 2 + queue.mean_wait_s(), 0.03);
    if (load > 0.7) expect_estimate(found.p95_waiting, queue.wait_quantile_s(0.95), 0.1);
  }
}

// Given one chain with one slot; expects M/M/1's response time 1 / (mu - lambda), with the 99th percentile at ln(100) times
// that; and exactly the same times under every policy, wherever the request waits, since there is nothing to choose.
TEST(ChainSimulation, OneSlotIsMM1) {
  Scenario scenario{.chains = {SimulatedChain{0.5, 1, {}}}, .rate_per_s = 1.4};
  expect_estimate(replicate(scenario, 10).response, 1 / 0.6, 0.03);
  const SimulationResult jffc = run(scenario, 3);
  EXPECT_NEAR(jffc.response.p99_s, std::log(100) / 0.6, 0.1 * std::log(100) / 0.6);
  for (const PolicyKind policy : dispatch::kAllPolicies) {
    scenario.policy = policy;
    const SimulationResult other = run(scenario, 3);
    EXPECT_EQ(other.waiting.mean_s, jffc.waiting.mean_s) << to_string(policy);
    EXPECT_EQ(other.response.standard_deviation_s, jffc.response.standard_deviation_s) << to_string(policy);
  }
}

// Given Gamma arrivals at one slot; expects G/M/1: a mean wait of s / (mu (1 - s)), where s in (0, 1) solves s = A(mu - mu s)
// and A(u) = (1 + u theta)^-k is the Laplace transform of the gaps.
TEST(ChainSimulation, GammaArrivalsAreGM1) {
  for (const double cv : {0.5, 2.0}) {
    SCOPED_TRACE(cv);
    const double rate_per_s = 0.7;
    const double shape = 1 / (cv * cv);
    const double scale_s = 1 / (rate_per_s * shape);
    double s = 0.5;
    for (int i = 0; i < 10'000; ++i) s = std::pow(1 + (1 - s) * scale_s, -shape);
    const Scenario scenario{.chains = {SimulatedChain{1, 1, {}}}, .rate_per_s = rate_per_s, .gap_cv = cv};
    expect_estimate(replicate(scenario, 10).waiting, s / (1 - s), 0.1);
  }
}

// Given requests of one size with Poisson arrivals at one slot; expects M/D/1: half of M/M/1's wait.
TEST(ChainSimulation, EqualSizesAreMD1) {
  class OneSize final : public workload::RequestSource {
   public:
    explicit OneSize(std::uint64_t seed) : source_({0.75, 1, seed}) {}
    std::optional<Request> next() override {
      auto request = source_.next();
      request->size = 1;
      return request;
    }

   private:
    workload::SyntheticSource source_;
  };
  std::vector<double> waiting;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    OneSize source(seed);
    const auto policy = dispatch::make_policy(PolicyKind::kJffc, Rng(1, "unused"));
    ChainSimulationOptions options;
    options.max_requests = 60'000;
    waiting.push_back(simulate_chains(std::vector{SimulatedChain{1, 1, {}}}, source, *policy, options).waiting.mean_s);
  }
  expect_estimate(mean_over_replications(waiting), 0.75 / (2 * 0.25), 0.05);
}

// Given two chains under JFFC; expects the exact mean response time of the paper's A.3.
TEST(ChainSimulation, AgreesWithTheExactTwoChains) {
  struct Case {
    planner::ChainRate fast, slow;
    double load;
  };
  for (const Case& one : {Case{{1, 1}, {0.25, 1}, 0.6}, Case{{2, 3}, {0.5, 4}, 0.5}, Case{{2, 3}, {0.5, 4}, 0.85},
                          Case{{1, 8}, {0.9, 2}, 0.8}, Case{{5, 2}, {0.1, 10}, 0.7}}) {
    SCOPED_TRACE(one.load);
    const std::vector<planner::ChainRate> rates = {one.fast, one.slow};
    Scenario scenario{.rate_per_s = one.load * planner::total_rate_per_s(rates)};
    for (const auto& rate : rates) {
      scenario.chains.push_back({1 / rate.service_rate_per_s, static_cast<int>(rate.capacity), {}});
    }
    const auto exact_s = planner::mean_response_two_chains_s(one.fast, one.slow, scenario.rate_per_s);
    ASSERT_TRUE(exact_s.has_value());
    expect_estimate(replicate(scenario, 10).response, *exact_s, 0.05);
  }
}

// Given random chains and loads; expects JFFC's simulated mean between the two bounds of Theorem 3.7, within its interval.
TEST(ChainSimulation, LiesBetweenTheBounds) {
  Rng rng(31, "bounds");
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    std::vector<planner::ChainRate> rates(static_cast<std::size_t>(rng.integer(1, 8)));
    for (auto& rate : rates) rate = {rng.uniform(0.1, 2), static_cast<long>(rng.integer(1, 6))};
    std::stable_sort(rates.begin(), rates.end(),
                     [](const auto& a, const auto& b) { return a.service_rate_per_s > b.service_rate_per_s; });
    Scenario scenario{.rate_per_s = rng.uniform(0.2, 0.9) * planner::total_rate_per_s(rates), .requests = 30'000};
    for (const auto& rate : rates) {
      scenario.chains.push_back({1 / rate.service_rate_per_s, static_cast<int>(rate.capacity), {}});
    }
    const MeanEstimate found = replicate(scenario, 6).response;
    EXPECT_GE(found.mean + *found.half_width, planner::mean_response_lower_s(rates, scenario.rate_per_s).value());
    EXPECT_LE(found.mean - *found.half_width, planner::mean_response_upper_s(rates, scenario.rate_per_s).value());
  }
}

// Given chains of three speeds at 40, 70 and 90 % load; expects a lower mean response time from JFFC than from JSQ.
TEST(ChainSimulation, JffcBeatsJsqOnUnequalChains) {
  Scenario scenario{.chains = {{5, 4, {}}, {2, 4, {}}, {1, 4, {}}}};
  for (const double load : {0.4, 0.7, 0.9}) {
    scenario.rate_per_s = load * 4 * (0.2 + 0.5 + 1.0);
    scenario.policy = PolicyKind::kJffc;
    const double jffc_s = run(scenario, 1).response.mean_s;
    scenario.policy = PolicyKind::kJsq;
    EXPECT_LT(jffc_s, 0.97 * run(scenario, 1).response.mean_s) << "load " << load;
  }
}

// Given one seed twice; expects identical numbers under every policy; given another seed; expects others.
TEST(ChainSimulation, IsFixedByItsSeed) {
  Scenario scenario{.chains = {{5, 4, {}}, {2, 4, {}}, {1, 4, {}}}, .rate_per_s = 6, .gap_cv = 2, .requests = 5000};
  for (const PolicyKind policy : dispatch::kAllPolicies) {
    scenario.policy = policy;
    const SimulationResult one = run(scenario, 4);
    const SimulationResult same = run(scenario, 4);
    EXPECT_EQ(one.response.mean_s, same.response.mean_s);
    EXPECT_EQ(one.response.p99_s, same.response.p99_s);
    EXPECT_EQ(one.waiting.standard_deviation_s, same.waiting.standard_deviation_s);
    EXPECT_EQ(one.simulated_s, same.simulated_s);
    EXPECT_NE(one.response.mean_s, run(scenario, 5).response.mean_s);
  }
}

// Serves its requests and counts the calls.
class Counted final : public workload::RequestSource {
 public:
  explicit Counted(std::vector<Request> requests) : requests_(std::move(requests)) {}
  std::optional<Request> next() override {
    ++asked;
    if (next_ == requests_.size()) return std::nullopt;
    return requests_[next_++];
  }
  int asked = 0;

 private:
  std::vector<Request> requests_;
  std::size_t next_ = 0;
};

// Given four requests at one slot, two of warm-up and a limit of three; expects only the third to be measured, after the first
// two were served, and the fourth never to be requested from the source.
TEST(ChainSimulation, WarmUpAndLimit) {
  Counted source({{.arrival_s = 1}, {.arrival_s = 1}, {.arrival_s = 2}, {.arrival_s = 3}});
  const auto policy = dispatch::make_policy(PolicyKind::kJffc, Rng(1, "unused"));
  ChainSimulationOptions options;
  options.max_requests = 3;
  options.warm_up_requests = 2;
  const SimulationResult result = simulate_chains(std::vector{SimulatedChain{2, 1, {}}}, source, *policy, options);
  EXPECT_EQ(result.requests, 1);
  EXPECT_EQ(result.waiting.mean_s, 3);
  EXPECT_EQ(result.service.mean_s, 2);
  EXPECT_EQ(result.response.mean_s, 5);
  EXPECT_EQ(result.response.p50_s, 5);
  EXPECT_EQ(result.simulated_s, 7);
  EXPECT_EQ(source.asked, 3);
}

// Given no requests, or no capacity; expects nothing measured. Given times beyond the end of time; expects the run to end.
TEST(ChainSimulation, ExtremeCases) {
  const auto measured = [](std::vector<SimulatedChain> chains, std::vector<Request> requests) {
    Counted source(std::move(requests));
    const auto policy = dispatch::make_policy(PolicyKind::kJffc, Rng(1, "unused"));
    return simulate_chains(chains, source, *policy, {});
  };
  EXPECT_EQ(measured({{1, 1, {}}}, {}).requests, 0);
  EXPECT_EQ(measured({{1, 0, {}}}, {{.arrival_s = 1}}).requests, 0);
  EXPECT_EQ(measured({}, {{.arrival_s = 1}}).requests, 0);
  const double century_s = 3.2e9;
  const SimulationResult late = measured({{century_s, 1, {}}}, {{.arrival_s = 1}, {.arrival_s = 2}, {.arrival_s = 1e30}});
  EXPECT_EQ(late.requests, 2);
  EXPECT_DOUBLE_EQ(late.simulated_s, std::ldexp(1, 62) / 1e9);
}

// Given 600,000 requests; expects progress reports to be rare and in order.
TEST(ChainSimulation, ReportsProgress) {
  workload::SyntheticSource source({10, 1, 1});
  const auto policy = dispatch::make_policy(PolicyKind::kJffc, Rng(1, "unused"));
  ChainSimulationOptions options;
  options.max_requests = 600'000;
  std::vector<std::int64_t> told;
  options.progress = [&](std::int64_t arrivals) { told.push_back(arrivals); };
  EXPECT_EQ(simulate_chains(std::vector{SimulatedChain{0.1, 4, {}}}, source, *policy, options).requests, 600'000);
  EXPECT_EQ(told, (std::vector<std::int64_t>{1 << 18, 2 << 18}));
}

// Given servers with token times; expects a chain's time to be their sum over its servers. Without tokens in the request, or
// without token times on one server; expects size times the mean.
TEST(ChainSimulation, ServiceTimesFromTokens) {
  chain::Instance instance;
  instance.blocks = 10;
  instance.servers.resize(3);
  instance.servers[0].token_times = chain::TokenTimes{0.001, 0.0002, 0.003, 0.04, 0.02};
  instance.servers[1].token_times = chain::TokenTimes{0.002, 0.0001, 0.001, 0.03, 0.01};
  const chain::ServerChain both{{1, 0}, {7, 3}, 5, 12.5};
  const SimulatedChain simulated = simulated_chain(instance, both);
  EXPECT_EQ(simulated.capacity, 5);
  EXPECT_EQ(simulated.service_time_s, 12.5);
  ASSERT_TRUE(simulated.token_time.has_value());
  const auto expected = [](int in, int out) {
    return 0.03 + 0.01 * (out - 1) + 7 * (0.002 + 0.0001 * in + 0.001 * (out - 1)) + 0.04 + 0.02 * (out - 1) +
           3 * (0.001 + 0.0002 * in + 0.003 * (out - 1));
  };
  EXPECT_NEAR(simulated.service_time_of({0, 9, 2000, 20}), expected(2000, 20), 1e-12);
  EXPECT_NEAR(simulated.service_time_of({0, 9, 100, 1}), expected(100, 1), 1e-12);
  EXPECT_NEAR(simulated.service_time_of({0, 9, 100, 0}), expected(100, 1), 1e-12) << "no token is not less than the first";
  EXPECT_EQ(simulated.service_time_of({0, 2, 0, 0}), 25);
  const chain::ServerChain mixed{{0, 2}, {3, 7}, 2, 4};
  EXPECT_FALSE(simulated_chain(instance, mixed).token_time.has_value());
  EXPECT_EQ(simulated_chain(instance, mixed).service_time_of({0, 1.5, 100, 10}), 6);
  EXPECT_EQ(simulated_chains(instance, std::vector{both, mixed}),
            (std::vector{simulated_chain(instance, both), simulated_chain(instance, mixed)}));
}

}  // namespace
}  // namespace windlass::sim
