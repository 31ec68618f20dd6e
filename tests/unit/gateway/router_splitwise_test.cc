// The router under Splitwise's policy: decode workers that compute prompts, and prefill workers that make tokens.
#include "tests/unit/gateway/router_fixture.h"

namespace windlass::gateway {
namespace {

using dispatch::Role;

class SplitwiseTest : public RouterTest {
 protected:
  // Two prefill and two decode chains with this many slots each. Prompts are 512 tokens long for all that is known.
  dispatch::RoutingTable pools(std::int64_t counter, int slots, std::int64_t threshold_tokens = 0) {
    std::vector<dispatch::Chain> chains;
    for (const char* id : {"d0", "d1"}) chains.push_back(in_role(Role::kDecode, chain(id, 1, slots)));
    for (const char* id : {"p0", "p1"}) chains.push_back(in_role(Role::kPrefill, chain(id, 1, slots)));
    dispatch::RoutingTable next = table(counter, std::move(chains), 100);
    next.models[0].dispatch = {.policy = dispatch::PolicyKind::kSplitwise, .mixed_pool_threshold_tokens = threshold_tokens};
    return next;
  }
  Dispatch arrive(RequestId id) {
    const auto sent = all<Dispatch>(router.arrived(0, id, "tiny", true));
    EXPECT_EQ(sent.size(), 1U) << id;
    return sent.empty() ? Dispatch{} : sent.front();
  }
  int mixed() { return router.mixed_pools().at("tiny"); }
};

// Given a burst of prompts; expects the first ones at prefill chains, the next whole at decode chains, which leave the mixed
// pool with the first token, and the record of each to say whether the mixed pool served it.
TEST_F(SplitwiseTest, ABurstOfPromptsGoesToDecodeChains) {
  use(0, pools(1, 4));
  EXPECT_EQ(router.policies().at("tiny"), dispatch::PolicyKind::kSplitwise);
  for (const RequestId id : {1, 2}) {
    const Dispatch sent = arrive(id);
    EXPECT_EQ(sent.chain, id == 1 ? "p0" : "p1");
    EXPECT_EQ(sent.step, Step::kPrefill);
  }
  EXPECT_EQ(mixed(), 0);
  const Dispatch third = arrive(3);
  EXPECT_EQ(third.chain, "d0");
  EXPECT_EQ(third.step, Step::kWhole);
  EXPECT_FALSE(third.mixed_pool) << "decode workers serve whole requests anyway";
  EXPECT_EQ(mixed(), 1);
  router.tokens_sent(0.1, 3, 1);
  EXPECT_EQ(mixed(), 0);
  const auto second = all<Dispatch>(router.prefilled(0.1, 1));
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].step, Step::kDecode);
  EXPECT_EQ(second[0].prefill_address, "p0:80");
  EXPECT_FALSE(second[0].mixed_pool);
  EXPECT_TRUE(all<Finished>(router.completed(1, 3, {200, 100, 5})).at(0).record.mixed_pool);
  EXPECT_FALSE(all<Finished>(router.completed(1, 1, {200, 100, 5})).at(0).record.mixed_pool);
}

