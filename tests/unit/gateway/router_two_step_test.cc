// The router with prefill and decode chains, one rule at a time.
#include "gateway/load_report.h"
#include "tests/unit/gateway/router_fixture.h"

namespace windlass::gateway {
namespace {

using dispatch::Role;

dispatch::Chain prefill(const std::string& id, double rate, int capacity, bool draining = false) {
  return in_role(Role::kPrefill, chain(id, rate, capacity, draining));
}

dispatch::Chain decode(const std::string& id, double rate, int capacity, bool draining = false) {
  return in_role(Role::kDecode, chain(id, rate, capacity, draining));
}

class TwoStepTest : public RouterTest {
 protected:
  using RouterTest::RouterTest;

  // A request that has passed its first step and, if a slot is free, is at its second one.
  Actions begin(double now_s, RequestId id, const std::string& at) {
    const auto first = all<Dispatch>(router.arrived(now_s, id, "tiny", true));
    EXPECT_EQ(first.size(), 1U);
    EXPECT_EQ(first.at(0).chain, at);
    EXPECT_EQ(first.at(0).step, Step::kPrefill);
    return router.prefilled(now_s, id);
  }
};

class JsqTwoStepTest : public TwoStepTest {
 protected:
  JsqTwoStepTest() : TwoStepTest({100, 60, 600, dispatch::PolicyKind::kJsq}) {}
};

class AladdinTwoStepTest : public TwoStepTest {
 protected:
  AladdinTwoStepTest() : TwoStepTest({100, 60, 600, dispatch::PolicyKind::kAladdin}) {}
};

// Given two prefill and two decode chains; expects each step at the fastest free chain of its role, the second with the address
// of the first, and both slots free when the request ends.
TEST_F(TwoStepTest, FastestFreeChainOfEachRole) {
  use(0, table(1, {decode("d", 9, 2), decode("e", 3, 2), prefill("p", 1, 2), prefill("q", 5, 1)}));
  const auto second = all<Dispatch>(begin(1, 1, "q"));
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].chain, "d");
  EXPECT_EQ(second[0].address, "d:80");
  EXPECT_EQ(second[0].step, Step::kDecode);
  EXPECT_EQ(second[0].prefill_address, "q:80");
  EXPECT_EQ(in_flight("q"), 1);
  EXPECT_EQ(in_flight("d"), 1);
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true)).at(0).chain, "p");
  const auto done = all<Finished>(router.completed(2, 1, {}));
  ASSERT_EQ(done.size(), 1U);
  EXPECT_EQ(done[0].record.chain, "d");
  EXPECT_EQ(done[0].record.dispatched_s, 1);
  EXPECT_EQ(in_flight("q") + in_flight("d"), 0);
}

// Given two prefill chains with weights for decode chains; expects the second steps of each to follow its own weights, in
// turns, and not to prefer the fastest; a chain without weights uses the fastest.
TEST_F(TwoStepTest, SecondStepsFollowTheWeightsOfTheFirst) {
  auto p = prefill("p", 9, 4), q = prefill("q", 5, 1);
  p.decode_weights = {{0, 3}, {1, 1}};
  q.decode_weights = {{1, 0.5}};
  use(0, table(1, {decode("d", 1, 9), decode("e", 1, 9), decode("fast", 9, 9), p, q, prefill("r", 1, 1)}));
  std::string went;
  for (RequestId id = 1; id <= 4; ++id) went += all<Dispatch>(begin(0, id, "p")).at(0).chain;
  EXPECT_EQ(went, "dded");
  EXPECT_EQ(all<Dispatch>(begin(0, 5, "q")).at(0).chain, "e");
  EXPECT_EQ(all<Dispatch>(begin(0, 6, "r")).at(0).chain, "fast");
}

