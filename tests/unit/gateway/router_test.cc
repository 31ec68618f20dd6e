// The router, one rule at a time.
#include "gateway/load_report.h"
#include "tests/unit/gateway/router_fixture.h"

namespace windlass::gateway {
namespace {

class JsqRouterTest : public RouterTest {
 protected:
  JsqRouterTest() : RouterTest({100, 60, 600, dispatch::PolicyKind::kJsq}) {}
};

// Given two chains; expects the fastest free one first, then the other, then requests to wait and go in order of arrival.
TEST_F(RouterTest, FastestFreeChainThenQueue) {
  EXPECT_TRUE(use(0, table(1, {chain("slow", 1, 1), chain("fast", 5, 1)})).empty());
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true)).at(0).chain, "fast");
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true)).at(0).address, "slow:80");
  EXPECT_TRUE(router.arrived(1, 3, "tiny", true).empty());
  EXPECT_TRUE(router.arrived(1, 4, "tiny", true).empty());
  EXPECT_EQ(router.queue_lengths().at("tiny"), 2);
  const auto actions = router.completed(2, 2, {});
  ASSERT_EQ(actions.size(), 2U);
  EXPECT_EQ(all<Finished>(actions).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(actions).at(0).id, 3U);
  EXPECT_EQ(all<Dispatch>(router.completed(3, 3, {})).at(0).id, 4U);
}

// Given a chain of three workers; expects a request to go to the first, with the addresses of the others from the newest table.
TEST_F(RouterTest, ChainsOfSeveralWorkers) {
  dispatch::Chain three = chain("a", 5, 1);
  three.hops = {"a:80", "b:80", "c:80"};
  use(0, table(1, {three, chain("d", 1, 1)}));
  const auto first = all<Dispatch>(router.arrived(1, 1, "tiny", true));
  EXPECT_EQ(first.at(0).address, "a:80");
  EXPECT_EQ(first.at(0).next_hops, "b:80,c:80");
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true)).at(0).next_hops, "");
  three.hops = {"a:80", "e:80"};
  use(2, table(2, {three, chain("d", 1, 1)}));
  (void)router.completed(3, 1, {});
  EXPECT_EQ(all<Dispatch>(router.arrived(4, 3, "tiny", true)).at(0).next_hops, "e:80");
}

class AladdinRouterTest : public RouterTest {
 protected:
  AladdinRouterTest() : RouterTest({100, 60, 600, dispatch::PolicyKind::kAladdin}) {}
};

// Given prompts of 300 tokens, of which only one fits into timeToFirstToken; expects one at each worker despite four slots, and
// the third to wait until a first token has arrived and the running requests have saved enough time.
TEST_F(AladdinRouterTest, APromptWaitsForWhereItFits) {
  use(0, known(1, {chain("a", 1, 4), chain("b", 1, 4)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 1200)).at(0).chain, "a");
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true, 1200)).at(0).chain, "b");
  EXPECT_TRUE(router.arrived(1, 3, "tiny", true, 1200).empty());
  router.tokens_sent(1.3, 1, 1);
  EXPECT_TRUE(router.tick(1.32).empty()) << "the one at a would stall: it has saved nothing";
  router.tokens_sent(1.4, 1, 20);
  ASSERT_TRUE(router.next_deadline_s().has_value());
  EXPECT_LT(*router.next_deadline_s(), 1.43) << "asked again soon";
  const auto sent = all<Dispatch>(router.tick(1.42));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].id, 3U);
  EXPECT_EQ(sent[0].chain, "a");
}

// Given short prompts; expects them to be packed into one worker, the fullest that can hold them.
TEST_F(AladdinRouterTest, ShortPromptsArePacked) {
  use(0, known(1, {chain("a", 1, 8), chain("b", 1, 8)}));
  learn();
  for (RequestId id = 1; id <= 5; ++id) {
    EXPECT_EQ(all<Dispatch>(router.arrived(1, id, "tiny", true, 200)).at(0).chain, "a") << id;
  }
}

