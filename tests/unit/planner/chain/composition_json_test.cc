// Tests of a composition's JSON: the names that scripts rely on, and numbers that read back as the same doubles.
#include "planner/chain/composition_json.h"

#include <gtest/gtest.h>

namespace windlass::chain {
namespace {

Instance three_servers() {
  Instance instance;
  instance.blocks = 3;
  instance.block_gb = 1;
  instance.cache_gb = 0.1;
  instance.arrival_rate_per_s = 0.3;
  instance.max_load = 0.7;
  instance.servers = {
      {"a", 3, 0.1, 1.0 / 3, 1, std::nullopt}, {"b", 4, 0.1, 0.1, 1, std::nullopt}, {"c", 4, 0.1, 0.1, 1, std::nullopt}};
  return instance;
}

Composition composition() {
  Composition result;
  result.capacity = 2;
  result.placement = {{1, 2}, {2, 2}, {1, 0}};
  result.disjoint_chains = {{0, 1}};
  result.chains = {{{0, 1}, {2, 1}, 4, 0.1 + 2.0 / 3}};
  result.total_capacity = 4;
  result.total_service_rate_per_s = 4 / (0.1 + 2.0 / 3);
  result.stable = true;
  result.meets_max_load = true;
  result.mean_response_lower_s = 1.0 / 7;
  result.mean_response_upper_s = 2.0 / 7;
  result.considered = {{1, 3.5}, {2, 1.0 / 7}};
  return result;
}

// Given a composition with an unused server; expects exactly the agreed names, servers by name, blocks from 1, and unchanged
// doubles.
TEST(CompositionJson, HasTheAgreedNames) {
  const Instance instance = three_servers();
  const Composition expected = composition();
  const auto json = nlohmann::json::parse(composition_json(instance, expected).dump());
  EXPECT_EQ(json.at("capacity"), 2);
  EXPECT_EQ(json.at("placement"), nlohmann::json::parse(R"([{"server": "a", "firstBlock": 1, "blocks": 2},
                                                            {"server": "b", "firstBlock": 2, "blocks": 2}])"));
  EXPECT_EQ(json.at("unplacedServers"), nlohmann::json::parse(R"(["c"])"));
  EXPECT_EQ(json.at("disjointChains"), nlohmann::json::parse(R"([["a", "b"]])"));
  ASSERT_EQ(json.at("chains").size(), 1u);
  const auto& chain = json.at("chains")[0];
  EXPECT_EQ(chain.at("servers"), nlohmann::json::parse(R"(["a", "b"])"));
  EXPECT_EQ(chain.at("blocks"), nlohmann::json::parse("[2, 1]"));
  EXPECT_EQ(chain.at("capacity"), 4);
  EXPECT_EQ(chain.at("serviceTimeSeconds").get<double>(), expected.chains[0].service_time_s);
  EXPECT_EQ(chain.at("serviceRatePerSecond").get<double>(), expected.chains[0].service_rate_per_s());
  EXPECT_EQ(json.at("totalCapacity"), 4);
  EXPECT_EQ(json.at("totalServiceRatePerSecond").get<double>(), expected.total_service_rate_per_s);
  EXPECT_EQ(json.at("load").get<double>(), 0.3 / expected.total_service_rate_per_s);
  EXPECT_EQ(json.at("stable"), true);
  EXPECT_EQ(json.at("meetsMaxLoad"), true);
  EXPECT_EQ(json.at("bounds").at("meanResponseTimeLowerSeconds").get<double>(), 1.0 / 7);
  EXPECT_EQ(json.at("bounds").at("meanResponseTimeUpperSeconds").get<double>(), 2.0 / 7);
  EXPECT_EQ(json.at("considered")[1].at("objective").get<double>(), 1.0 / 7);
}

// Given an unstable composition; expects bounds to be null and not missing. Given no chain; expects a null load. Given no
// chosen c; expects a null capacity.
TEST(CompositionJson, UnstableHasNoBounds) {
  Composition unstable = composition();
  unstable.stable = false;
  unstable.mean_response_lower_s.reset();
  unstable.mean_response_upper_s.reset();
  EXPECT_TRUE(composition_json(three_servers(), unstable).at("bounds").is_null());
  unstable.chains.clear();
  unstable.capacity = 0;
  unstable.total_service_rate_per_s = 0;
  const auto json = composition_json(three_servers(), unstable);
  EXPECT_TRUE(json.at("load").is_null());
  EXPECT_TRUE(json.at("capacity").is_null());
  EXPECT_EQ(json.at("stable"), false);
}

}  // namespace
}  // namespace windlass::chain
