// Tests the simulator against a reference that is as simple as possible: all events and requests in a list that is searched
// from end to end, and every choice made by a policy that is set up with all chains each time. Also tests the simulator's
// guarantees as seen by a policy.
#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/dispatch/policies.h"
#include "planner/sim/chain_simulation.h"
#include "tests/effort.h"
#include "tests/list_source.h"

namespace windlass::sim {
namespace {

using dispatch::PolicyKind;
using workload::Request;

struct Served {
  long arrived_ns = 0, started_ns = -1, ended_ns = -1;
  std::size_t order = 0;  // order of its start
};

// REQUIRES: a policy without state.
class Reference {
 public:
  Reference(std::vector<SimulatedChain> chains, std::vector<Request> requests, PolicyKind kind)
      : chains_(std::move(chains)), requests_(std::move(requests)), served_(requests_.size()), kind_(kind) {
    central_ = chains_.size();
    queues_.resize(chains_.size() + 1);
    running_.assign(chains_.size(), 0);
    if (!requests_.empty()) schedule_arrival(0);
  }

  std::vector<Served> run() {
    while (!events_.empty()) {
      const auto first = std::min_element(events_.begin(), events_.end(), [](const Event& a, const Event& b) {
        return a.time_ns != b.time_ns ? a.time_ns < b.time_ns : a.id < b.id;
      });
      const Event event = *first;
      events_.erase(first);
      now_ns_ = event.time_ns;
      if (event.chain == central_) {
        queues_[central_].push_back(event.request);
        dispatch_waiting();
        if (event.request + 1 < requests_.size()) schedule_arrival(event.request + 1);
      } else {
        --running_[event.chain];
        if (auto& queue = queues_[event.chain]; !queue.empty()) {
          start(queue.front(), event.chain);
          queue.pop_front();
        }
        dispatch_waiting();
      }
    }
    return served_;
  }

 private:
  struct Event {
    long time_ns;
    long id;
    std::size_t chain;  // central_: an arrival
    std::size_t request;
  };

  void schedule_arrival(std::size_t request) {
    served_[request].arrived_ns = std::lround(requests_[request].arrival_s * 1e9);
    events_.push_back({served_[request].arrived_ns, next_id_++, central_, request});
  }

  void dispatch_waiting() {
    while (!queues_[central_].empty()) {
      std::vector<dispatch::ChainState> states;
      for (std::size_t k = 0; k < chains_.size(); ++k) {
        states.push_back(
            {1 / chains_[k].service_time_s, chains_[k].capacity, running_[k] + static_cast<int>(queues_[k].size()), false});
      }
      const auto policy = dispatch::make_policy(kind_, Rng(1, "unused"));
      policy->reset(states);
      const auto chain = policy->choose();
      if (!chain) return;
      const std::size_t request = queues_[central_].front();
      queues_[central_].pop_front();
      if (running_[*chain] < chains_[*chain].capacity) {
        start(request, *chain);
      } else {
        queues_[*chain].push_back(request);
      }
    }
  }

  void start(std::size_t request, std::size_t chain) {
    ++running_[chain];
    served_[request].order = started_++;
    served_[request].started_ns = now_ns_;
    served_[request].ended_ns = now_ns_ + std::lround(requests_[request].size * chains_[chain].service_time_s * 1e9);
    events_.push_back({served_[request].ended_ns, next_id_++, chain, request});
  }