// Given an answer that is not streamed; expects its prompt to count until it must have been processed, and no request to stall
// afterwards.
TEST_F(AladdinRouterTest, AnswersInOnePieceCountUntilTheirPromptIsThrough) {
  use(0, known(1, {chain("a", 1, 4)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", false, 1200)).size(), 1U);
  EXPECT_TRUE(router.arrived(1, 2, "tiny", false, 1200).empty());
  EXPECT_TRUE(router.tick(1.29).empty());
  EXPECT_EQ(all<Dispatch>(router.tick(1.31)).at(0).id, 2U);
}

// Given half of a worker's slots; expects other gateways to be assumed to load it equally, so that a prompt of 300 tokens
// counts as 600.
TEST_F(AladdinRouterTest, OthersLoadAWorkerByTheirShare) {
  use(0, known(1, {chain("a", 1, 8)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 800)).size(), 1U);
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true, 800)).size(), 1U);
  (void)router.client_gone(2, 1);
  (void)router.client_gone(2, 2);
  use(3, known(2, {chain("a", 1, 4)}, 0.5));
  EXPECT_EQ(all<Dispatch>(router.arrived(4, 3, "tiny", true, 800)).size(), 1U);
  EXPECT_TRUE(router.arrived(4, 4, "tiny", true, 800).empty());
}

// Given a prompt that is estimated to be longer than any cache; expects an empty worker to take it: the worker knows the true
// length.
TEST_F(AladdinRouterTest, AnEstimateRefusesNoRequest) {
  use(0, known(1, {chain("a", 1, 4)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 4'000'000)).size(), 1U);
}

// Given a refusal, a timeout and a client that leaves; expects their room to be released.
TEST_F(AladdinRouterTest, RoomComesBackHoweverARequestEnds) {
  use(0, known(1, {chain("a", 1, 4)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 1200)).size(), 1U);
  (void)router.client_gone(1.1, 1);
  EXPECT_EQ(all<Dispatch>(router.arrived(1.2, 2, "tiny", true, 1200)).size(), 1U);
  EXPECT_TRUE(all<Dispatch>(router.refused(1.3, 2, Refusal::kFull)).empty());
  EXPECT_EQ(all<Dispatch>(router.tick(1.5)).at(0).id, 2U);
  (void)router.failed(1.6, 2, "broken");
  EXPECT_EQ(all<Dispatch>(router.arrived(2, 3, "tiny", true, 1200)).size(), 1U);
}

// Given objectives that change while a request is in flight; expects it to keep counting.
TEST_F(AladdinRouterTest, RequestsInFlightCountUnderNewObjectives) {
  use(0, known(1, {chain("a", 1, 4)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 1200)).size(), 1U);
  dispatch::RoutingTable next = known(2, {chain("a", 1, 4)});
  next.models[0].ttft_slo_s = 0.55;
  use(1.1, next);
  EXPECT_TRUE(router.arrived(1.2, 2, "tiny", true, 1200).empty()) << "600 ms of prompts";
}

class ArrivalRouterTest : public RouterTest {
 protected:
  ArrivalRouterTest() : RouterTest({100, 60, 600, dispatch::PolicyKind::kJffc, 1, 300, dispatch::QueueOrder::kArrival}) {}
};

// Given an objective of half a second and a slot that is busy for a second; expects an early request, which has missed it, to
// be served after recent ones.
TEST_F(RouterTest, LateRequestsWaitBehind) {
  use(0, table(1, {chain("a", 1, 1)}));
  for (const RequestId id : {1, 2, 3}) (void)router.arrived(0.1 * static_cast<double>(id), id, "tiny", true);
  (void)router.arrived(0.9, 4, "tiny", true);
  (void)router.arrived(0.95, 5, "tiny", true);
  EXPECT_EQ(all<Dispatch>(router.completed(1, 1, {})).at(0).id, 4U);
  EXPECT_EQ(all<Dispatch>(router.completed(1.1, 4, {})).at(0).id, 5U);
  EXPECT_EQ(all<Dispatch>(router.completed(1.2, 5, {})).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(router.completed(1.3, 2, {})).at(0).id, 3U);
}

// Given the same in arrival order; expects first come, first served.
TEST_F(ArrivalRouterTest, FirstComeFirstServed) {
  use(0, table(1, {chain("a", 1, 1)}));
  for (const RequestId id : {1, 2}) (void)router.arrived(0.1 * static_cast<double>(id), id, "tiny", true);
  (void)router.arrived(0.9, 3, "tiny", true);
  EXPECT_EQ(all<Dispatch>(router.completed(1, 1, {})).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(router.completed(1.1, 2, {})).at(0).id, 3U);
}

