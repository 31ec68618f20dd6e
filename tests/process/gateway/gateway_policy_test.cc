// The real gateway follows the policy in the routing table, unless a flag says otherwise.
#include <gtest/gtest.h>

#include "tests/process/gateway/harness.h"

namespace windlass::gateway::testing {
namespace {

using dispatch::PolicyKind;

const std::string kQuestion = post("/v1/chat/completions", chat("tiny", "hi", false));

dispatch::RoutingTable with(PolicyKind policy, dispatch::RoutingTable table) {
  table.models.front().dispatch.policy = policy;
  return table;
}

// A worker that answers once its gate is open.
FakeServer::Handler behind(Gate& gate) {
  return [&gate](Connection& connection, const Message&) {
    if (gate.wait()) connection.write(json_response(200, completion("x")));
  };
}

double shows(const GatewayProcess& gateway, const char* policy) {
  return gateway.metric("windlass_gateway_dispatch_policy", {{"model", "tiny"}, {"policy", policy}});
}

// Given two workers, each with a request, and one that waits, when the table changes from JFFC to JSQ; expects the first two to
// be answered where they are and the third to be placed by JSQ: it waits for its worker although the other is free. Expects the
// metric to name the policy in use, and JFFC again when the table no longer says one.
TEST(GatewayPolicy, FollowsTheTable) {
  Gate fast_gate, slow_gate;
  FakeServer fast(behind(fast_gate)), slow(behind(slow_gate));
  const std::vector<dispatch::Chain> chains = {chain("fast", fast.address(), 9, 1), chain("slow", slow.address(), 1, 1)};
  FakeController controller;
  controller.set_table(table(1, chains));
  GatewayProcess gateway({controller.url()});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  EXPECT_EQ(shows(gateway, "jffc"), 1);
  std::vector<std::optional<Connection>> clients;
  for (const char* chain : {"fast", "slow", ""}) {
    clients.push_back(Connection::connect(gateway.port()));
    ASSERT_TRUE(clients.back() && clients.back()->write(kQuestion));
    ASSERT_TRUE(wait_until([&] {
      return (*chain == 0 ? gateway.metric("windlass_gateway_queue_length")
                          : gateway.metric("windlass_gateway_requests_in_flight", {{"chain", chain}})) == 1;
    }));
  }

  controller.set_table(with(PolicyKind::kJsq, table(2, chains)));
  ASSERT_TRUE(gateway.obeys({1, 2}));
  EXPECT_EQ(shows(gateway, "jsq"), 1);
  EXPECT_EQ(shows(gateway, "jffc"), 0);
  slow_gate.open();
  EXPECT_EQ(read_message(*clients[1])->status(), 200);
  ASSERT_TRUE(wait_until([&] { return gateway.metric("windlass_gateway_requests_in_flight", {{"chain", "slow"}}) == 0; }));
  EXPECT_EQ(gateway.metric("windlass_gateway_queue_length"), 1) << "of two equal queues it joined the first";
  fast_gate.open();
  EXPECT_EQ(read_message(*clients[0])->header("x-windlass-worker"), id_of("fast"));
  const auto third = read_message(*clients[2]);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->status(), 200);
  EXPECT_EQ(third->header("x-windlass-worker"), id_of("fast"));
  EXPECT_EQ(gateway.metric("windlass_gateway_requests_finished_total"), 3);
  EXPECT_EQ(gateway.metric("windlass_gateway_upstream_errors_total"), 0);

  controller.set_table(table(3, chains));
  ASSERT_TRUE(gateway.obeys({1, 3}));
  EXPECT_EQ(shows(gateway, "jffc"), 1);
  EXPECT_EQ(shows(gateway, "jsq"), 0);
  EXPECT_EQ(gateway.log().find("--policy"), std::string::npos);
}

// Given --policy and tables that say another one; expects the flag's, and one line about it in the log.
TEST(GatewayPolicy, AFlagWins) {
  FakeServer worker([](Connection& connection, const Message&) { connection.write(json_response(200, completion("x"))); });
  FakeController controller;
  controller.set_table(with(PolicyKind::kAladdin, table(1, {chain("w", worker.address())})));
  GatewayProcess gateway({controller.url()}, {"--policy", "sed"});
  ASSERT_TRUE(gateway.obeys({1, 1}));
  controller.set_table(with(PolicyKind::kHuawei, table(2, {chain("w", worker.address())})));
  ASSERT_TRUE(gateway.obeys({1, 2}));
  EXPECT_EQ(ask(gateway.port(), kQuestion)->status(), 200);
  EXPECT_EQ(shows(gateway, "sed"), 1);
  EXPECT_EQ(gateway.metric("windlass_gateway_dispatch_policy"), 1);
  const std::string log = gateway.log();
  const auto at = log.find("--policy sed: used for all models");
  ASSERT_NE(at, std::string::npos) << log;
  EXPECT_EQ(log.find("--policy", at + 1), std::string::npos) << log;
}

}  // namespace
}  // namespace windlass::gateway::testing
