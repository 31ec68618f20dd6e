// Tools for the router's tests: tables of one model, the actions of one kind, and a router.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gateway/router.h"

namespace windlass::gateway {

inline dispatch::Chain chain(const std::string& id, double rate, int capacity, bool draining = false) {
  return {id, {id + ":80"}, dispatch::Role::kUnified, rate, capacity, draining};
}

inline dispatch::Chain in_role(dispatch::Role role, dispatch::Chain chain) {
  chain.role = role;
  return chain;
}

inline dispatch::RoutingTable table(std::int64_t counter, std::vector<dispatch::Chain> chains, int max_queued = 10,
                                    std::int64_t term = 1) {
  dispatch::ModelRoute route;
  route.served_name = "tiny";
  route.ttft_slo_s = 0.5;
  route.tpot_slo_s = 0.05;
  route.max_queued = max_queued;
  route.chains = std::move(chains);
  return {{term, counter}, {route}};
}

// With workers that process a prompt token in 1 ms: 500 tokens use up timeToFirstToken.
inline dispatch::RoutingTable known(std::int64_t counter, std::vector<dispatch::Chain> chains, double share = 1) {
  dispatch::RoutingTable next = table(counter, std::move(chains));
  next.models[0].latencies = {{.prefill_token_s = 1e-3, .context_token_s = 1e-6, .decode_s = 0.01, .kv_capacity_tokens = 4000}};
  for (dispatch::Chain& each : next.models[0].chains) {
    each.latency = 0;
    each.share = share;
  }
  return next;
}

template <class T>
std::vector<T> all(const Actions& actions) {
  std::vector<T> found;
  for (const Action& action : actions) {
    if (const T* one = std::get_if<T>(&action)) found.push_back(*one);
  }
  return found;
}

class RouterTest : public ::testing::Test {
 protected:
  explicit RouterTest(RouterOptions router_options = {100, 60, 600}) : router(router_options) {}

  Actions use(double now_s, dispatch::RoutingTable next) {
    auto outcome = router.table_changed(now_s, std::move(next));
    EXPECT_TRUE(outcome.accepted);
    return outcome.actions;
  }
  // Training data for policies that place by lengths: four bytes per token, answers of 50 tokens.
  void learn() {
    for (RequestId id = 9001; id <= 9040; ++id) {
      (void)router.arrived(0, id, "tiny", true, 4 * 300);
      router.tokens_sent(0, id, 50);
      (void)router.completed(0, id, {200, 300, 50});
    }
  }
  int in_flight(const std::string& id) {
    int total = 0;
    for (const auto& load : router.chain_loads()) total += load.chain == id ? load.in_flight : 0;
    return total;
  }

  Router router;
};

}  // namespace windlass::gateway