// Given first tokens that take 0.4 s from dispatch; expects a request with 0.3 s left to count as late, and one with 0.45 s
// not.
TEST_F(RouterTest, LatenessCountsTheFirstTokensTime) {
  use(0, table(1, {chain("a", 1, 1)}));
  for (RequestId id = 1; id <= 300; ++id) {
    const double at_s = static_cast<double>(id);
    EXPECT_EQ(all<Dispatch>(router.arrived(at_s, id, "tiny", true)).size(), 1U);
    router.tokens_sent(at_s + 0.4, id, 1);
    (void)router.completed(at_s + 0.5, id, {});
  }
  (void)router.arrived(400, 1000, "tiny", true);
  (void)router.arrived(400.8, 1001, "tiny", true);
  (void)router.arrived(400.95, 1002, "tiny", true);
  EXPECT_EQ(all<Dispatch>(router.completed(401, 1000, {})).at(0).id, 1002U);
}

// Given a line in which newcomers in time keep overtaking a late request; expects it to wait beyond the queue timeout until the
// request timeout, and 503 for one whose turn would not have come in arrival order either.
TEST_F(RouterTest, OvertakenRequestsAreNotRefused) {
  use(0, table(1, {chain("a", 1, 1)}));
  (void)router.arrived(0, 1, "tiny", true);
  (void)router.arrived(0, 2, "tiny", true);
  (void)router.arrived(58, 3, "tiny", true);
  EXPECT_EQ(all<Dispatch>(router.completed(58.1, 1, {})).at(0).id, 3U);
  (void)router.arrived(58.2, 4, "tiny", true);
  EXPECT_TRUE(all<Reject>(router.tick(60)).empty());
  EXPECT_EQ(router.queue_lengths().at("tiny"), 2);
  const auto refused = all<Reject>(router.tick(118.3));
  ASSERT_EQ(refused.size(), 1U);
  EXPECT_EQ(refused.front().id, 4U);
  EXPECT_EQ(all<Reject>(router.tick(599)).size(), 0U);
  EXPECT_EQ(all<Dispatch>(router.completed(599.5, 3, {})).at(0).id, 2U);
}

// Given no table, an unknown model, a full queue; expects 503, 404 and 429, with Retry-After where a retry makes sense.
TEST_F(RouterTest, Rejections) {
  auto rejected = all<Reject>(router.arrived(0, 1, "tiny", true));
  EXPECT_EQ(rejected.at(0).status, 503);
  EXPECT_GT(rejected.at(0).retry_after_s, 0);
  use(0, table(1, {chain("a", 0.5, 1)}, 1));
  const auto unknown = router.arrived(0, 2, "huge", true);
  EXPECT_EQ(all<Reject>(unknown).at(0).status, 404);
  EXPECT_EQ(all<Finished>(unknown).at(0).verdict, Verdict::kNotCounted);
  EXPECT_FALSE(all<Finished>(unknown).at(0).known_model);
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 3, "tiny", true)).size(), 1U);
  EXPECT_TRUE(router.arrived(0, 4, "tiny", true).empty());
  const auto full = router.arrived(0, 5, "tiny", true);
  EXPECT_EQ(all<Reject>(full).at(0).status, 429);
  EXPECT_EQ(all<Reject>(full).at(0).retry_after_s, 6);  // the waiting one, itself and one more, at 0.5 per second
  EXPECT_EQ(all<Finished>(full).at(0).verdict, Verdict::kMissed);
}

// Given a model without a chain; expects requests to wait until the table adds one, or 503 with Retry-After after the start
// timeout.
TEST_F(RouterTest, WaitsForAWorker) {
  use(0, table(1, {}));
  EXPECT_TRUE(router.arrived(1, 1, "tiny", true).empty());
  EXPECT_TRUE(router.arrived(20, 2, "tiny", true).empty());
  EXPECT_EQ(router.next_deadline_s(), 301);
  const auto late = router.tick(301);
  EXPECT_EQ(all<Reject>(late).at(0).id, 1U);
  EXPECT_EQ(all<Reject>(late).at(0).status, 503);
  EXPECT_EQ(all<Reject>(late).at(0).code, "no_worker");
  EXPECT_GT(all<Reject>(late).at(0).retry_after_s, 0);
  EXPECT_EQ(all<Dispatch>(use(302, table(2, {chain("a", 1, 4)}))).at(0).id, 2U);
}

