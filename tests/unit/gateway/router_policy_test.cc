// The router follows the policy that a table gives a model, also when it changes under requests.
#include "tests/unit/gateway/router_fixture.h"

namespace windlass::gateway {
namespace {

using dispatch::PolicyKind;

dispatch::RoutingTable with(PolicyKind policy, dispatch::RoutingTable table) {
  table.models[0].dispatch.policy = policy;
  return table;
}

class OverriddenRouterTest : public RouterTest {
 protected:
  OverriddenRouterTest() : RouterTest({100, 60, 600, PolicyKind::kJsq}) {}
};

// Given a table that says nothing, one that says JSQ, and one whose policy only the simulator has; expects JFFC, JSQ, JFFC.
TEST_F(RouterTest, TheTableChoosesThePolicy) {
  use(0, table(1, {chain("a", 1, 4)}));
  EXPECT_EQ(router.policies().at("tiny"), PolicyKind::kJffc);
  use(1, with(PolicyKind::kJsq, table(2, {chain("a", 1, 4)})));
  EXPECT_EQ(router.policies().at("tiny"), PolicyKind::kJsq);
  auto none = table(3, {chain("a", 1, 4)});
  none.models[0].dispatch.policy.reset();
  use(2, none);
  EXPECT_EQ(router.policies().at("tiny"), PolicyKind::kJffc);
  use(3, dispatch::RoutingTable{{1, 4}, {}});
  EXPECT_TRUE(router.policies().empty());
}

// Given two models with a policy each; expects each to follow its own.
TEST_F(RouterTest, EachModelHasItsOwnPolicy) {
  auto both = with(PolicyKind::kJsq, table(1, {chain("a", 5, 2), chain("b", 1, 2)}));
  both.models.push_back(table(1, {chain("c", 5, 2), chain("d", 1, 2)}).models[0]);
  both.models[1].served_name = "other";
  use(0, both);
  (void)router.arrived(1, 1, "tiny", true);
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true)).at(0).chain, "b") << "the shortest queue";
  (void)router.arrived(1, 3, "other", true);
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 4, "other", true)).at(0).chain, "c") << "the fastest free slot";
}

// Given a policy for all models, and a table with another; expects the first.
TEST_F(OverriddenRouterTest, AnOverrideWins) {
  use(0, with(PolicyKind::kJffc, table(1, {chain("a", 5, 2), chain("b", 1, 2)})));
  EXPECT_EQ(router.policies().at("tiny"), PolicyKind::kJsq);
  (void)router.arrived(1, 1, "tiny", true);
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true)).at(0).chain, "b");
}

// Given requests in flight and requests that wait at chains under JSQ; when the table changes to JFFC, expects the first to
// stay where they are and the others to wait for any slot, in their old order; when it changes back, to wait at chains again.
TEST_F(RouterTest, WaitingRequestsArePlacedByTheNewPolicy) {
  use(0, with(PolicyKind::kJsq, table(1, {chain("a", 1, 1), chain("b", 5, 1)})));
  for (RequestId id = 1; id <= 5; ++id) (void)router.arrived(0, id, "tiny", true);  // a: 1, 3, 5; b: 2, 4
  EXPECT_EQ(router.queue_lengths().at("tiny"), 3);
  EXPECT_TRUE(use(0.01, with(PolicyKind::kJffc, table(2, {chain("a", 1, 1), chain("b", 5, 1)}))).empty());
  EXPECT_EQ(in_flight("a"), 1);
  EXPECT_EQ(in_flight("b"), 1);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 3);
  const auto third = all<Dispatch>(router.completed(0.02, 2, {}));
  ASSERT_EQ(third.size(), 1U);
  EXPECT_EQ(third[0].id, 3U) << "it waited at a";
  EXPECT_EQ(third[0].chain, "b");
  EXPECT_TRUE(use(0.03, with(PolicyKind::kJsq, table(3, {chain("a", 1, 1), chain("b", 5, 1)}))).empty());
  EXPECT_EQ(router.queue_lengths().at("tiny"), 2);  // 4 at a, 5 at b
  EXPECT_EQ(all<Dispatch>(router.completed(0.04, 3, {})).at(0).id, 5U);
  EXPECT_EQ(all<Dispatch>(router.completed(0.05, 1, {})).at(0).id, 4U);
  (void)router.completed(0.06, 4, {});
  (void)router.completed(0.06, 5, {});
  EXPECT_EQ(router.open_requests(), 0U);
  EXPECT_EQ(in_flight("a") + in_flight("b"), 0);
}

// Given a prompt of 300 tokens in flight under JFFC and another that waits, when the table changes to Aladdin's policy; expects
// the first to count at its worker, once, and no longer after its end.
TEST_F(RouterTest, RequestsInFlightCountForTheNewPolicy) {
  use(0, known(1, {chain("a", 1, 1)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 1200)).size(), 1U);
  EXPECT_TRUE(router.arrived(1, 2, "tiny", true, 1200).empty());
  EXPECT_TRUE(use(1.1, with(PolicyKind::kAladdin, known(2, {chain("a", 1, 4)}))).empty()) << "600 ms of prompts";
  EXPECT_EQ(router.queue_lengths().at("tiny"), 1);
  const auto second = router.client_gone(1.2, 1);
  EXPECT_EQ(all<Dispatch>(second).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(router.arrived(1.2, 3, "tiny", true, 600)).size(), 1U) << "450 ms of prompts";
  EXPECT_TRUE(router.arrived(1.2, 4, "tiny", true, 600).empty()) << "600 ms of prompts";
}