// Given prefill chains that are equally fast, with weights for one or two decode chains; while they are equally full, expects
// turns by the sums of their weights, and no turn for a chain without weights. Otherwise expects the emptiest to begin, and a
// faster one to go before all.
TEST_F(TwoStepTest, EqualPrefillChainsTakeTurns) {
  auto p = prefill("p", 1, 8), q = prefill("q", 1, 8);
  p.decode_weights = {{0, 0.25}};
  q.decode_weights = {{0, 0.5}, {1, 0.25}};
  use(0, table(1, {decode("d", 1, 99), decode("e", 1, 99), prefill("none", 1, 8), p, q}));
  std::string began;
  for (RequestId id = 1; id <= 8; ++id) {
    began += all<Dispatch>(router.arrived(0, id, "tiny", true)).at(0).chain;
    EXPECT_EQ(all<Dispatch>(router.prefilled(0, id)).size(), 1U);
    EXPECT_TRUE(router.prefill_ended(0, id).empty());
  }
  EXPECT_EQ(std::count(began.begin(), began.end(), 'p'), 2) << began;
  EXPECT_EQ(std::count(began.begin(), began.end(), 'q'), 6) << began;
  const auto began_at = [&](RequestId id) { return all<Dispatch>(router.arrived(0, id, "tiny", true)).at(0).chain; };
  const std::string first = began_at(11);
  EXPECT_EQ(began_at(12), first == "p" ? "q" : "p") << "the other one is as empty as the one without weights";
  EXPECT_EQ(began_at(13), "none") << "the emptiest";
  use(1, table(2, {decode("d", 1, 99), decode("e", 1, 99), p, q, prefill("fast", 2, 8)}));
  EXPECT_EQ(began_at(14), "fast");
}

// Given two equal prefill chains, and the decode chain of the first full; expects requests to begin at the other one, and in
// turns again when all of their decode chains are full.
TEST_F(TwoStepTest, EqualsWithAFreeDecodeChainGoFirst) {
  auto p = prefill("p", 1, 8), q = prefill("q", 1, 8);
  p.decode_weights = {{0, 0.5}};
  q.decode_weights = {{1, 0.5}};
  use(0, table(1, {decode("d", 1, 1), decode("e", 1, 3), decode("f", 1, 9), p, q}));
  std::string began;
  for (RequestId id = 1; id <= 6; ++id) {
    began += all<Dispatch>(router.arrived(0, id, "tiny", true)).at(0).chain;
    EXPECT_EQ(all<Dispatch>(router.prefilled(0, id)).size(), 1U);
    EXPECT_TRUE(router.prefill_ended(0, id).empty());
  }
  EXPECT_EQ(began.substr(0, 4), "pqqq");
  EXPECT_NE(began[4], began[5]);
  EXPECT_EQ(in_flight("f"), 2);
}

// Given weights whose chains are full, refused us or left the table; expects the others with weights to take the requests, then
// the fastest, and no request to wait while a slot is free. When the slots are free again, expects the old shares, without
// catching up.
TEST_F(TwoStepTest, AFullChainsShareGoesToTheOthers) {
  auto p = prefill("p", 1, 30);
  p.decode_weights = {{0, 1}, {1, 1}};
  use(0, table(1, {decode("d", 1, 1), decode("e", 1, 2), decode("fast", 9, 1), p}));
  std::string went;
  for (RequestId id = 1; id <= 4; ++id) went += all<Dispatch>(begin(0, id, "p")).at(0).chain + " ";
  EXPECT_EQ(went, "d e e fast ");
  EXPECT_TRUE(begin(0, 5, "p").empty());
  EXPECT_EQ(all<Dispatch>(router.completed(0, 4, {})).at(0).chain, "fast");
  EXPECT_TRUE(router.completed(0, 5, {}).size() == 1U);
  EXPECT_TRUE(router.completed(0, 2, {}).size() == 1U && router.completed(0, 3, {}).size() == 1U);
  EXPECT_EQ(all<Dispatch>(begin(0, 6, "p")).at(0).chain, "e") << "d is full";
  use(1, table(2, {decode("d", 1, 9), decode("e", 1, 9, true), decode("fast", 9, 1), p}));
  EXPECT_EQ(all<Dispatch>(begin(1, 7, "p")).at(0).chain, "d") << "e drains";
  use(2, table(3, {decode("d", 1, 9), decode("e", 1, 9), decode("fast", 9, 1), p}));
  went.clear();
  for (RequestId id = 8; id <= 11; ++id) went += all<Dispatch>(begin(2, id, "p")).at(0).chain;
  EXPECT_EQ(std::count(went.begin(), went.end(), 'd'), 2) << went;
  EXPECT_EQ(std::count(went.begin(), went.end(), 'e'), 2) << went;
  const auto again = all<Dispatch>(router.refused(2, 11, Refusal::kFull));
  ASSERT_EQ(again.size(), 1U);
  EXPECT_EQ(again[0].chain, went.back() == 'd' ? "e" : "d");
}