// Given a request that waited for the first worker longer than the queue timeout and is then refused by it; expects it to wait
// for as long as a start may take.
TEST_F(RouterTest, RefusedAfterALongStart) {
  use(0, table(1, {}));
  EXPECT_TRUE(router.arrived(0, 1, "tiny", true).empty());
  EXPECT_EQ(all<Dispatch>(use(200, table(2, {chain("a", 1, 1)}))).size(), 1U);
  EXPECT_TRUE(router.refused(200, 1, Refusal::kConnect).empty());
  const auto again = router.tick(201);
  EXPECT_TRUE(all<Reject>(again).empty());
  EXPECT_EQ(all<Dispatch>(again).size(), 1U);
  EXPECT_TRUE(router.refused(201, 1, Refusal::kFull).empty());
  use(202, table(3, {chain("a", 1, 0)}));
  EXPECT_TRUE(router.tick(299).empty());
  EXPECT_EQ(all<Reject>(router.tick(300)).size(), 1U);
}

// Given tables out of order; expects older and equal ones to be ignored, and a higher term to win with any counter.
TEST_F(RouterTest, TableVersions) {
  use(0, table(5, {chain("a", 1, 1)}));
  EXPECT_FALSE(router.table_changed(1, table(4, {})).accepted);
  EXPECT_FALSE(router.table_changed(1, table(5, {})).accepted);
  EXPECT_EQ(router.chain_loads().size(), 1U);
  EXPECT_TRUE(router.table_changed(1, table(1, {}, 10, 2)).accepted);
  EXPECT_FALSE(router.table_changed(1, table(99, {}, 10, 1)).accepted);
}

// Given a chain that drains, then vanishes; expects no new requests for it from the start, and its current ones to go on and
// count.
TEST_F(RouterTest, Draining) {
  use(0, table(1, {chain("a", 1, 4)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true)).size(), 1U);
  use(1, table(2, {chain("a", 1, 4, true)}));
  EXPECT_TRUE(router.arrived(1, 2, "tiny", true).empty());
  use(1, table(3, {}));
  EXPECT_EQ(in_flight("a"), 1);
  EXPECT_TRUE(router.chain_loads().at(0).draining);
  EXPECT_EQ(all<Finished>(router.completed(2, 1, {})).at(0).record.code, 200);
  EXPECT_TRUE(router.chain_loads().empty());
  EXPECT_EQ(router.queue_lengths().at("tiny"), 1);
}

// Given a vanished chain that returns while it still holds a request; expects the old request to keep its slot.
TEST_F(RouterTest, AChainThatComesBackIsStillLoaded) {
  use(0, table(1, {chain("a", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true)).size(), 1U);
  use(1, table(2, {}));
  use(2, table(3, {chain("a", 1, 1)}));
  EXPECT_TRUE(router.arrived(3, 2, "tiny", true).empty());
  EXPECT_EQ(all<Dispatch>(router.completed(4, 1, {})).at(0).id, 2U);
  // The same name at another address is a different worker.
  auto moved = chain("a", 1, 1);
  moved.hops = {"b:80"};
  use(5, table(4, {moved}));
  EXPECT_EQ(all<Dispatch>(router.arrived(5, 3, "tiny", true)).at(0).address, "b:80");
}

// Given a worker that refuses; expects the request to go to another one in its old order, and the refusing chain to get none
// for a while.
TEST_F(RouterTest, Refusals) {
  use(0, table(1, {chain("a", 9, 1), chain("b", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).at(0).chain, "a");
  EXPECT_EQ(all<Dispatch>(router.refused(0.01, 1, Refusal::kConnect)).at(0).chain, "b");
  EXPECT_TRUE(router.arrived(0.02, 2, "tiny", true).empty());
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 0.11);
  EXPECT_TRUE(router.tick(0.1).empty());
  EXPECT_EQ(all<Dispatch>(router.tick(0.12)).at(0).id, 2U);
  // Refused again: twice as long. An older request still goes before a younger one.
  EXPECT_TRUE(router.refused(0.13, 2, Refusal::kConnect).empty());
  EXPECT_TRUE(router.arrived(0.14, 3, "tiny", true).empty());
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 0.33);
  EXPECT_EQ(all<Dispatch>(router.completed(0.2, 1, {})).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(router.tick(0.34)).at(0).id, 3U);
  EXPECT_TRUE(router.accepted(0.35, 3).empty());
  // Accepted at last: the pauses start over.
  EXPECT_TRUE(router.refused(0.4, 3, Refusal::kFull).empty());
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 0.45);
}