// Given decode chains without a free slot; expects whole requests and second steps at prefill chains, marked for the worker,
// until decode chains have slots again.
TEST_F(SplitwiseTest, PrefillChainsMakeTokens) {
  use(0, pools(1, 1, 100'000));
  EXPECT_EQ(arrive(1).chain, "p0");
  EXPECT_EQ(all<Dispatch>(router.prefilled(0, 1)).at(0).chain, "d0");
  EXPECT_TRUE(router.prefill_ended(0, 1).empty());
  const Dispatch other = arrive(2);
  EXPECT_EQ(all<Dispatch>(router.prefilled(0, 2)).at(0).chain, "d1");
  EXPECT_TRUE(router.prefill_ended(0, 2).empty());
  const Dispatch whole = arrive(3);
  EXPECT_EQ(whole.step, Step::kWhole);
  EXPECT_TRUE(whole.mixed_pool);
  EXPECT_EQ(whole.chain.front(), 'p');
  EXPECT_EQ(mixed(), 1);
  EXPECT_TRUE(all<Finished>(router.completed(1, 3, {200, 100, 5})).at(0).record.mixed_pool);
  EXPECT_EQ(mixed(), 0);
  (void)router.completed(1, 1, {200, 100, 5});
  EXPECT_EQ(arrive(4).step, Step::kPrefill);
}

// Given workers that refuse a phase of the other role; expects the record not to count it, whether the request then goes to its
// own role or nowhere.
TEST_F(SplitwiseTest, ARefusedPhaseDoesNotCount) {
  use(0, pools(1, 4));
  for (const RequestId id : {1, 2}) EXPECT_EQ(arrive(id).step, Step::kPrefill);
  EXPECT_EQ(arrive(3).chain, "d0");
  EXPECT_TRUE(router.prefilled(0, 1).size() == 1 && router.prefilled(0, 2).size() == 1);
  const auto first = all<Dispatch>(router.refused(0, 3, Refusal::kFull));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].step, Step::kPrefill);
  EXPECT_EQ(all<Dispatch>(router.prefilled(0, 3)).size(), 1U);
  EXPECT_FALSE(all<Finished>(router.completed(1, 3, {200, 100, 5})).at(0).record.mixed_pool);
  dispatch::RoutingTable only_prefill = pools(2, 4);
  for (const std::size_t d : {0, 1}) only_prefill.models[0].chains[d].draining = true;
  EXPECT_TRUE(use(1, only_prefill).empty());
  EXPECT_TRUE(arrive(4).mixed_pool);
  const auto other = all<Dispatch>(router.refused(1, 4, Refusal::kRole));
  ASSERT_EQ(other.size(), 1U);
  EXPECT_TRUE(router.refused(1, 4, Refusal::kRole).empty());
  EXPECT_FALSE(all<Finished>(router.client_gone(2, 4)).at(0).record.mixed_pool);
}

