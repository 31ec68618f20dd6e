// Tests of the routing table's JSON in both directions, and of every error by its path.
#include "planner/dispatch/routing_table.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/says.h"

namespace windlass::dispatch {
namespace {

using ::testing::HasSubstr;

RoutingTable example() {
  RoutingTable table;
  table.version = {3, 17};
  ModelRoute route;
  route.served_name = "chat";
  route.name_space = "default";
  route.service = "chat-service";
  route.ttft_slo_s = 0.5;
  route.tpot_slo_s = 0.05;
  route.max_queued = 100;
  route.max_context_tokens = 8192;
  route.expected_start_s = 42.5;
  route.chains = {Chain{"default/chat-h100-1-0", {"10.0.0.1:8000"}, Role::kUnified, 0.123456789012345678, 8, false, 0, 0.5},
                  Chain{"default/chat-p-0", {"10.0.0.2:8000", "10.0.0.3:8000"}, Role::kPrefill, 0.1, 0, true},
                  Chain{"default/chat-d-0", {"10.0.0.4:8000"}, Role::kDecode, 0.1, 4}};
  route.chains[1].decode_weights = {{2, 0.0375}};
  route.chains[1].token = "what its workers want";
  route.latencies = {{1.25e-4, 0.012, 3.5e-8, 2e-5, 0.0075, 123456, 16, 64}};
  route.dispatch.policy = PolicyKind::kAladdin;
  route.dispatch.placement = {.gamma = 0.25, .theta = 0.8, .ttft_s = 0.375, .tpot_s = 0.0625};
  ModelRoute second;
  second.dispatch = {.policy = PolicyKind::kHuawei, .huawei = {.theta = 1.5, .assumed_output_tokens = 211.5}};
  second.latencies = {{.prefill_request_s = 1e-3, .prefill_length_s = 2e-6, .context_length_s = 3e-6}};
  table.models = {route, second, ModelRoute{}};
  return table;
}

// Given a table with three models and their policies, chains of one and two hops, a draining chain and one with a weight;
// expects the same table back, bit for bit.
TEST(RoutingTable, SurvivesTheWire) { EXPECT_EQ(routing_table_from_json(to_json(example())).value(), example()); }

// Given a table without models; expects the same table back.
TEST(RoutingTable, EmptyTableSurvivesTheWire) {
  EXPECT_EQ(routing_table_from_json(to_json(RoutingTable{})).value(), RoutingTable{});
}

// Given one error each; expects its path, what was found and what is allowed.
TEST(RoutingTable, NamesEveryMistake) {
  const std::string good = to_json(example());
  auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    const auto at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
  };
  const std::pair<std::string, std::string> mistakes[] = {
      {"nonsense", "routing table: not valid JSON"},
      {"{}", "routing table: version: missing"},
      {with("\"capacity\":8", "\"capacity\":-1"), "models[0].chains[0].capacity: must be an integer from 0*(got -1)"},
      {with("\"unified\"", "\"both\""),
       "models[0].chains[0].role: must be \"unified\", \"prefill\" or \"decode\"*(got \"both\")"},
      {with("\"latency\":0", "\"latency\":1"), "models[0].chains[0].latency: must be below 1, the number of latencies (got 1)"},
      {with("\"chain\":2", "\"chain\":3"),
       "models[0].chains[1].decodeWeights[0].chain: must be the index of a decode chain*(got 3)"},
      {with("\"chain\":2", "\"chain\":0"),
       "models[0].chains[1].decodeWeights[0].chain: must be the index of a decode chain*(got 0)"},
      {with("\"weight\":0.0375", "\"weight\":-1"),
       "models[0].chains[1].decodeWeights[0].weight: must be a number of at least 0*(got -1.0)"},
      {with("\"weight\":0.0375", "\"weight\":\"Infinity\""),
       "models[0].chains[1].decodeWeights[0].weight: must be*(got \"Infinity\")"},
      {with("\"prefillS\":0.012", "\"prefillS\":-1"),
       "models[0].latencies[0].prefillS: must be a number of at least 0*(got -1.0)"},
      {with("\"aladdin\"", "\"random\""),
       "models[0].dispatch.policy: must be one of jffc, jsq, sed, power-of-two, aladdin, by-size, huawei, splitwise (got "
       "\"random\")"},
      {with("\"gamma\":0.25", "\"gamma\":1.25"), "models[0].dispatch.placement.gamma: must be a number from 0 to 1*(got 1.25)"},
      {with("\"theta\":0.8", "\"theta\":0.0"),
       "models[0].dispatch.placement.theta: must be a number above 0, at most 1*(got 0.0)"},
      {with("\"ttftS\":0.375", "\"ttftS\":-1"),
       "models[0].dispatch.placement.ttftS: must be a number of at least 0*(got -1.0)"},
      {with("\"theta\":1.5", "\"theta\":\"NaN\""),
       "models[1].dispatch.huawei.theta: must be a number of at least 0*(got \"NaN\")"},
      {with("\"assumedOutputTokens\":211.5", "\"assumedOutputTokens\":\"many\""),
       "models[1].dispatch.huawei.assumedOutputTokens: must be a number*(got \"many\")"},
      {with("\"dispatch\":{", "\"dispatch\":7,\"was\":{"), "models[0].dispatch: must be an object*(got 7)"},
      {with("[\"10.0.0.1:8000\"]", "[]"), "models[0].chains[0].hops: must name at least one worker*(got [])"},
      {with("[\"10.0.0.1:8000\"]", "[7]"), "models[0].chains[0].hops[0]: must be \"host:port\"*(got 7)"},
      {with("\"ttftSloS\":0.5", "\"ttftSloS\":-0.5"), "models[0].ttftSloS: must be a number of at least 0*(got -0.5)"},
      {with("\"ttftSloS\":0.5", "\"ttftSloS\":\"NaN\""), "models[0].ttftSloS: must be a number of at least 0*(got \"NaN\")"},
      {with("\"term\":3", "\"term\":\"3\""), "version.term: must be an integer*(got \"3\")"},
      {with("\"service\":", "\"servise\":"), "models[0].service: missing"},
      {with("\"expectedStartS\":42.5", "\"expectedStartS\":\"soon\""),
       "models[0].expectedStartS: must be a number*(got \"soon\")"}};
  for (const auto& [text, message] : mistakes) {
    const auto result = routing_table_from_json(text);
    ASSERT_FALSE(result.ok()) << message;
    EXPECT_THAT(result.error().message, Says(message));
  }
}

// Given a newer controller's table with unknown fields in the table, a model, a chain and the version, and an older one's
// without expectedStartS and decodeWeights; expects both to be read, with unknown fields ignored and missing ones 0 and empty.
TEST(RoutingTable, UnknownFieldsAreNoMistake) {
  auto json = nlohmann::json::parse(to_json(example()));
  json["weather"] = {1, 2};
  json["version"]["epoch"] = "x";
  json["models"][0]["weight"] = nullptr;
  json["models"][0]["chains"][1]["zone"] = "a";
  EXPECT_EQ(routing_table_from_json(json.dump()).value(), example());
  json["models"][0].erase("expectedStartS");
  json["models"][0]["chains"][1].erase("decodeWeights");
  auto older = example();
  older.models[0].chains[1].decode_weights.clear();
  older.models[0].expected_start_s = 0;
  EXPECT_EQ(routing_table_from_json(json.dump()).value(), older);
}

// Given a model whose policy is the default, one whose settings are empty and one with a setting that only a newer gateway
// knows; expects the first to write nothing, so that older gateways see what they know, the second to leave the policy open,
// and the third to be read without that setting.
TEST(RoutingTable, TheDefaultPolicyIsNotWritten) {
  RoutingTable table;
  table.models = {ModelRoute{}};
  auto json = nlohmann::json::parse(to_json(table));
  EXPECT_FALSE(json["models"][0].contains("dispatch"));
  EXPECT_EQ(routing_table_from_json(json.dump()).value().models[0].dispatch.policy, PolicyKind::kJffc);
  json["models"][0]["dispatch"] = nlohmann::json::object();
  EXPECT_EQ(routing_table_from_json(json.dump()).value().models[0].dispatch, PolicySettings{});
  json["models"][0]["dispatch"] = {{"policy", "by-size"}, {"mood", "good"}};
  EXPECT_EQ(routing_table_from_json(json.dump()).value().models[0].dispatch, PolicySettings{.policy = PolicyKind::kBySize});
}

// Given settings of each policy; expects gateways to keep those of their policies, and to use JFFC with its usual parameters
// for others and for none; but fewest pending tokens with a mixed pool are the policy `splitwise`, which is not named.
TEST(PolicySettings, AtAGateway) {
  for (const PolicyKind kind : kAllPolicies) {
    const PolicySettings settings{.policy = kind, .placement = {.theta = 0.5}, .huawei = {.theta = 1}};
    const bool has = std::find(kGatewayPolicies.begin(), kGatewayPolicies.end(), kind) != kGatewayPolicies.end();
    EXPECT_EQ(at_gateway(settings), has ? settings : PolicySettings{.policy = PolicyKind::kJffc}) << to_string(kind);
  }
  EXPECT_EQ(at_gateway({}), PolicySettings{.policy = PolicyKind::kJffc});
  const PolicySettings mixed_pool{.policy = {}, .mixed_pool_threshold_tokens = 100};
  EXPECT_EQ(at_gateway(mixed_pool), mixed_pool);
  EXPECT_EQ(gateway_policy(mixed_pool), PolicyKind::kSplitwise);
  EXPECT_EQ(gateway_policy({}), PolicyKind::kJffc);
}

// Given versions; expects their text and back, and a later term to be newer than any counter of an earlier one. Given bad
// texts; expects errors.
TEST(TableVersion, TextAndOrder) {
  EXPECT_EQ(to_string(TableVersion{3, 17}), "3.17");
  EXPECT_EQ(table_version_from_string("3.17").value(), (TableVersion{3, 17}));
  EXPECT_LT((TableVersion{3, 999}), (TableVersion{4, 0}));
  for (const char* bad : {"", "3", "3.", ".3", "3.1.2", "a.b", "-1.2", "3.-1", "3.1 ", "99999999999999999999.1"}) {
    const auto result = table_version_from_string(bad);
    ASSERT_FALSE(result.ok()) << bad;
    EXPECT_THAT(result.error().message, HasSubstr("must be TERM.COUNTER"));
  }
}

}  // namespace
}  // namespace windlass::dispatch