// Given a worker that refuses a request and then answers one that it had taken before; expects waiting requests to go there
// immediately.
TEST_F(RouterTest, AnAnswerEndsThePause) {
  use(0, table(1, {chain("a", 9, 2)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 2, "tiny", true)).size(), 1U);
  EXPECT_TRUE(router.refused(0.01, 2, Refusal::kFull).empty());
  const auto actions = router.accepted(0.02, 1);
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(all<Dispatch>(actions).at(0).id, 2U);
  EXPECT_TRUE(router.accepted(0.03, 1).empty());
  EXPECT_TRUE(router.refused(0.04, 2, Refusal::kDraining).empty());
  EXPECT_TRUE(router.accepted(0.05, 1).empty()) << "it finishes what it has, no more";
  EXPECT_EQ(all<Dispatch>(router.tick(1.1)).at(0).id, 2U);
}

// Given a worker that breaks, in exchanges that may not move; expects 502 before the first byte, a cancelled stream after it,
// and no retry.
TEST_F(RouterTest, BrokenWorkers) {
  use(0, table(1, {chain("a", 1, 4), chain("b", 1, 4)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  auto actions = router.failed(1, 1, "gone");
  EXPECT_TRUE(all<Dispatch>(actions).empty());
  EXPECT_TRUE(all<Cancel>(actions).at(0).nothing_sent);
  EXPECT_EQ(all<Reject>(actions).at(0).status, 502);
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 2, "tiny", true)).size(), 1U);
  router.response_started(2);
  router.tokens_sent(0.1, 2, 1);
  actions = router.failed(1, 2, "gone");
  EXPECT_FALSE(all<Cancel>(actions).at(0).nothing_sent);
  EXPECT_TRUE(all<Reject>(actions).empty());
  EXPECT_EQ(all<Finished>(actions).at(0).verdict, Verdict::kMissed);
  EXPECT_EQ(all<Finished>(actions).at(0).record.code, 502);
  EXPECT_TRUE(router.failed(2, 2, "again").empty());
}

// Given a worker that breaks before the first byte, in an exchange that may move; expects the request to go to another worker
// from its old place in the queue, and 502 when that one breaks too.
TEST_F(RouterTest, ABrokenRequestMovesOnce) {
  use(0, table(1, {chain("a", 2, 1), chain("b", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).at(0).chain, "a");
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 2, "tiny", true)).at(0).chain, "b");
  EXPECT_TRUE(router.arrived(0, 3, "tiny", true).empty());
  EXPECT_TRUE(router.failed(1, 1, "gone", true).empty());
  EXPECT_EQ(router.queue_lengths().at("tiny"), 2);
  EXPECT_EQ(all<Dispatch>(router.completed(1.01, 2, {})).at(0).id, 1U);
  const auto actions = router.failed(2, 1, "gone", true);
  EXPECT_EQ(all<Reject>(actions).at(0).status, 502);
  EXPECT_EQ(all<Dispatch>(actions).at(0).id, 3U);
}

// Given a worker that accepts connections but does not answer; expects no new request for it, its current ones to stay, and new
// ones when it answers again.
TEST_F(RouterTest, ASilentWorker) {
  use(0, table(1, {chain("a", 2, 2), chain("b", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).at(0).chain, "a");
  EXPECT_TRUE(router.contact_changed(1, "a:80", Contact::kSilent).empty());
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 2, "tiny", true)).at(0).chain, "b");
  EXPECT_TRUE(router.arrived(1, 3, "tiny", true).empty());
  EXPECT_EQ(router.silent_chains().at("tiny"), 1);
  EXPECT_EQ(in_flight("a"), 1);
  use(2, table(2, {chain("a", 3, 2), chain("b", 1, 1)}));  // a table does not make it answer
  EXPECT_EQ(router.queue_lengths().at("tiny"), 1);
  EXPECT_EQ(all<Dispatch>(router.contact_changed(3, "a:80", Contact::kAnswers)).at(0).chain, "a");
}