  std::vector<SimulatedChain> chains_;
  std::vector<Request> requests_;
  std::vector<Served> served_;
  PolicyKind kind_;
  std::size_t central_ = 0;
  std::vector<std::deque<std::size_t>> queues_;  // the last one is the central queue
  std::vector<int> running_;
  std::vector<Event> events_;
  long now_ns_ = 0;
  long next_id_ = 0;
  std::size_t started_ = 0;
};

void expect_summary(const TimeSummary& found, std::vector<double> times) {
  std::sort(times.begin(), times.end());
  const double mean = std::accumulate(times.begin(), times.end(), 0.0) / static_cast<double>(times.size());
  double squares = 0;
  for (const double t : times) squares += (t - mean) * (t - mean);
  const double deviation = times.size() > 1 ? std::sqrt(squares / static_cast<double>(times.size() - 1)) : 0;
  ASSERT_NEAR(found.mean_s, mean, 1e-12 + 1e-10 * mean);
  ASSERT_NEAR(found.standard_deviation_s, deviation, 1e-7);
  ASSERT_EQ(found.min_s, times.front());
  ASSERT_EQ(found.max_s, times.back());
  ASSERT_NEAR(found.p50_s, times[(times.size() + 1) / 2 - 1], 0.002 * found.p50_s);
}

// Given small random systems, half of them with times in whole seconds so that many events coincide; expects exactly the
// reference's times under every stateless policy, and under JFFC that requests start in order of arrival.
TEST(ChainSimulation, AgreesWithThePlainReference) {
  Rng rng(21, "systems");
  for (int system = 0; system < effort(400, 4000); ++system) {
    SCOPED_TRACE(system);
    const bool whole = system % 2 == 0;
    const auto kind = std::vector{PolicyKind::kJffc, PolicyKind::kJsq, PolicyKind::kSed, PolicyKind::kSaJsq}[system / 2 % 4];
    std::vector<SimulatedChain> chains(static_cast<std::size_t>(rng.integer(1, 4)));
    for (SimulatedChain& chain : chains) {
      chain.service_time_s = whole ? static_cast<double>(rng.integer(1, 3)) : rng.uniform(0.5, 4);
      chain.capacity = static_cast<int>(rng.integer(0, 3));
    }
    chains[0].capacity = std::max(chains[0].capacity, 1);
    std::vector<Request> requests(static_cast<std::size_t>(rng.integer(1, 60)));
    double now_s = 0;
    for (Request& request : requests) {
      now_s += whole ? static_cast<double>(rng.integer(0, 2)) : rng.exponential(1.5);
      request.arrival_s = now_s;
      request.size = whole ? static_cast<double>(rng.integer(0, 3)) : rng.exponential(1);
    }
    const std::vector<Served> expected = Reference(chains, requests, kind).run();
    std::vector<double> waiting, service, response;
    long last_ns = 0;
    for (const Served& one : expected) {
      ASSERT_GE(one.ended_ns, 0) << "every request is served";
      waiting.push_back(static_cast<double>(one.started_ns - one.arrived_ns) / 1e9);
      service.push_back(static_cast<double>(one.ended_ns - one.started_ns) / 1e9);
      response.push_back(static_cast<double>(one.ended_ns - one.arrived_ns) / 1e9);
      last_ns = std::max(last_ns, one.ended_ns);
    }
    if (kind == PolicyKind::kJffc) {
      for (std::size_t i = 1; i < expected.size(); ++i) ASSERT_GT(expected[i].order, expected[i - 1].order);
    }
    ListSource source(requests);
    const auto policy = dispatch::make_policy(kind, Rng(1, "unused"));
    const SimulationResult found = simulate_chains(chains, source, *policy, {});
    ASSERT_EQ(found.requests, static_cast<long>(requests.size()));
    ASSERT_EQ(found.simulated_s, static_cast<double>(last_ns) / 1e9);
    expect_summary(found.waiting, waiting);
    expect_summary(found.service, service);
    expect_summary(found.response, response);
    if (HasFatalFailure()) return;
  }
}

// A policy that passes everything on and records the calls.
class Watched final : public dispatch::DispatchPolicy {
 public:
  explicit Watched(PolicyKind kind) : kind_(kind), policy_(dispatch::make_policy(kind, Rng(9, "watched"))) {}

  void reset(std::span<const dispatch::ChainState> chains) override {
    states_.assign(chains.begin(), chains.end());
    policy_->reset(chains);
  }
  void update(std::size_t index, const dispatch::ChainState& state) override {
    ASSERT_LT(index, states_.size());
    const int change = state.in_flight - states_[index].in_flight;
    ASSERT_TRUE(change == 1 || change == -1);
    ASSERT_EQ(change == 1, chosen_ == index) << "a chain gains a request exactly when it was chosen";
    ASSERT_GE(state.in_flight, 0);
    if (kind_ == PolicyKind::kJffc) {
      ASSERT_LE(state.in_flight, state.capacity);
    }
    (change == 1 ? taken_ : given_back_) += 1;
    chosen_.reset();
    states_[index] = state;
    policy_->update(index, state);
  }
  std::optional<std::size_t> choose() override {
    EXPECT_FALSE(chosen_.has_value()) << "the last choice was not carried out";
    return chosen_ = policy_->choose();
  }

  [[nodiscard]] long taken() const { return taken_; }
  [[nodiscard]] long given_back() const { return given_back_; }

 private:
  PolicyKind kind_;
  std::unique_ptr<dispatch::DispatchPolicy> policy_;
  std::vector<dispatch::ChainState> states_;
  std::optional<std::size_t> chosen_;
  long taken_ = 0, given_back_ = 0;
};

// Given 40 random systems near and beyond their capacity under every policy; expects every request to take and return a slot
// exactly once, and JFFC never to exceed a chain's capacity.
TEST(ChainSimulation, LosesAndDoublesNothing) {
  Rng rng(22, "watched");
  for (const PolicyKind kind : dispatch::kAllPolicies) {
    for (int system = 0; system < 40; ++system) {
      SCOPED_TRACE(std::string(dispatch::to_string(kind)) + ", system " + std::to_string(system));
      std::vector<SimulatedChain> chains(static_cast<std::size_t>(rng.integer(1, 8)));
      double rate_per_s = 0;
      for (SimulatedChain& chain : chains) {
        chain.service_time_s = rng.uniform(0.2, 5);
        chain.capacity = static_cast<int>(rng.integer(1, 6));
        rate_per_s += chain.capacity / chain.service_time_s;
      }
      const double load = rng.uniform(0.5, 1.3);
      std::vector<Request> requests(2000);
      double now_s = 0;
      for (Request& request : requests) {
        request.arrival_s = now_s += rng.exponential(load * rate_per_s);
        request.size = rng.exponential(1);
      }
      ListSource source(requests);
      Watched policy(kind);
      EXPECT_EQ(simulate_chains(chains, source, policy, {}).requests, 2000);
      EXPECT_EQ(policy.taken(), 2000);
      EXPECT_EQ(policy.given_back(), 2000);
      if (HasFailure()) return;
    }
  }
}

}  // namespace
}  // namespace windlass::sim
