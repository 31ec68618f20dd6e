// Tests of the simulation of routed sessions: invariants at every event, start rules by definition, and queues with known
// answers.
#include <cmath>

#include <gtest/gtest.h>

#include "planner/chain/cg_bp.h"
#include "planner/chain/design_load.h"
#include "planner/sim/session_simulation.h"
#include "tests/effort.h"
#include "tests/list_source.h"
#include "tests/unit/planner/chain/bprr_fixtures.h"

namespace windlass::sim {
namespace {

using chain::eighths;
using chain::Instance;
using chain::Placement;

constexpr double kRounding_s = 1e-8;

std::vector<workload::Request> random_requests(Rng& rng, int count, double rate_per_s) {
  std::vector<workload::Request> requests;
  double now_s = 0;
  for (int i = 0; i < count; ++i) requests.push_back({now_s += rng.exponential(rate_per_s), rng.exponential(1), 0, 0});
  return requests;
}

// The path of one request through the run.
struct Followed {
  chain::Route route;
  std::int64_t routed_ns = 0, started_ns = -1, ended_ns = -1;
};

struct CheckedRun {
  std::vector<Followed> requests;
  SimulationResult result;
};

// Runs and checks the rules at every event: each step once and in order, all blocks in order, memory never exceeded.
CheckedRun run_checked(const Instance& instance, const Placement& placement, const SessionPolicy& policy,
                       const std::vector<workload::Request>& requests, SessionSimulationOptions options = {}) {
  const std::vector<long> slots = options.slots.empty() ? chain::cache_slots(instance, placement) : options.slots;
  CheckedRun run;
  std::vector<long> used(placement.size(), 0);
  std::int64_t now_ns = 0;
  options.on_event = [&](const SessionEvent& event) {
    EXPECT_GE(event.time_ns, now_ns);
    now_ns = event.time_ns;
    const auto number = static_cast<std::size_t>(event.request);
    switch (event.step) {
      case SessionStep::kRouted: {
        if (number == run.requests.size()) run.requests.emplace_back();
        ASSERT_LT(number, run.requests.size()) << "routed out of order";
        Followed& request = run.requests[number];
        EXPECT_EQ(request.started_ns, -1);
        request.route = event.route;
        if (request.routed_ns == 0) request.routed_ns = event.time_ns;
        int next_block = 1;
        for (std::size_t hop = 0; hop < event.route.servers.size(); ++hop) {
          const auto& range = placement[static_cast<std::size_t>(event.route.servers[hop])];
          EXPECT_TRUE(range.holds(next_block));
          EXPECT_EQ(event.route.blocks[hop], range.last() - next_block + 1);
          next_block = range.last() + 1;
        }
        EXPECT_EQ(next_block, instance.blocks + 1);
        break;
      }
      case SessionStep::kStarted: {
        Followed& request = run.requests.at(number);
        EXPECT_EQ(request.started_ns, -1) << "started twice";
        EXPECT_EQ(request.route, event.route);
        request.started_ns = event.time_ns;
        for (std::size_t hop = 0; hop < event.route.servers.size(); ++hop) {
          const auto j = static_cast<std::size_t>(event.route.servers[hop]);
          used[j] += event.route.blocks[hop];
          EXPECT_LE(used[j], slots[j]) << "more slots in use than the server has";
          EXPECT_TRUE(!options.slots.empty() ||
                      instance.block_gb * placement[j].blocks + instance.cache_gb * static_cast<double>(used[j]) <=
                          instance.servers[j].memory_gb)
              << "Eq. 5";
        }
        break;
      }
      case SessionStep::kEnded: {
        Followed& request = run.requests.at(number);
        EXPECT_GE(request.started_ns, 0) << "ended before it started";
        EXPECT_EQ(request.ended_ns, -1) << "ended twice";
        request.ended_ns = event.time_ns;
        for (std::size_t hop = 0; hop < event.route.servers.size(); ++hop) {
          used[static_cast<std::size_t>(event.route.servers[hop])] -= event.route.blocks[hop];
        }
        break;
      }
    }
  };
  ListSource source(requests);
  const auto result = simulate_sessions(instance, placement, policy, source, options);
  EXPECT_TRUE(result.ok());
  if (result) run.result = *result;
  for (const long left : used) EXPECT_EQ(left, 0);
  for (const Followed& request : run.requests) EXPECT_GE(request.ended_ns, 0) << "never served";
  return run;
}

struct Case {
  Instance instance;
  Placement placement;
};

// A random instance with CG-BP's or PETALS' placement, in which every block is served.
std::optional<Case> random_case(Rng& rng) {
  Case made{chain::random_instance(rng, 8, 8), {}};
  const int most = chain::max_design_load(made.instance);
  if (most == 0) return std::nullopt;
  made.placement = chain::cg_bp(made.instance, static_cast<int>(rng.integer(1, std::min(most, 4)))).placement;
  if (rng.integer(0, 2) == 0) {
    chain::PetalsOptions options;
    options.reserved_gb = 0;
    options.cache_sessions_per_block = 2;
    const Placement petals = chain::petals_placement(made.instance, options);
    if (chain::covers_all_blocks(made.instance, petals)) made.placement = petals;
  }
  return made;
}

const std::vector<SessionPolicy>& all_policies() {
  static const std::vector<SessionPolicy> kPolicies = [] {
    std::vector<SessionPolicy> policies;
    for (const auto routing : {SessionRouting::kShortest, SessionRouting::kWsRr, SessionRouting::kPetals}) {
      for (const auto start : {StartRule::kWhenFree, StartRule::kClaimAndRetry, StartRule::kBackoff}) {
        for (const bool flag : {false, true}) {
          SessionPolicy policy;
          policy.routing = routing;
          policy.start = start;
          policy.sizes_known = flag;
          policy.reroute_on_retry = flag;
          policies.push_back(policy);
        }
      }
    }
    return policies;
  }();
  return kPolicies;
}

// Given every policy on random instances from idle to overloaded; expects the rules to hold at every event, every request to be
// served once, and the result to count them all.
TEST(SessionSimulation, KeepsItsRulesUnderEveryPolicy) {
  Rng rng(1, "sessions");
  int runs = 0, waited = 0;
  for (int round = 0; round < effort(40, 200); ++round) {
    const auto made = random_case(rng);
    if (!made) continue;
    const auto requests = random_requests(rng, 60, eighths(rng, 1, 16));
    for (const SessionPolicy& policy : all_policies()) {
      const CheckedRun run = run_checked(made->instance, made->placement, policy, requests);
      ASSERT_FALSE(HasFailure()) << "round " << round;
      ASSERT_EQ(run.requests.size(), requests.size());
      ASSERT_EQ(run.result.requests, static_cast<std::int64_t>(requests.size()));
      ASSERT_NEAR(run.result.response.mean_s, run.result.waiting.mean_s + run.result.service.mean_s, 1e-6);
      ++runs;
      waited += run.result.waiting.mean_s > 0;
    }
  }
  EXPECT_GT(runs, effort(200, 1000));
  EXPECT_GT(waited, effort(80, 500));
}

// Given requests and their routes under kWhenFree; expects each to start at the first moment (its arrival or an earlier
// request's end) at which every server has enough slots besides the claims of all earlier requests that have not ended. Under
// kClaimAndRetry, expects the first try at or after that moment.
TEST(SessionSimulation, StartsAsTheClaimsBeforeItAllow) {
  Rng rng(2, "sessions");
  int waited = 0;
  for (int round = 0; round < effort(50, 300); ++round) {
    const auto made = random_case(rng);
    if (!made) continue;
    const auto requests = random_requests(rng, 40, eighths(rng, 1, 16));
    SessionPolicy policy;
    policy.routing = static_cast<SessionRouting>(round % 3);
    const bool tries = round % 2 == 1;
    if (tries) policy.start = StartRule::kClaimAndRetry;
    const CheckedRun run = run_checked(made->instance, made->placement, policy, requests);
    for (std::size_t i = 0; i < run.requests.size(); ++i) {
      const Followed& request = run.requests[i];
      const auto allowed = [&](std::int64_t time_ns) {
        for (std::size_t hop = 0; hop < request.route.servers.size(); ++hop) {
          long claimed = request.route.blocks[hop];
          for (std::size_t k = 0; k < i; ++k) {
            if (run.requests[k].ended_ns <= time_ns) continue;
            const auto& others = run.requests[k].route;
            for (std::size_t h = 0; h < others.servers.size(); ++h) {
              if (others.servers[h] == request.route.servers[hop]) claimed += others.blocks[h];
            }
          }
          const int server = request.route.servers[hop];
          const int blocks = made->placement[static_cast<std::size_t>(server)].blocks;
          if (claimed > chain::cache_slots(made->instance, server, blocks)) return false;
        }
        return true;
      };
      std::int64_t expected_ns = std::numeric_limits<std::int64_t>::max();
      if (allowed(request.routed_ns)) expected_ns = request.routed_ns;
      for (std::size_t k = 0; k < i; ++k) {
        const std::int64_t end_ns = run.requests[k].ended_ns;
        if (end_ns > request.routed_ns && end_ns < expected_ns && allowed(end_ns)) expected_ns = end_ns;
      }
      if (tries) {
        std::int64_t try_ns = request.routed_ns;
        for (std::int64_t backoff_s = 1; try_ns < expected_ns; backoff_s = std::min<std::int64_t>(2 * backoff_s, 60)) {
          try_ns += backoff_s * 1'000'000'000;
        }
        expected_ns = try_ns;
      }
      ASSERT_EQ(request.started_ns, expected_ns) << "round " << round << " request " << i;
      waited += request.started_ns > request.routed_ns;
    }
  }
  EXPECT_GT(waited, effort(120, 1000));
}

// Given WS-RR with known sizes; expects every request to end by the cost of its route (Corollary 3.7).
TEST(SessionSimulation, WsRrKeepsCorollaryThreeSeven) {
  Rng rng(3, "sessions");
  int waited = 0;
  for (int round = 0; round < effort(60, 400); ++round) {
    const auto made = random_case(rng);
    if (!made) continue;
    const auto requests = random_requests(rng, 60, eighths(rng, 1, 24));
    SessionPolicy policy;
    policy.sizes_known = true;
    const CheckedRun run = run_checked(made->instance, made->placement, policy, requests);
    for (const Followed& request : run.requests) {
      ASSERT_LE(static_cast<double>(request.ended_ns - request.routed_ns) * 1e-9, request.route.cost_s + kRounding_s)
          << "round " << round;
      waited += request.started_ns > request.routed_ns;
    }
  }
  EXPECT_GT(waited, effort(100, 1000));
}

// Given at most as many concurrent requests as CG-BP's design load; expects that nobody waits, that WS-RR takes the shortest
// path, and that no request of mean size exceeds the bound of Theorem 3.5 (Corollary 3.6).
TEST(SessionSimulation, WithinTheDesignLoadNobodyWaits) {
  Rng rng(4, "sessions");
  int cases = 0;
  for (int round = 0; round < effort(80, 500); ++round) {
    const Instance instance = chain::random_instance(rng, 8, 8);
    const int load = std::min(chain::max_design_load(instance), 6);
    if (load == 0) continue;
    ++cases;
    const auto placed = chain::cg_bp(instance, load);
    std::vector<workload::Request> requests;  // `load` requests together, the next ones when those have ended
    for (int i = 0; i < 4 * load; ++i) requests.push_back({(i / load) * (*placed.time_bound_s + 1), 1, 0, 0});
    SessionPolicy policy;
    const CheckedRun ws_rr = run_checked(instance, placed.placement, policy, requests);
    policy.routing = SessionRouting::kShortest;
    const CheckedRun shortest = run_checked(instance, placed.placement, policy, requests);
    EXPECT_EQ(ws_rr.result.waiting.max_s, 0);
    EXPECT_EQ(shortest.result.waiting.max_s, 0);
    EXPECT_LE(ws_rr.result.response.max_s, *placed.time_bound_s + kRounding_s);
    for (std::size_t i = 0; i < requests.size(); ++i) ASSERT_EQ(ws_rr.requests[i].route, shortest.requests[i].route);
  }
  EXPECT_GT(cases, effort(25, 200));
}

// One server with room for `sessions` whole requests, each of which takes service_s seconds.
Case one_server(double service_s, int sessions) {
  Case made;
  made.instance = {.blocks = 2, .block_gb = 1, .cache_gb = 1, .servers = {}};
  made.instance.servers.push_back({"s", 2.0 + 2 * sessions, service_s / 2, service_s / 4, 1, {}});
  made.placement = {{1, 2}};
  return made;
}

// Given a server that is busy for 10 s and a second request after 1 s; expects it to start at 10 when free, or with tries at 16
// (1, 2, 4, 8, 16).
TEST(SessionSimulation, BackoffWaitsForTheNextTry) {
  const Case made = one_server(10, 1);
  const std::vector<workload::Request> requests{{0, 1, 0, 0}, {1, 1, 0, 0}};
  SessionPolicy policy;
  EXPECT_EQ(run_checked(made.instance, made.placement, policy, requests).requests[1].started_ns, 10'000'000'000);
  for (const auto start : {StartRule::kClaimAndRetry, StartRule::kBackoff}) {
    policy.start = start;
    const CheckedRun run = run_checked(made.instance, made.placement, policy, requests);
    EXPECT_EQ(run.requests[1].started_ns, 16'000'000'000);
    EXPECT_DOUBLE_EQ(run.result.waiting.max_s, 15);
    EXPECT_DOUBLE_EQ(run.result.response.max_s, 25);
    EXPECT_DOUBLE_EQ(run.result.simulated_s, 26);
  }
}

// Given a setup of 5 s on top of 10 s of service; expects the server's slots to be held for 15 s.
TEST(SessionSimulation, SetupHoldsTheSlots) {
  const Case made = one_server(10, 1);
  SessionPolicy policy;
  policy.setup_s = 5;
  const CheckedRun run = run_checked(made.instance, made.placement, policy, {{0, 1, 0, 0}, {1, 1, 0, 0}});
  EXPECT_EQ(run.requests[1].started_ns, 15'000'000'000);
  EXPECT_DOUBLE_EQ(run.result.service.min_s, 15);
}

// Given a server that is busy for 300 s; expects backoffs to double up to 60 s (tries at 0, 1, 3, 7, 15, 31, 63, 123, 183, 243,
// 303).
TEST(SessionSimulation, BackoffEndsAtSixtySeconds) {
  const Case made = one_server(300, 1);
  SessionPolicy policy;
  const std::vector<workload::Request> requests{{0, 1, 0, 0}, {0, 1, 0, 0}};
  for (const auto start : {StartRule::kClaimAndRetry, StartRule::kBackoff}) {
    policy.start = start;
    EXPECT_EQ(run_checked(made.instance, made.placement, policy, requests).requests[1].started_ns, 303'000'000'000);
  }
}

// Given a request that backs off while another's slots become free; expects that a later one may overtake it under backoff, but
// never when slots are assigned in arrival order.
TEST(SessionSimulation, OnlyBackoffLetsOthersOvertake) {
  const Case made = one_server(10, 1);
  const std::vector<workload::Request> requests{{0, 1, 0, 0}, {1, 1, 0, 0}, {11, 1, 0, 0}};
  SessionPolicy policy;
  CheckedRun run = run_checked(made.instance, made.placement, policy, requests);
  EXPECT_EQ(run.requests[1].started_ns, 10'000'000'000);
  EXPECT_EQ(run.requests[2].started_ns, 20'000'000'000);
  policy.start = StartRule::kBackoff;
  run = run_checked(made.instance, made.placement, policy, requests);
  EXPECT_EQ(run.requests[2].started_ns, 11'000'000'000);
  EXPECT_EQ(run.requests[1].started_ns, 32'000'000'000);  // tries at 1, 2, 4, 8, 16, 32
  policy.start = StartRule::kClaimAndRetry;               // the slots rest from 10 to 16
  run = run_checked(made.instance, made.placement, policy, requests);
  EXPECT_EQ(run.requests[1].started_ns, 16'000'000'000);
  EXPECT_EQ(run.requests[2].started_ns, 26'000'000'000);  // tries at 11, 12, 14, 18, 26
}

// Given two equal servers of which the first is full; expects PETALS and WS-RR to route around it, and the shortest path not
// to. Given a retry that looks for a new route; expects it to find the free server.
TEST(SessionSimulation, RoutingAvoidsFullServers) {
  Case made = one_server(10, 1);
  made.instance.servers.push_back(made.instance.servers[0]);
  made.instance.servers[1].communication_s += 1;
  made.placement = {{1, 2}, {1, 2}};
  const std::vector<workload::Request> requests{{0, 1, 0, 0}, {1, 1, 0, 0}};
  SessionPolicy policy;
  for (const auto routing : {SessionRouting::kPetals, SessionRouting::kWsRr}) {
    policy.routing = routing;
    const CheckedRun run = run_checked(made.instance, made.placement, policy, requests);
    EXPECT_EQ(run.requests[1].route.servers, std::vector<int>{1});
    EXPECT_EQ(run.result.waiting.max_s, 0);
  }
  policy.routing = SessionRouting::kShortest;
  EXPECT_EQ(run_checked(made.instance, made.placement, policy, requests).requests[1].route.servers, std::vector<int>{0});
  // With three requests, the third backs off from the cheaper server, and takes the other one when that is free first.
  policy.routing = SessionRouting::kPetals;
  policy.start = StartRule::kBackoff;
  const std::vector<workload::Request> three{{0, 8, 0, 0}, {0, 0.1, 0, 0}, {0, 1, 0, 0}};
  CheckedRun run = run_checked(made.instance, made.placement, policy, three);
  EXPECT_EQ(run.requests[2].started_ns,
            123'000'000'000);  // tries at 0, 1, 3, 7, 15, 31, 63, 123; the first server is busy until 80
  policy.reroute_on_retry = true;
  run = run_checked(made.instance, made.placement, policy, three);
  EXPECT_EQ(run.requests[2].route.servers, std::vector<int>{1});
  EXPECT_EQ(run.requests[2].started_ns, 3'000'000'000);
}

// Given Poisson arrivals and exponential sizes at one server with c sessions; expects the mean wait of an M/M/c queue (Erlang's
// C).
TEST(SessionSimulation, IsAnErlangQueueOnOneServer) {
  constexpr int kSessions = 3;
  constexpr double kService_s = 2, kRate_per_s = 1.2;  // utilisation 0.8
  const Case made = one_server(kService_s, kSessions);
  Rng rng(5, "erlang");
  ListSource source(random_requests(rng, 400'000, kRate_per_s));
  SessionSimulationOptions options;
  options.warm_up_requests = 1000;
  const auto result = simulate_sessions(made.instance, made.placement, {}, source, options);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->requests, 399'000);
  // Erlang's C, written out: p_wait = (a^c/c!) / (1 - rho) / (sum_{k<c} a^k/k! + (a^c/c!) / (1 - rho)); W = p_wait / (c mu -
  // lambda).
  const double load = kRate_per_s * kService_s, rho = load / kSessions;
  double term = 1, sum = 0;
  for (int k = 0; k < kSessions; ++k) {
    sum += term;
    term *= load / (k + 1);
  }
  const double tail = term / (1 - rho);
  const double mean_wait_s = tail / (sum + tail) / (kSessions / kService_s - kRate_per_s);
  EXPECT_NEAR(result->waiting.mean_s, mean_wait_s, 0.03 * mean_wait_s);
  EXPECT_NEAR(result->service.mean_s, kService_s, 0.01 * kService_s);
}

// Given token times on every server; expects a request to take the sum over its servers of communication and blocks, by its
// tokens.
TEST(SessionSimulation, ServesByTokensWhereTheyAreKnown) {
  Case made = one_server(10, 1);
  made.instance.servers[0].token_times = chain::TokenTimes{0.25, 0.001, 0.01, 0.5, 0.05};
  const std::vector<workload::Request> requests{{0, 7, 100, 11}, {1000, 7, 100, 1}};
  const CheckedRun run = run_checked(made.instance, made.placement, {}, requests);
  EXPECT_NEAR(run.result.service.max_s, 0.5 + 0.05 * 10 + 2 * (0.25 + 0.001 * 100 + 0.01 * 10), 1e-9);
  EXPECT_NEAR(run.result.service.min_s, 0.5 + 2 * (0.25 + 0.001 * 100), 1e-9);
}

// Given a placement without some block, or without room for its cache; expects an error that says so, and no run.
TEST(SessionSimulation, RefusesPlacementsWithoutARoute) {
  Case made = one_server(10, 1);
  ListSource source({{0, 1, 0, 0}});
  made.placement = {{1, 1}};
  auto result = simulate_sessions(made.instance, made.placement, {}, source, {});
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kFailedPrecondition);
  made.placement = {{1, 2}};
  SessionSimulationOptions options;
  options.slots = {1};
  result = simulate_sessions(made.instance, made.placement, {}, source, options);
  ASSERT_FALSE(result.ok());
}

// Given one source and policy twice; expects the same result bit for bit. Given a limit; expects no more requests than that.
TEST(SessionSimulation, IsDeterministicAndLimited) {
  Rng rng(6, "sessions");
  std::optional<Case> made;
  while (!made) made = random_case(rng);
  const auto requests = random_requests(rng, 2000, 2);
  for (const SessionPolicy& policy : all_policies()) {
    SessionSimulationOptions options;
    options.max_requests = 1000;
    options.warm_up_requests = 100;
    const CheckedRun first = run_checked(made->instance, made->placement, policy, requests, options);
    const CheckedRun second = run_checked(made->instance, made->placement, policy, requests, options);
    EXPECT_EQ(first.result.requests, 900);
    EXPECT_EQ(first.result.response.mean_s, second.result.response.mean_s);
    EXPECT_EQ(first.result.response.p99_s, second.result.response.p99_s);
    EXPECT_EQ(first.result.simulated_s, second.result.simulated_s);
  }
}

}  // namespace
}  // namespace windlass::sim