// Given an unreachable worker with three requests, one of them streaming; expects the others to be taken back and go elsewhere,
// and the stream to end with 502 when the worker is lost. One that was taken back before also ends with 502 only then.
TEST_F(RouterTest, AWorkerOutOfReach) {
  use(0, table(1, {chain("a", 2, 3)}));
  for (RequestId id = 1; id <= 3; ++id) EXPECT_EQ(all<Dispatch>(router.arrived(0, id, "tiny", true)).size(), 1U);
  router.response_started(2);
  auto actions = router.contact_changed(1, "a:80", Contact::kUnreachable);
  EXPECT_EQ(all<Recall>(actions).size(), 2U);
  EXPECT_TRUE(all<Dispatch>(actions).empty());
  EXPECT_EQ(router.queue_lengths().at("tiny"), 2);
  const auto elsewhere = use(2, table(2, {chain("a", 2, 3), chain("b", 1, 2)}));
  EXPECT_EQ(all<Dispatch>(elsewhere).at(0).id, 1U);
  EXPECT_EQ(all<Dispatch>(elsewhere).at(1).id, 3U);
  actions = router.contact_changed(3, "a:80", Contact::kLost);
  EXPECT_EQ(all<Cancel>(actions).at(0).id, 2U);
  EXPECT_EQ(all<Finished>(actions).at(0).record.code, 502);
  EXPECT_TRUE(router.contact_changed(4, "b:80", Contact::kUnreachable).empty());
  EXPECT_EQ(all<Reject>(router.contact_changed(5, "b:80", Contact::kLost)).size(), 2U);
  EXPECT_EQ(router.contact_counts().recalled.at("tiny"), 2);
  EXPECT_EQ(router.contact_counts().lost.at("tiny"), 3);
}

// Given a draining chain that leaves the table with one streaming request and one that has not begun; when its worker ends,
// expects the second to be served elsewhere, and the first to end with an error.
TEST_F(RouterTest, ADrainTimeoutMovesOrEndsRequests) {
  use(0, table(1, {chain("a", 2, 2)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 2, "tiny", true)).size(), 1U);
  router.response_started(1);
  EXPECT_FALSE(router.at_leaving_worker(1));
  use(1, table(2, {chain("a", 2, 2, true), chain("b", 1, 1)}));
  EXPECT_TRUE(router.at_leaving_worker(1));
  use(2, table(3, {chain("b", 1, 1)}));
  EXPECT_TRUE(router.at_leaving_worker(2));
  EXPECT_EQ(all<Finished>(router.failed(3, 1, "gone", true)).at(0).record.code, 502);
  EXPECT_EQ(all<Dispatch>(router.failed(3, 2, "gone", true)).at(0).chain, "b");
  EXPECT_EQ(router.addresses(), (std::set<std::string>{"b:80"}));
}

// Given a model without a worker and an expected start; expects a request to wait for the start timeout, and a refused one to
// be told the rest of it.
TEST_F(RouterTest, RetryAfterIsTheRestOfTheStart) {
  auto starting = table(1, {}, 1);
  starting.models[0].expected_start_s = 120;
  use(10, starting);
  EXPECT_TRUE(router.arrived(20, 1, "tiny", true).empty());
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 20 + 300);
  const auto refused = all<Reject>(router.arrived(30, 2, "tiny", true));
  EXPECT_EQ(refused.at(0).status, 429);
  EXPECT_EQ(refused.at(0).retry_after_s, 100);
  const auto late = all<Reject>(router.tick(320));
  EXPECT_EQ(late.at(0).status, 503);
  EXPECT_EQ(late.at(0).code, "no_worker");
  EXPECT_EQ(late.at(0).retry_after_s, 1);
}

// Given models with requests, one with none, one whose name JSON must escape, and little room; expects the longest queues, in
// ASCII, as whole entries only.
TEST_F(RouterTest, LoadReport) {
  EXPECT_EQ(load_report(router), "{}");
  auto tables = table(1, {chain("a", 1, 1)});
  for (const char* name : {"idle", "q\"\xc3\xa9"}) {
    tables.models.push_back(tables.models.front());
    tables.models.back().served_name = name;
  }
  use(0, tables);
  EXPECT_EQ(router.arrived(0, 1, "tiny", true).size(), 1U);
  EXPECT_EQ(router.arrived(0, 2, "q\"\xc3\xa9", true).size(), 1U);
  EXPECT_TRUE(router.arrived(0, 3, "q\"\xc3\xa9", true).empty());
  EXPECT_EQ(load_report(router), R"({"q\"\u00e9":[1,1],"tiny":[1,0]})");
  EXPECT_EQ(load_report(router, 25), R"({"q\"\u00e9":[1,1]})");
  EXPECT_EQ(load_report(router, 5), "{}");
}