// Given a prefill worker of an earlier version, which refuses whole requests for its role while decode chains are full; expects
// it to get prompts without a pause, and no other phase for a minute.
TEST_F(SplitwiseTest, AnOldWorkerKeepsItsOwnRole) {
  dispatch::RoutingTable one = pools(1, 4, 100'000);
  one.models[0].chains.erase(one.models[0].chains.begin() + 3);  // p1
  for (const std::size_t d : {0, 1}) one.models[0].chains[d].capacity = 1;
  use(0, one);
  for (const RequestId id : {1, 2}) {
    EXPECT_EQ(arrive(id).step, Step::kPrefill);
    EXPECT_EQ(all<Dispatch>(router.prefilled(0, id)).at(0).chain.front(), 'd');
    EXPECT_TRUE(router.prefill_ended(0, id).empty());
  }
  const Dispatch whole = arrive(3);
  EXPECT_EQ(whole.chain, "p0");
  EXPECT_TRUE(whole.mixed_pool);
  const auto again = all<Dispatch>(router.refused(1, 3, Refusal::kRole));
  ASSERT_EQ(again.size(), 1U) << "its own role goes on at once";
  EXPECT_EQ(again[0].chain, "p0");
  EXPECT_EQ(again[0].step, Step::kPrefill);
  EXPECT_TRUE(all<Dispatch>(router.prefilled(2, 3)).empty()) << "the second step is not the prefill worker's";
  EXPECT_TRUE(all<Dispatch>(router.tick(60.9)).empty());
  EXPECT_EQ(router.next_deadline_s(), 61);
  const auto after_a_minute = all<Dispatch>(router.tick(61));
  ASSERT_EQ(after_a_minute.size(), 1U);
  EXPECT_EQ(after_a_minute[0].chain, "p0");
  EXPECT_TRUE(after_a_minute[0].mixed_pool);
  EXPECT_TRUE(all<Dispatch>(router.refused(61, 3, Refusal::kRole)).empty());
  (void)router.contact_changed(61.1, "p0:80", Contact::kSilent);
  EXPECT_EQ(all<Dispatch>(router.contact_changed(61.2, "p0:80", Contact::kAnswers)).size(), 1U) << "perhaps a new version";
}

// Given the same worker while no decode chain takes requests; expects requests to wait for one, and to go to another prefill
// chain that serves them whole.
TEST_F(SplitwiseTest, AnOldWorkerBeginsNothingThatNobodyFinishes) {
  dispatch::RoutingTable one = pools(1, 4, 100'000);
  for (const std::size_t d : {0, 1}) one.models[0].chains[d].draining = true;
  use(0, one);
  const Dispatch first = arrive(1);
  EXPECT_TRUE(first.mixed_pool);
  const auto other = all<Dispatch>(router.refused(0, 1, Refusal::kRole));
  ASSERT_EQ(other.size(), 1U);
  EXPECT_NE(other[0].chain, first.chain);
  EXPECT_TRUE(other[0].mixed_pool);
  EXPECT_TRUE(all<Dispatch>(router.refused(0, 1, Refusal::kRole)).empty());
  EXPECT_EQ(router.next_deadline_s(), 60);
  one.version = {1, 2};
  one.models[0].chains[0].draining = false;
  const auto began = all<Dispatch>(use(1, one));
  ASSERT_EQ(began.size(), 1U);
  EXPECT_EQ(began[0].step, Step::kPrefill);
}

// Given a worker that refuses its own role, as after a role change that the table does not have yet; expects a pause.
TEST_F(SplitwiseTest, AWorkerThatRefusesItsOwnRoleRests) {
  dispatch::RoutingTable one = pools(1, 4, 100'000);
  one.models[0].chains.erase(one.models[0].chains.begin() + 3);  // p1
  use(0, one);
  EXPECT_EQ(arrive(1).chain, "p0");
  const auto elsewhere = all<Dispatch>(router.refused(0, 1, Refusal::kRole));
  ASSERT_EQ(elsewhere.size(), 1U);
  EXPECT_EQ(elsewhere[0].chain.front(), 'd');
  EXPECT_EQ(arrive(2).chain.front(), 'd');
}

// Given requests in both steps when the table brings this policy, and another one later; expects them to go on where they are,
// and nothing in flight at the end.
TEST_F(SplitwiseTest, RequestsGoOnUnderANewPolicy) {
  dispatch::RoutingTable jffc = pools(1, 4);
  jffc.models[0].dispatch = {.policy = dispatch::PolicyKind::kJffc};
  use(0, jffc);
  for (const RequestId id : {1, 2, 3}) (void)arrive(id);
  EXPECT_EQ(all<Dispatch>(router.prefilled(0, 1)).size(), 1U);
  EXPECT_EQ(all<Dispatch>(router.prefilled(0, 2)).size(), 1U);
  EXPECT_TRUE(router.prefill_ended(0, 2).empty());
  EXPECT_TRUE(use(0, pools(2, 4)).empty());
  EXPECT_EQ(mixed(), 0);
  EXPECT_EQ(all<Dispatch>(router.prefilled(0, 3)).size(), 1U);
  jffc.version = {1, 3};
  EXPECT_TRUE(use(0, jffc).empty());
  EXPECT_TRUE(router.mixed_pools().empty());
  for (const RequestId id : {1, 2, 3}) EXPECT_EQ(all<Finished>(router.completed(1, id, {200, 100, 5})).size(), 1U);
  for (const char* id : {"p0", "p1", "d0", "d1"}) EXPECT_EQ(in_flight(id), 0);
}

// Given a chain that changes its role while requests wait for its slot; expects them to be sent as the new role does it.
TEST_F(SplitwiseTest, AWaitingRequestFollowsTheRole) {
  dispatch::RoutingTable one = pools(1, 1, 100'000);
  one.models[0].chains.erase(one.models[0].chains.begin() + 3);  // p1
  use(0, one);
  EXPECT_EQ(arrive(1).chain, "p0");
  EXPECT_TRUE(all<Dispatch>(router.arrived(0, 2, "tiny", true)).empty());
  one.version = {1, 2};
  one.models[0].chains[2].role = Role::kDecode;
  EXPECT_TRUE(use(0, one).empty());
  EXPECT_EQ(all<Dispatch>(router.prefilled(0, 1)).size(), 1U);
  const auto sent = all<Dispatch>(router.prefill_ended(0, 1));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].id, 2U);
  EXPECT_EQ(sent[0].step, Step::kWhole);
  EXPECT_FALSE(sent[0].mixed_pool);
}

}  // namespace
}  // namespace windlass::gateway
