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
  int in_flight(const std::string& id) {
    int total = 0;
    for (const auto& load : router.chain_loads()) total += load.chain == id ? load.in_flight : 0;
    return total;
  }

  Router router;
};

}  // namespace windlass::gateway