// Given requests that wait for a decode chain, and slots that become free at the weighted chain and at the fastest one
// together; expects a request whose prefill worker ended its body, or left the table, to go to the fastest.
TEST_F(TwoStepTest, WithoutItsPrefillWorkerTheFastestAnswers) {
  auto p = prefill("p", 1, 30);
  p.decode_weights = {{0, 1}};
  const auto slots = [&](int count) { return std::vector{decode("d", 1, count), decode("fast", 9, count), p}; };
  use(0, table(1, slots(1)));
  EXPECT_EQ(begin(0, 1, "p").size() + begin(0, 2, "p").size(), 2U);
  EXPECT_TRUE(begin(0.1, 3, "p").empty());
  EXPECT_TRUE(begin(0.1, 4, "p").empty());
  EXPECT_TRUE(router.prefill_ended(0.2, 3).empty());
  const auto next = all<Dispatch>(use(0.2, table(2, slots(2))));
  ASSERT_EQ(next.size(), 2U);
  EXPECT_EQ(next[0].id, 3U);
  EXPECT_EQ(next[0].chain, "fast");
  EXPECT_EQ(next[1].chain, "d");
  EXPECT_TRUE(begin(0.3, 5, "p").empty());
  auto without = slots(3);
  without.pop_back();
  EXPECT_EQ(all<Dispatch>(use(0.3, table(3, without))).at(0).chain, "fast");
}