// Given a prompt whose first tokens have been sent, and one of an answer in one piece, when the table changes to Aladdin's
// policy; expects each to count as a prompt no longer than if the policy had placed it.
TEST_F(RouterTest, ANewPolicyKnowsHowFarRequestsAre) {
  use(0, known(1, {chain("a", 1, 2), chain("b", 1, 2)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 1200)).at(0).chain, "a");
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", false, 1200)).at(0).chain, "b");
  router.tokens_sent(1.1, 1, 30);
  use(1.11, with(PolicyKind::kAladdin, known(2, {chain("a", 1, 2), chain("b", 1, 2)})));
  EXPECT_EQ(all<Dispatch>(router.arrived(1.12, 3, "tiny", false, 1200)).at(0).chain, "a") << "its request has saved 1.5 s";
  EXPECT_TRUE(router.arrived(1.12, 4, "tiny", false, 1200).empty()) << "b still has a prompt";
  const auto fourth = all<Dispatch>(router.tick(1.31));
  ASSERT_EQ(fourth.size(), 1U) << "that prompt must have been processed at 1.3 s";
  EXPECT_EQ(fourth[0].chain, "b");
}

// Given a policy that changes to JFFC and back while a request ends and another begins; expects only the second to count.
TEST_F(RouterTest, APolicyThatComesBackCountsWhatIsThere) {
  use(0, with(PolicyKind::kAladdin, known(1, {chain("a", 1, 4)})));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 1200)).size(), 1U);
  use(1.1, known(2, {chain("a", 1, 4)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(1.1, 2, "tiny", true, 800)).size(), 1U) << "JFFC asks for a slot only";
  (void)router.client_gone(1.2, 1);
  use(1.2, with(PolicyKind::kAladdin, known(3, {chain("a", 1, 4)})));
  EXPECT_TRUE(router.arrived(1.2, 3, "tiny", true, 1200).empty()) << "the second one's prompt is not through";
  router.tokens_sent(1.3, 2, 30);
  const auto third = all<Dispatch>(router.tick(1.4));
  ASSERT_EQ(third.size(), 1U) << "nothing else counts";
  EXPECT_EQ(third[0].id, 3U);
}

// Given Aladdin's policy with an objective of its own; expects prompts to be packed by that, and by a new one when it changes.
TEST_F(RouterTest, ParametersComeFromTheTable) {
  auto short_ttft = with(PolicyKind::kAladdin, known(1, {chain("a", 1, 4)}));
  short_ttft.models[0].dispatch.placement.ttft_s = 0.25;
  use(0, short_ttft);
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 800)).size(), 1U);
  router.tokens_sent(1, 1, 30);
  EXPECT_TRUE(router.arrived(1, 2, "tiny", true, 1200).empty()) << "a prompt of 300 ms";
  const auto sent = all<Dispatch>(use(1.01, with(PolicyKind::kAladdin, known(2, {chain("a", 1, 4)}))));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].id, 2U);
}

// Given a plan for split phases; expects its prompts to be packed as prompts only, because nothing decodes at prefill workers.
TEST_F(RouterTest, PromptsArePackedByThePhaseOfTheirWorkers) {
  auto split =
      with(PolicyKind::kAladdin,
           known(1, {in_role(dispatch::Role::kPrefill, chain("p", 1, 8)), in_role(dispatch::Role::kDecode, chain("d", 1, 8))}));
  split.models[0].latencies[0].context_token_s = 1e-3;  // any decode context misses TPOT
  use(0, split);
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true)).at(0).chain, "p");
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true)).at(0).chain, "p");
}

// Given Aladdin's policy, a fuller chain whose answers exceed what was predicted and one on which an answer ended early;
// expects the next request there, and the move counted, also after the policy has changed.
TEST_F(RouterTest, RequestsAreRebalancedAndCounted) {
  const auto two = [](std::int64_t counter, PolicyKind policy) {
    return with(policy, known(counter, {chain("a", 1, 8), chain("b", 1, 8)}));
  };
  use(0, two(1, PolicyKind::kJsq));
  learn();
  std::map<std::string, std::vector<RequestId>> at;
  for (RequestId id = 1; id <= 5; ++id) at[all<Dispatch>(router.arrived(0, id, "tiny", true, 400)).at(0).chain].push_back(id);
  ASSERT_EQ(at.at("a").size(), 3U);
  use(0.1, two(2, PolicyKind::kAladdin));
  for (RequestId id = 1; id <= 5; ++id) router.tokens_sent(1, id, 40);
  for (const RequestId id : at["a"]) router.tokens_sent(1, id, 300);  // 256 were predicted
  (void)router.completed(1, at["b"].front(), {200, 100, 40});
  EXPECT_EQ(router.rebalanced().at("tiny"), 0);
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 6, "tiny", true, 400)).at(0).chain, "b");
  EXPECT_EQ(router.rebalanced().at("tiny"), 1);
  use(2, two(3, PolicyKind::kJffc));
  EXPECT_EQ(router.rebalanced().at("tiny"), 1);
}

}  // namespace
}  // namespace windlass::gateway
