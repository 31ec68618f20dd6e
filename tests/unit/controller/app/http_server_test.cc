// The controller's HTTP server on loopback, and what a standby learns from gateways that it turns away.
#include "controller/app/http_server.h"

#include <gtest/gtest.h>

#include "controller/kube/curl_transport.h"
#include "metrics/host/clock.h"
#include "tests/free_port.h"
#include "tests/loopback.h"

namespace windlass::controller {
namespace {

// Given --listen with an IPv6 address, expects an answer there and accepts a gateway's IPv6 address; without brackets the
// address is refused.
TEST(ControllerHttp, ListensOnIpv6) {
  if (!has_ipv6_loopback()) GTEST_SKIP() << "this machine has no ::1";
  RoutingPublisher publisher;
  metrics::Registry registry;
  HttpServer server(publisher, registry, {}, [] {});
  const std::string address = "[::1]:" + std::to_string(free_port_of_both_families());
  const auto opened = server.open(address);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  kube::CurlTransport client{kube::CurlOptions{}};
  const auto answer = client.send({"GET", "http://" + address + "/metrics", {}, ""});
  ASSERT_TRUE(answer.ok()) << answer.error().message;
  EXPECT_EQ(answer->status, 200);
  (void)client.send({"GET", "http://" + address + "/v1/routing-table?gateway=a&admin=[fd00::5]:8081&wait=0s", {}, ""});
  const auto gateways = publisher.gateways(now().monotonic_s);
  ASSERT_EQ(gateways.size(), 1u);
  EXPECT_EQ(gateways[0].admin_address, "[fd00::5]:8081");
  EXPECT_FALSE(HttpServer(publisher, registry, {}, [] {}).open("::1:9401").ok());
}

// Given two gateways with an earlier leader's table that poll a standby, which turns them away and then leads; expects that the
// first table for one of them has only its part of the slots, because the other is known to hold the rest.
TEST(ControllerHttp, AStandbyKnowsTheGatewaysBeforeItLeads) {
  RoutingPublisher publisher;
  metrics::Registry registry;
  HttpServer server(publisher, registry, {}, [] {});
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  ASSERT_TRUE(server.open(address).ok());
  kube::CurlTransport client{kube::CurlOptions{}};
  for (const char* id : {"a", "b"}) {
    const auto answer = client.send(
        {"GET", "http://" + address + "/v1/routing-table?gateway=" + id + "&admin=127.0.0.1:1&after=3.7&wait=0s", {}, ""});
    ASSERT_TRUE(answer.ok()) << answer.error().message;
    EXPECT_EQ(answer->status, 503);
  }
  dispatch::ModelRoute route;
  route.served_name = "chat";
  route.chains = {{"ns/w", {"127.0.0.1:2"}, dispatch::Role::kUnified, 1, 8, false}};
  const double now_s = now().monotonic_s;
  (void)publisher.publish({route}, 4, now_s);
  const auto table = publisher.ask("a", "127.0.0.1:1", {3, 7}, now_s);
  ASSERT_TRUE(table.has_value());
  EXPECT_EQ(table->models.at(0).chains.at(0).capacity, 4);
}

// Given an endless number of gateway names, as a client with the token may send them; expects that the controller registers up
// to its limit, tells the others so, still answers registered ones, and refuses names that no pod can have.
TEST(ControllerHttp, KeepsAsManyGatewaysAsItAllows) {
  RoutingPublisher publisher;
  (void)publisher.publish({}, 1, now().monotonic_s);
  metrics::Registry registry;
  HttpServer server(publisher, registry, {}, [] {});
  const std::string address = "127.0.0.1:" + std::to_string(free_port());
  ASSERT_TRUE(server.open(address).ok());
  kube::CurlTransport client{kube::CurlOptions{}};
  const auto ask = [&](const std::string& id, const std::string& admin) {
    const auto answer =
        client.send({"GET", "http://" + address + "/v1/routing-table?gateway=" + id + "&admin=" + admin + "&wait=0s", {}, ""});
    return answer.ok() ? std::to_string(answer->status) + " " + answer->body : answer.error().message;
  };
  const double now_s = now().monotonic_s;
  for (std::size_t i = 0; i < RoutingPublisher::kMaxGateways; ++i) {
    (void)publisher.ask("g" + std::to_string(i), "127.0.0.1:1", {}, now_s);
  }
  (void)publisher.publish({}, 1, now_s);
  EXPECT_EQ(ask("one-more", "127.0.0.1:1"),
            "503 {\"error\":\"gateway one-more: must wait until one of 256 other gateways stops asking; at most 256 may ask at "
            "a time\"}\n");
  EXPECT_EQ(ask("g0", "127.0.0.1:1").substr(0, 4), "200 ");
  EXPECT_EQ(publisher.gateways(now().monotonic_s).size(), RoutingPublisher::kMaxGateways);
  EXPECT_EQ(ask(std::string(254, 'a'), "127.0.0.1:1"),
            "400 {\"error\":\"query gateway: must have at most 253 bytes (got 254)\"}\n");
  EXPECT_EQ(ask("a", "nowhere").substr(0, 30), "400 {\"error\":\"query admin: mus");
}

}  // namespace
}  // namespace windlass::controller