// Given a prefill slot; expects it to be held until the worker's body ends, even while the decode worker answers, and then to
// go to the next request; a second report of the end frees nothing.
TEST_F(TwoStepTest, APrefillSlotIsHeldUntilItsBodyEnds) {
  use(0, table(1, {prefill("p", 1, 1), decode("d", 1, 4)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).size(), 1U);
  router.response_started(1);
  router.tokens_sent(0.1, 1, 3);
  EXPECT_TRUE(router.arrived(0.2, 2, "tiny", true).empty());
  EXPECT_TRUE(router.prefill_ended(0.2, 2).empty()) << "it has not begun";
  EXPECT_EQ(all<Dispatch>(router.prefill_ended(0.3, 1)).at(0).id, 2U);
  EXPECT_TRUE(router.prefill_ended(0.4, 1).empty());
  EXPECT_EQ(in_flight("p"), 1);
  EXPECT_EQ(in_flight("d"), 1);
}

// Given full decode chains; expects requests past their first step to wait with their prefill slots, then others to wait at the
// gateway, and a decode slot to go to the former in order of arrival.
TEST_F(TwoStepTest, FullDecodeChainsPushBack) {
  use(0, table(1, {prefill("p", 1, 2), decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).size(), 1U);
  EXPECT_TRUE(router.prefill_ended(0, 1).empty());
  EXPECT_EQ(all<Dispatch>(router.arrived(0.01, 2, "tiny", true)).size(), 1U);
  EXPECT_EQ(all<Dispatch>(router.arrived(0.02, 3, "tiny", true)).size(), 1U);
  EXPECT_TRUE(router.prefilled(0.03, 3).empty());
  EXPECT_TRUE(router.prefilled(0.04, 2).empty());
  EXPECT_TRUE(router.arrived(0.05, 4, "tiny", true).empty());
  EXPECT_EQ(in_flight("p"), 2);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 1);
  EXPECT_EQ(router.decode_queue_lengths().at("tiny"), 2);
  EXPECT_EQ(load_report(router), R"({"tiny":[3,1]})");
  const auto next = all<Dispatch>(router.completed(0.1, 1, {}));
  ASSERT_EQ(next.size(), 1U);
  EXPECT_EQ(next[0].id, 2U);
  EXPECT_EQ(next[0].step, Step::kDecode);
  const auto after = all<Dispatch>(router.completed(0.2, 2, {}));
  ASSERT_EQ(after.size(), 2U);
  EXPECT_EQ(after[0].id, 3U);
  EXPECT_EQ(after[0].chain, "d");
  EXPECT_EQ(after[1].id, 4U);
  EXPECT_EQ(after[1].chain, "p");
}

// Given a decode line with a late request; expects requests that can still meet timeToFirstToken to go first, as in the first
// line.
TEST_F(TwoStepTest, LateRequestsWaitBehindInTheSecondLineToo) {
  use(0, table(1, {prefill("p", 1, 4), decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).size(), 1U);
  EXPECT_TRUE(begin(0.1, 2, "p").empty());
  EXPECT_TRUE(begin(0.9, 3, "p").empty());
  EXPECT_EQ(all<Dispatch>(router.completed(1, 1, {})).at(0).id, 3U);
  EXPECT_EQ(all<Dispatch>(router.completed(2, 3, {})).at(0).id, 2U);
}

// Given unified chains next to the others; expects a request to begin at the fastest free one of either kind, and a unified one
// to serve it completely.
TEST_F(TwoStepTest, UnifiedChainsServeWhole) {
  use(0, table(1, {prefill("p", 3, 1), decode("d", 9, 1), chain("u", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).at(0).chain, "d");
  const auto whole = all<Dispatch>(router.arrived(0, 2, "tiny", true));
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_EQ(whole[0].chain, "u");
  EXPECT_EQ(whole[0].step, Step::kWhole);
  EXPECT_TRUE(router.prefilled(0, 2).empty());
  EXPECT_TRUE(router.arrived(0, 3, "tiny", true).empty());
}

// Given only decode chains, because the table has no prefill chain or the only one drains or does not answer; expects them to
// serve whole requests until a prefill chain takes them.
TEST_F(TwoStepTest, DecodeChainsAloneServeWhole) {
  use(0, table(1, {decode("d", 1, 9)}));
  const auto whole = all<Dispatch>(router.arrived(0, 1, "tiny", true));
  ASSERT_EQ(whole.size(), 1U);
  EXPECT_EQ(whole[0].chain, "d");
  EXPECT_EQ(whole[0].step, Step::kWhole);
  use(1, table(2, {decode("d", 1, 9), prefill("p", 1, 1, true)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true)).at(0).chain, "d");
  use(2, table(3, {decode("d", 1, 9), prefill("p", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(2, 3, "tiny", true)).at(0).chain, "p");
  EXPECT_TRUE(router.arrived(2, 4, "tiny", true).empty()) << "it waits for the prefill chain";
  const auto without = all<Dispatch>(router.contact_changed(3, "p:80", Contact::kSilent));
  ASSERT_EQ(without.size(), 1U);
  EXPECT_EQ(without[0].id, 4U);
  EXPECT_EQ(without[0].step, Step::kWhole);
}

// Given only prefill chains; expects requests to wait as if there were no worker, with the start timeout, until a decode chain
// joins.
TEST_F(TwoStepTest, PrefillChainsAloneServeNobody) {
  use(0, table(1, {prefill("p", 1, 4)}));
  EXPECT_TRUE(router.arrived(0, 1, "tiny", true).empty());
  EXPECT_EQ(router.next_deadline_s(), 300);
  EXPECT_TRUE(router.arrived(1, 2, "tiny", true).empty());
  const auto late = all<Reject>(router.tick(300));
  ASSERT_EQ(late.size(), 1U);
  EXPECT_EQ(late[0].code, "no_worker");
  EXPECT_EQ(all<Dispatch>(use(301, table(2, {prefill("p", 1, 4), decode("d", 1, 4)}))).at(0).chain, "p");
}

// Given requests between their steps when the last decode chain drains or leaves; expects their first step to be cancelled and
// a new start at a unified chain, at their old place; the same for one whose first step's head arrives later.
TEST_F(TwoStepTest, WithoutDecodeChainsRequestsBeginAnew) {
  use(0, table(1, {prefill("p", 1, 4), decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).size(), 1U);
  EXPECT_TRUE(begin(0, 2, "p").empty());
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 3, "tiny", true)).at(0).chain, "p");
  const auto restarted = use(1, table(2, {prefill("p", 1, 4), decode("d", 1, 1, true), chain("u", 1, 1)}));
  ASSERT_EQ(all<Recall>(restarted).size(), 1U);
  EXPECT_EQ(all<Recall>(restarted).at(0).id, 2U);
  EXPECT_TRUE(all<Recall>(restarted).at(0).to_beginning);
  EXPECT_EQ(all<Dispatch>(restarted).at(0).chain, "u");
  EXPECT_EQ(all<Dispatch>(restarted).at(0).step, Step::kWhole);
  EXPECT_EQ(in_flight("p"), 2) << "of 1, which is being answered, and 3";
  const auto later = router.prefilled(2, 3);
  EXPECT_EQ(all<Recall>(later).at(0).id, 3U);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 1);
  EXPECT_EQ(in_flight("p"), 1);
  EXPECT_EQ(all<Dispatch>(router.completed(3, 2, {})).at(0).id, 3U);
  // A decode worker that drains and refuses, with no other left: the same.
  use(4, table(3, {prefill("p", 1, 4), decode("e", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(4, 4, "p")).at(0).chain, "e");
  use(5, table(4, {prefill("p", 1, 4), decode("e", 1, 1, true)}));
  EXPECT_EQ(all<Recall>(router.refused(5, 4, Refusal::kDraining)).at(0).id, 4U);
  EXPECT_EQ(in_flight("e"), 0);
}

// Given a prefill worker that refuses; expects the request to go to another one, as with unified chains.
TEST_F(TwoStepTest, APrefillWorkerRefuses) {
  use(0, table(1, {prefill("p", 2, 1), prefill("q", 1, 1), decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).at(0).chain, "p");
  EXPECT_EQ(all<Dispatch>(router.refused(0.01, 1, Refusal::kFull)).at(0).chain, "q");
  EXPECT_EQ(all<Dispatch>(router.prefilled(0.02, 1)).at(0).prefill_address, "q:80");
}

// Given decode workers that refuse; expects the request to go to another, or to wait until a pause ends, and to keep its
// prefill slot.
TEST_F(TwoStepTest, ADecodeWorkerRefuses) {
  use(0, table(1, {prefill("p", 2, 1), decode("d", 2, 1), decode("e", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).at(0).chain, "d");
  const auto other = all<Dispatch>(router.refused(0.01, 1, Refusal::kConnect));
  EXPECT_EQ(other.at(0).chain, "e");
  EXPECT_EQ(other.at(0).prefill_address, "p:80");
  EXPECT_TRUE(router.refused(0.02, 1, Refusal::kFull).empty());
  EXPECT_EQ(in_flight("p"), 1);
  EXPECT_EQ(router.decode_queue_lengths().at("tiny"), 1);
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 0.07);
  EXPECT_EQ(all<Dispatch>(router.tick(0.08)).at(0).chain, "e");
}

// Given a prefill worker that breaks off before its head; expects the request to start over elsewhere, once: a decode worker
// that breaks afterwards gives 502.
TEST_F(TwoStepTest, APrefillWorkerFailsBeforeItsHead) {
  use(0, table(1, {prefill("p", 2, 1), prefill("q", 1, 1), decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).at(0).chain, "p");
  EXPECT_EQ(all<Dispatch>(router.failed(0.1, 1, "gone", true)).at(0).chain, "q");
  EXPECT_EQ(in_flight("p"), 0);
  EXPECT_EQ(all<Dispatch>(router.prefilled(0.2, 1)).at(0).chain, "d");
  const auto actions = router.failed(0.3, 1, "gone", true);
  EXPECT_EQ(all<Cancel>(actions).size(), 1U);
  EXPECT_EQ(all<Reject>(actions).at(0).status, 502);
  EXPECT_EQ(in_flight("q") + in_flight("d"), 0);
}

// Given a decode worker that breaks off before the first byte; expects another to get the request with the same first step,
// once.
TEST_F(TwoStepTest, ADecodeWorkerFails) {
  use(0, table(1, {prefill("p", 2, 1), decode("d", 2, 1), decode("e", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).at(0).chain, "d");
  const auto other = all<Dispatch>(router.failed(0.1, 1, "gone", true));
  EXPECT_EQ(other.at(0).chain, "e");
  EXPECT_EQ(other.at(0).prefill_address, "p:80");
  EXPECT_EQ(in_flight("p"), 1);
  EXPECT_EQ(all<Reject>(router.failed(0.2, 1, "gone", true)).at(0).status, 502);
  EXPECT_EQ(in_flight("p"), 0);
}

// Given an unreachable worker that had computed one prompt and answers another request; expects the latter to be taken back
// with the result of its own first step, the former to go on, and the slot to be released when the worker is lost.
TEST_F(TwoStepTest, WorkersOutOfReach) {
  use(0, table(1, {prefill("p", 1, 2), decode("d", 2, 1), decode("e", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).at(0).chain, "d");
  const auto back = router.contact_changed(1, "d:80", Contact::kUnreachable);
  ASSERT_EQ(all<Recall>(back).size(), 1U);
  EXPECT_FALSE(all<Recall>(back).at(0).to_beginning);
  EXPECT_EQ(all<Dispatch>(back).at(0).chain, "e");
  EXPECT_EQ(all<Dispatch>(back).at(0).prefill_address, "p:80");
  EXPECT_TRUE(router.contact_changed(2, "p:80", Contact::kUnreachable).empty());
  EXPECT_EQ(in_flight("p"), 1);
  EXPECT_TRUE(router.contact_changed(3, "p:80", Contact::kLost).empty());
  EXPECT_EQ(in_flight("p"), 0);
  EXPECT_EQ(in_flight("e"), 1);
  EXPECT_EQ(router.contact_counts().recalled.at("tiny"), 1);
  EXPECT_FALSE(router.contact_counts().lost.contains("tiny"));
  EXPECT_EQ(all<Finished>(router.completed(4, 1, {})).at(0).record.code, 200);
}

// Given a prefill chain that drains or vanishes with requests; expects them to continue to their second step, and the chain to
// be reported until it holds none.
TEST_F(TwoStepTest, APrefillChainLeaves) {
  use(0, table(1, {prefill("p", 1, 2), decode("d", 1, 2)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).size(), 1U);
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 2, "tiny", true)).at(0).chain, "p");
  use(1, table(2, {prefill("q", 1, 1), decode("d", 1, 2)}));
  EXPECT_TRUE(router.at_leaving_worker(2));
  EXPECT_FALSE(router.at_leaving_worker(1)) << "it is at d";
  const auto second = all<Dispatch>(router.prefilled(1, 2));
  EXPECT_EQ(second.at(0).chain, "d");
  EXPECT_EQ(second.at(0).prefill_address, "p:80");
  EXPECT_EQ(in_flight("p"), 2);
  EXPECT_TRUE(router.prefill_ended(2, 1).empty());
  EXPECT_EQ(router.completed(2, 2, {}).size(), 1U);
  EXPECT_EQ(router.addresses(), (std::set<std::string>{"d:80", "q:80"}));
}

// Given workers that change roles while they hold requests; expects these to go on and count, and new ones to match the new
// role.
TEST_F(TwoStepTest, ChainsChangeRoles) {
  use(0, table(1, {prefill("a", 2, 1), decode("b", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "a")).at(0).chain, "b");
  EXPECT_TRUE(use(1, table(2, {decode("a", 2, 1), prefill("b", 1, 1)})).empty());
  EXPECT_TRUE(router.arrived(1, 2, "tiny", true).empty()) << "b is full";
  EXPECT_EQ(all<Dispatch>(router.completed(2, 1, {})).at(0).chain, "b");
  const auto second = all<Dispatch>(router.prefilled(3, 2));
  EXPECT_EQ(second.at(0).chain, "a");
  EXPECT_EQ(second.at(0).prefill_address, "b:80");
}

// Given a request between its steps; expects 503 at the queue's timeout, 504 at the request's timeout, and an end when its
// client leaves; each time, expects a cancel at the prefill worker and a free slot.
TEST_F(TwoStepTest, EndsBetweenTheSteps) {
  use(0, table(1, {prefill("p", 1, 3), decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).size(), 1U);
  EXPECT_TRUE(begin(1, 2, "p").empty());
  EXPECT_TRUE(begin(2, 3, "p").empty());
  const auto late = router.tick(61);
  EXPECT_EQ(all<Cancel>(late).at(0).id, 2U);
  EXPECT_EQ(all<Reject>(late).at(0).code, "queue_timeout");
  EXPECT_EQ(in_flight("p"), 2);
  EXPECT_EQ(router.client_gone(61.5, 3).size(), 1U);
  EXPECT_EQ(in_flight("p"), 1);
  EXPECT_EQ(router.decode_queue_lengths().at("tiny"), 0);
  const auto too_long = router.tick(600);
  EXPECT_EQ(all<Cancel>(too_long).size(), 1U);
  EXPECT_EQ(all<Reject>(too_long).at(0).status, 504);
  EXPECT_EQ(in_flight("p") + in_flight("d"), 0);
}

// Given requests at each step when their model leaves the table; expects 404 between the steps and when a first step fails, and
// requests at the second step to go on.
TEST_F(TwoStepTest, AModelLeaves) {
  use(0, table(1, {prefill("p", 1, 3), decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).size(), 1U);
  EXPECT_TRUE(begin(0, 2, "p").empty());
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 3, "tiny", true)).size(), 1U);
  auto actions = use(1, dispatch::RoutingTable{{1, 2}, {}});
  ASSERT_EQ(all<Reject>(actions).size(), 1U);
  EXPECT_EQ(all<Reject>(actions).at(0).id, 2U);
  EXPECT_EQ(all<Cancel>(actions).at(0).status, 404);
  actions = router.prefilled(2, 3);
  EXPECT_EQ(all<Cancel>(actions).size(), 1U);
  EXPECT_EQ(all<Reject>(actions).at(0).status, 404);
  EXPECT_EQ(all<Finished>(router.completed(3, 1, {})).at(0).record.code, 200);
  EXPECT_TRUE(router.chain_loads().empty());
}

// Given a gateway that stops with requests at each step; expects each to be cancelled and answered.
TEST_F(TwoStepTest, ShutDown) {
  use(0, table(1, {prefill("p", 1, 3), decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).size(), 1U);
  EXPECT_TRUE(begin(0, 2, "p").empty());
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 3, "tiny", true)).size(), 1U);
  EXPECT_TRUE(router.arrived(0, 4, "tiny", true).empty());
  const auto actions = router.shut_down(1);
  EXPECT_EQ(all<Cancel>(actions).size(), 3U);
  EXPECT_EQ(all<Reject>(actions).size(), 4U);
  EXPECT_TRUE(all<Dispatch>(actions).empty());
  for (const auto& load : router.chain_loads()) EXPECT_EQ(load.in_flight, 0);
}

// Given a prefill worker that answers with an error; expects the client to get that answer, and nothing more.
TEST_F(TwoStepTest, AFirstStepsErrorIsTheAnswer) {
  use(0, table(1, {prefill("p", 1, 1), decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  EXPECT_TRUE(router.accepted(0.1, 1).empty());
  router.response_started(1);
  const auto actions = router.completed(1, 1, {400});
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(all<Finished>(actions).at(0).record.code, 400);
  EXPECT_EQ(in_flight("p"), 0);
}

// Given chains of two roles; expects the retry time of the queue to depend on the slower role.
TEST_F(TwoStepTest, TheSlowerRoleSaysHowLongTheQueueTakes) {
  use(0, table(1, {prefill("p", 9, 1), decode("d", 0.5, 1)}, 0));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  const auto full = all<Reject>(router.arrived(0, 2, "tiny", true));
  EXPECT_EQ(full.at(0).retry_after_s, 4);  // itself and one more, at 0.5 per second
}

// Given JSQ; expects first steps to wait at the prefill chain with the fewest, and second steps in one line for any decode
// chain.
TEST_F(JsqTwoStepTest, SecondStepsHaveOneLine) {
  use(0, table(1, {prefill("p", 1, 1), prefill("q", 1, 1), decode("d", 1, 1), decode("e", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(begin(0, 1, "p")).at(0).chain, "d");
  EXPECT_EQ(all<Dispatch>(begin(0, 2, "q")).at(0).chain, "e");
  EXPECT_TRUE(router.arrived(0, 3, "tiny", true).empty());
  EXPECT_TRUE(router.arrived(0, 4, "tiny", true).empty());
  EXPECT_EQ(all<Dispatch>(router.prefill_ended(1, 2)).at(0).id, 4U) << "3 waits at p";
  EXPECT_TRUE(router.prefilled(1, 4).empty());
  EXPECT_EQ(router.decode_queue_lengths().at("tiny"), 1);
  EXPECT_EQ(all<Dispatch>(router.completed(2, 2, {})).at(0).chain, "e");
}

// Given JSQ and only decode chains, with requests waiting at them; when a prefill chain joins, expects them to begin there.
TEST_F(JsqTwoStepTest, QueuesOfDecodeChainsMoveToPrefillChains) {
  use(0, table(1, {decode("d", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).at(0).step, Step::kWhole);
  EXPECT_TRUE(router.arrived(0, 2, "tiny", true).empty());
  EXPECT_TRUE(router.arrived(0, 3, "tiny", true).empty());
  const auto moved = all<Dispatch>(use(1, table(2, {decode("d", 1, 1), prefill("p", 1, 1)})));
  ASSERT_EQ(moved.size(), 1U);
  EXPECT_EQ(moved[0].id, 2U);
  EXPECT_EQ(moved[0].step, Step::kPrefill);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 1);
}

// Given a policy that packs by lengths; expects prompts to count at the prefill worker until its body ends, whatever the decode
// worker does.
TEST_F(AladdinTwoStepTest, APromptCountsUntilItsBodyEnds) {
  dispatch::RoutingTable known = table(1, {prefill("p", 1, 4), decode("d", 1, 4)});
  known.models[0].latencies = {
      {.prefill_token_s = 1e-3, .context_token_s = 1e-6, .decode_s = 0.01, .kv_capacity_tokens = 4000}};
  for (auto& each : known.models[0].chains) each.latency = 0;
  use(0, known);
  for (RequestId id = 9001; id <= 9040; ++id) {
    (void)router.arrived(0, id, "tiny", true, 4 * 300);
    (void)router.prefilled(0, id);
    router.tokens_sent(0, id, 50);
    (void)router.completed(0, id, {200, 300, 50});
  }
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 1200)).size(), 1U);
  EXPECT_TRUE(router.arrived(1, 2, "tiny", true, 1200).empty()) << "600 ms of prompts";
  EXPECT_EQ(all<Dispatch>(router.prefilled(1.01, 1)).at(0).chain, "d");
  EXPECT_EQ(all<Dispatch>(router.prefill_ended(1.1, 1)).at(0).id, 2U);
}

}  // namespace
}  // namespace windlass::gateway