// Given a share that shrinks, a chain that leaves the table, and one that drains, all while requests run; expects requests
// beyond the shares to be reported until they end, and "many" when they do not fit.
TEST_F(RouterTest, OverShareReport) {
  EXPECT_EQ(over_share_report(router), "{}");
  use(0, table(1, {chain("a", 1, 2), chain("b", 1, 1), chain("c", 1, 1)}));
  for (RequestId id = 1; id <= 4; ++id) EXPECT_EQ(all<Dispatch>(router.arrived(0, id, "tiny", true)).size(), 1U);
  EXPECT_EQ(over_share_report(router), "{}");
  auto smaller = table(2, {chain("a", 1, 1), chain("c", 1, 1)});
  smaller.models[0].chains[1].draining = true;
  use(1, smaller);
  EXPECT_EQ(over_share_report(router), R"({"tiny":{"a":2,"b":1,"c":1}})");
  EXPECT_EQ(over_share_report(router, 20), R"("many")");
  for (RequestId id = 1; id <= 4; ++id) (void)router.completed(2, id, {});
  EXPECT_EQ(over_share_report(router), "{}");
}

// Given a request that takes too long in flight; expects it to be cancelled, and its slot to go to the next.
TEST_F(RouterTest, RequestTimeout) {
  use(0, table(1, {chain("a", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", false)).size(), 1U);
  EXPECT_TRUE(router.arrived(590, 2, "tiny", false).empty());
  const auto actions = router.tick(600);
  EXPECT_EQ(all<Cancel>(actions).at(0).id, 1U);
  EXPECT_EQ(all<Reject>(actions).at(0).status, 504);
  EXPECT_EQ(all<Dispatch>(actions).at(0).id, 2U);
}

// Given clients that leave, waiting or in flight; expects the slot or place to be free immediately, and nothing sent to them.
TEST_F(RouterTest, ClientsThatLeave) {
  use(0, table(1, {chain("a", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  EXPECT_TRUE(router.arrived(0, 2, "tiny", true).empty());
  EXPECT_TRUE(router.arrived(0, 3, "tiny", true).empty());
  auto actions = router.client_gone(0.1, 2);
  ASSERT_EQ(actions.size(), 1U);
  EXPECT_EQ(all<Finished>(actions).at(0).record.code, kClientGone);
  actions = router.client_gone(0.2, 1);
  EXPECT_EQ(all<Finished>(actions).at(0).verdict, Verdict::kNotCounted);
  EXPECT_EQ(all<Dispatch>(actions).at(0).id, 3U);
  EXPECT_TRUE(router.client_gone(0.3, 1).empty());
}

// Given a model that leaves the table; expects 404 for waiting requests, and those in flight to go on.
TEST_F(RouterTest, AModelLeaves) {
  use(0, table(1, {chain("a", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  EXPECT_TRUE(router.arrived(0, 2, "tiny", true).empty());
  EXPECT_TRUE(router.arrived(0, 3, "tiny", true).empty());
  const auto actions = use(1, dispatch::RoutingTable{{1, 2}, {}});
  ASSERT_EQ(all<Reject>(actions).size(), 2U);
  EXPECT_EQ(all<Reject>(actions).at(1).status, 404);
  EXPECT_EQ(all<Reject>(router.arrived(1, 4, "tiny", true)).at(0).status, 404);
  EXPECT_EQ(all<Finished>(router.completed(2, 1, {})).size(), 1U);
  EXPECT_TRUE(router.chain_loads().empty());
  EXPECT_EQ(router.open_requests(), 0U);
  // A model with waiting requests and none in flight leaves just as cleanly.
  use(3, table(3, {}));
  EXPECT_TRUE(router.arrived(3, 5, "tiny", true).empty());
  EXPECT_EQ(all<Reject>(use(4, dispatch::RoutingTable{{1, 4}, {}})).size(), 1U);
}

// Given a gateway that stops; expects every open request to be answered, and a freed slot to start nothing new.
TEST_F(RouterTest, ShutDown) {
  use(0, table(1, {chain("a", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  EXPECT_TRUE(router.arrived(0, 2, "tiny", true).empty());
  const auto actions = router.shut_down(1);
  EXPECT_EQ(all<Reject>(actions).size(), 2U);
  EXPECT_EQ(all<Cancel>(actions).size(), 1U);
  EXPECT_TRUE(all<Dispatch>(actions).empty());
  EXPECT_EQ(router.open_requests(), 0U);
  EXPECT_EQ(all<Reject>(router.arrived(2, 3, "tiny", true)).at(0).status, 503);
}

// Given JSQ and two full chains; expects requests to wait at the one with fewer per slot, and to go when a slot of that chain
// becomes free, not of the other.
TEST_F(JsqRouterTest, RequestsWaitAtTheirChain) {
  use(0, table(1, {chain("a", 1, 1), chain("b", 1, 2)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).at(0).chain, "a");
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 2, "tiny", true)).at(0).chain, "b");
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 3, "tiny", true)).at(0).chain, "b");
  EXPECT_TRUE(router.arrived(0, 4, "tiny", true).empty());  // a: 1 for 1 slot, same as b's 2 for 2; the first listed wins
  EXPECT_TRUE(router.arrived(0, 5, "tiny", true).empty());  // b: 2 for 2 is fewer than a's 2 for 1
  EXPECT_TRUE(router.arrived(0, 6, "tiny", true).empty());  // b: 3 for 2
  EXPECT_EQ(router.queue_lengths().at("tiny"), 3);
  EXPECT_EQ(all<Dispatch>(router.completed(1, 2, {})).at(0).id, 5U);
  EXPECT_EQ(all<Dispatch>(router.completed(2, 3, {})).at(0).id, 6U);
  EXPECT_TRUE(all<Dispatch>(router.completed(3, 5, {})).empty()) << "4 waits at a";
  EXPECT_EQ(all<Dispatch>(router.completed(4, 1, {})).at(0).id, 4U);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 0);
}

// Given JSQ and a chain with waiting requests; when it refuses, drains or leaves, expects them to go to the other chain in
// their old order, and one that gives up to leave the queue.
TEST_F(JsqRouterTest, RequestsLeaveAChainThatStopsTakingThem) {
  use(0, table(1, {chain("a", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  for (RequestId id = 2; id <= 5; ++id) EXPECT_TRUE(router.arrived(0, id, "tiny", true).empty());
  EXPECT_EQ(router.client_gone(0.1, 3).size(), 1U);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 3);
  // b joins, and takes no request that waits at a; then a drains.
  EXPECT_TRUE(use(1, table(2, {chain("a", 1, 1), chain("b", 1, 2)})).empty());
  const auto moved = all<Dispatch>(use(2, table(3, {chain("a", 1, 1, true), chain("b", 1, 2)})));
  ASSERT_EQ(moved.size(), 2U);
  EXPECT_EQ(moved[0].id, 2U);
  EXPECT_EQ(moved[1].id, 4U);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 1);
  // b refuses 2: it and 5 have nowhere to go until b's pause ends; 2 is older.
  EXPECT_TRUE(router.refused(3, 2, Refusal::kFull).empty());
  EXPECT_EQ(router.queue_lengths().at("tiny"), 2);
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 3.05);
  EXPECT_EQ(all<Dispatch>(router.tick(3.06)).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(router.completed(4, 4, {})).at(0).id, 5U);
  EXPECT_EQ(all<Reject>(use(5, dispatch::RoutingTable{{1, 9}, {}})).size(), 0U);
}

// Given JSQ with a full chain; expects the queue's limit, the timeouts and the end of the model to apply to requests that wait
// at it.
TEST_F(JsqRouterTest, QueuesAtChainsAreBounded) {
  use(0, table(1, {chain("a", 1, 1)}, 2));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  EXPECT_TRUE(router.arrived(0, 2, "tiny", true).empty());
  EXPECT_TRUE(router.arrived(1, 3, "tiny", true).empty());
  EXPECT_EQ(all<Reject>(router.arrived(2, 4, "tiny", true)).at(0).status, 429);
  const auto late = router.tick(60);
  EXPECT_EQ(all<Reject>(late).at(0).id, 2U);
  EXPECT_EQ(all<Reject>(late).at(0).code, "queue_timeout");
  const auto over = use(60.5, dispatch::RoutingTable{{1, 2}, {}});
  ASSERT_EQ(all<Reject>(over).size(), 1U);
  EXPECT_EQ(all<Reject>(over).at(0).status, 404);
  EXPECT_EQ(all<Finished>(router.completed(61, 1, {})).size(), 1U);
  EXPECT_EQ(router.open_requests(), 0U);
}

}  // namespace
}  // namespace windlass::gateway
