// The router, one rule at a time.
#include "gateway/load_report.h"
#include "tests/unit/gateway/router_fixture.h"

namespace windlass::gateway {
namespace {

class JsqRouterTest : public RouterTest {
 protected:
  JsqRouterTest() : RouterTest({100, 60, 600, dispatch::PolicyKind::kJsq}) {}
};

// Given two chains; the fastest free one is chosen, then the other, then requests wait and go in order of arrival.
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

// Given a chain of three workers; a request goes to the first and is told of the others, of the newest table's.
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

  // Workers that process a prompt token in 1 ms: 500 of them are timeToFirstToken.
  static dispatch::RoutingTable known(std::int64_t counter, std::vector<dispatch::Chain> chains, double share = 1) {
    dispatch::RoutingTable next = table(counter, std::move(chains));
    next.models[0].latencies = {
        {.prefill_token_s = 1e-3, .context_token_s = 1e-6, .decode_s = 0.01, .kv_capacity_tokens = 4000}};
    for (dispatch::Chain& each : next.models[0].chains) {
      each.latency = 0;
      each.share = share;
    }
    return next;
  }
  // What it learns from: four bytes a token, answers of 50 tokens.
  void learn() {
    for (RequestId id = 9001; id <= 9040; ++id) {
      (void)router.arrived(0, id, "tiny", true, 4 * 300);
      router.tokens_sent(0, id, 50);
      (void)router.completed(0, id, {200, 300, 50});
    }
  }
};

// Given prompts of 300 tokens of which one alone leaves room in timeToFirstToken; each worker gets one though it has four
// slots, the third waits, and goes where a first token has come and enough was saved for those who read there.
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

// Given short prompts; they are packed into one worker, the fullest that holds them.
TEST_F(AladdinRouterTest, ShortPromptsArePacked) {
  use(0, known(1, {chain("a", 1, 8), chain("b", 1, 8)}));
  learn();
  for (RequestId id = 1; id <= 5; ++id) {
    EXPECT_EQ(all<Dispatch>(router.arrived(1, id, "tiny", true, 200)).at(0).chain, "a") << id;
  }
}

// Given an answer that is not streamed; its prompt counts until it must have been processed, and nobody is stalled after it.
TEST_F(AladdinRouterTest, AnswersInOnePieceCountUntilTheirPromptIsThrough) {
  use(0, known(1, {chain("a", 1, 4)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", false, 1200)).size(), 1U);
  EXPECT_TRUE(router.arrived(1, 2, "tiny", false, 1200).empty());
  EXPECT_TRUE(router.tick(1.29).empty());
  EXPECT_EQ(all<Dispatch>(router.tick(1.31)).at(0).id, 2U);
}

// Given half of a worker's slots; others are taken to load it as much, and a prompt of 300 tokens counts for 600.
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

// Given a longer prompt than any cache holds by what is guessed; an empty worker takes it all the same: the worker knows.
TEST_F(AladdinRouterTest, AGuessRefusesNobody) {
  use(0, known(1, {chain("a", 1, 4)}));
  learn();
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true, 4'000'000)).size(), 1U);
}

// Given a refusal, a time-out and a client who leaves; the room that they had is given back.
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

// Given objectives that change under a request in flight; what it holds counts on.
TEST_F(AladdinRouterTest, NewObjectivesKnowWhatIsInFlight) {
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

// Given an objective of half a second and a slot that is taken for a second; who came early has missed it and waits behind
// those who came lately, and is served when they are.
TEST_F(RouterTest, WhoIsLateWaitsBehind) {
  use(0, table(1, {chain("a", 1, 1)}));
  for (const RequestId id : {1, 2, 3}) (void)router.arrived(0.1 * static_cast<double>(id), id, "tiny", true);
  (void)router.arrived(0.9, 4, "tiny", true);
  (void)router.arrived(0.95, 5, "tiny", true);
  EXPECT_EQ(all<Dispatch>(router.completed(1, 1, {})).at(0).id, 4U);
  EXPECT_EQ(all<Dispatch>(router.completed(1.1, 4, {})).at(0).id, 5U);
  EXPECT_EQ(all<Dispatch>(router.completed(1.2, 5, {})).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(router.completed(1.3, 2, {})).at(0).id, 3U);
}

// Given the same by arrival; it is first come, first served.
TEST_F(ArrivalRouterTest, FirstComeFirstServed) {
  use(0, table(1, {chain("a", 1, 1)}));
  for (const RequestId id : {1, 2}) (void)router.arrived(0.1 * static_cast<double>(id), id, "tiny", true);
  (void)router.arrived(0.9, 3, "tiny", true);
  EXPECT_EQ(all<Dispatch>(router.completed(1, 1, {})).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(router.completed(1.1, 2, {})).at(0).id, 3U);
}

// Given first tokens that take 0.4 s from their dispatch; a request with 0.3 s left counts as late, one with 0.45 s does not.
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

// Given a line that newcomers in time keep going past one who is late; after the queue timeout he is not refused but goes on
// waiting until the request timeout, while one whose turn would not have come by arrival either gets 503.
TEST_F(RouterTest, NobodyIsRefusedForBeingOvertaken) {
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

// Given no table, an unknown model, a full queue; the answers are 503, 404 and 429, with Retry-After where a retry makes sense.
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
  EXPECT_EQ(all<Reject>(full).at(0).retry_after_s, 6);  // itself, the one that waits and the one it would join, at 0.5 a second
  EXPECT_EQ(all<Finished>(full).at(0).verdict, Verdict::kMissed);
}

// Given a model without a chain; requests wait, and go when the table brings one. Without one in time (the start
// time-out): 503 with Retry-After.
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

// Given a request that waited for the start of the first worker longer than the queue time-out, and is then refused by it; it
// goes on waiting as long as a start may take.
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

// Given tables out of order; older and equal ones are ignored, a higher term wins with any counter.
TEST_F(RouterTest, TableVersions) {
  use(0, table(5, {chain("a", 1, 1)}));
  EXPECT_FALSE(router.table_changed(1, table(4, {})).accepted);
  EXPECT_FALSE(router.table_changed(1, table(5, {})).accepted);
  EXPECT_EQ(router.chain_loads().size(), 1U);
  EXPECT_TRUE(router.table_changed(1, table(1, {}, 10, 2)).accepted);
  EXPECT_FALSE(router.table_changed(1, table(99, {}, 10, 1)).accepted);
}

// Given a chain that begins to drain, then vanishes; it gets nothing new at once, and what it holds goes on and is counted.
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

// Given a vanished chain that comes back while it still holds a request; the old request keeps its slot.
TEST_F(RouterTest, AChainThatComesBackIsStillLoaded) {
  use(0, table(1, {chain("a", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(1, 1, "tiny", true)).size(), 1U);
  use(1, table(2, {}));
  use(2, table(3, {chain("a", 1, 1)}));
  EXPECT_TRUE(router.arrived(3, 2, "tiny", true).empty());
  EXPECT_EQ(all<Dispatch>(router.completed(4, 1, {})).at(0).id, 2U);
  // The same name at another address is another worker.
  auto moved = chain("a", 1, 1);
  moved.hops = {"b:80"};
  use(5, table(4, {moved}));
  EXPECT_EQ(all<Dispatch>(router.arrived(5, 3, "tiny", true)).at(0).address, "b:80");
}

// Given a worker that refuses; the request goes to another one in its old order, and the refusing chain rests for a while.
TEST_F(RouterTest, Refusals) {
  use(0, table(1, {chain("a", 9, 1), chain("b", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).at(0).chain, "a");
  EXPECT_EQ(all<Dispatch>(router.refused(0.01, 1, Refusal::kConnect)).at(0).chain, "b");
  EXPECT_TRUE(router.arrived(0.02, 2, "tiny", true).empty());
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 0.11);
  EXPECT_TRUE(router.tick(0.1).empty());
  EXPECT_EQ(all<Dispatch>(router.tick(0.12)).at(0).id, 2U);
  // Refused again: twice as long; and an older request would go before a younger one.
  EXPECT_TRUE(router.refused(0.13, 2, Refusal::kConnect).empty());
  EXPECT_TRUE(router.arrived(0.14, 3, "tiny", true).empty());
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 0.33);
  EXPECT_EQ(all<Dispatch>(router.completed(0.2, 1, {})).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(router.tick(0.34)).at(0).id, 3U);
  EXPECT_TRUE(router.accepted(0.35, 3).empty());
  // Taken at last: the pauses begin anew.
  EXPECT_TRUE(router.refused(0.4, 3, Refusal::kFull).empty());
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 0.45);
}

// Given a worker that refuses a request and then answers one that it had taken before; who waits goes there at once.
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

// Given a worker that breaks, in exchanges that may not move; before a byte was sent it is a 502, after that the stream is
// cancelled, and neither is retried.
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

// Given a worker that breaks before a byte was sent, in an exchange that may move; the request goes to another worker from its
// old place in the queue, and is a 502 when that one breaks too.
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

// Given a worker that takes connections and does not answer; it gets no new request, what it holds stays, and it gets requests
// again when it answers.
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

// Given a worker out of reach with three requests, one that streams; the two others are taken back and go elsewhere, the stream
// stays until the worker is lost and then ends with 502; one that was taken back before ends with 502 only then, too.
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

// Given a draining chain that leaves the table with one request that streams and one that has not begun; as its worker ends,
// the second waits again and is served elsewhere, the first ends with an error.
TEST_F(RouterTest, ADrainThatTookTooLong) {
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

// Given a model without a worker and a start that is expected; a request may wait for the start time-out, and one that is
// refused is told what is left of the start.
TEST_F(RouterTest, FromZero) {
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

// Given models with requests, one with none, one with a name that JSON must escape, and little room; the longest queues are
// told, in ASCII, whole entries only.
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

// Given a share that shrinks, a chain that leaves the table, and one that drains, all while requests run; what is held beyond
// the shares is told until it has ended, and "many" where there is no room for it.
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

// Given a request that takes too long in flight; it is cancelled, and its slot goes to the next.
TEST_F(RouterTest, RequestTimeout) {
  use(0, table(1, {chain("a", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", false)).size(), 1U);
  EXPECT_TRUE(router.arrived(590, 2, "tiny", false).empty());
  const auto actions = router.tick(600);
  EXPECT_EQ(all<Cancel>(actions).at(0).id, 1U);
  EXPECT_EQ(all<Reject>(actions).at(0).status, 504);
  EXPECT_EQ(all<Dispatch>(actions).at(0).id, 2U);
}

// Given clients that leave, waiting or in flight; the slot or place is free at once and nothing is sent to them.
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

// Given a model that leaves the table; those that wait for it get 404, what is in flight goes on.
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
  // A model that waits with nothing in flight leaves as cleanly.
  use(3, table(3, {}));
  EXPECT_TRUE(router.arrived(3, 5, "tiny", true).empty());
  EXPECT_EQ(all<Reject>(use(4, dispatch::RoutingTable{{1, 4}, {}})).size(), 1U);
}

// Given the end of the gateway; all that is open is answered, and a freed slot starts nothing new.
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

// Given JSQ and two full chains; requests wait at the one with fewer for its slots, and go when a slot of that chain becomes
// free, not when one of the other does.
TEST_F(JsqRouterTest, RequestsWaitAtTheirChain) {
  use(0, table(1, {chain("a", 1, 1), chain("b", 1, 2)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).at(0).chain, "a");
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 2, "tiny", true)).at(0).chain, "b");
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 3, "tiny", true)).at(0).chain, "b");
  EXPECT_TRUE(router.arrived(0, 4, "tiny", true).empty());  // a: 1 for 1 slot, as b 2 for 2; the first listed
  EXPECT_TRUE(router.arrived(0, 5, "tiny", true).empty());  // b: 2 for 2 is fewer than a's 2 for 1
  EXPECT_TRUE(router.arrived(0, 6, "tiny", true).empty());  // b: 3 for 2
  EXPECT_EQ(router.queue_lengths().at("tiny"), 3);
  EXPECT_EQ(all<Dispatch>(router.completed(1, 2, {})).at(0).id, 5U);
  EXPECT_EQ(all<Dispatch>(router.completed(2, 3, {})).at(0).id, 6U);
  EXPECT_TRUE(all<Dispatch>(router.completed(3, 5, {})).empty()) << "4 waits at a";
  EXPECT_EQ(all<Dispatch>(router.completed(4, 1, {})).at(0).id, 4U);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 0);
}

// Given JSQ and a chain at which requests wait; when it refuses, drains or leaves, they go to the other chain in their old
// order; one that gives up leaves the queue.
TEST_F(JsqRouterTest, RequestsLeaveAChainThatStopsTakingThem) {
  use(0, table(1, {chain("a", 1, 1)}));
  EXPECT_EQ(all<Dispatch>(router.arrived(0, 1, "tiny", true)).size(), 1U);
  for (RequestId id = 2; id <= 5; ++id) EXPECT_TRUE(router.arrived(0, id, "tiny", true).empty());
  EXPECT_EQ(router.client_gone(0.1, 3).size(), 1U);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 3);
  // b comes, and takes nobody who waits at a; then a drains.
  EXPECT_TRUE(use(1, table(2, {chain("a", 1, 1), chain("b", 1, 2)})).empty());
  const auto moved = all<Dispatch>(use(2, table(3, {chain("a", 1, 1, true), chain("b", 1, 2)})));
  ASSERT_EQ(moved.size(), 2U);
  EXPECT_EQ(moved[0].id, 2U);
  EXPECT_EQ(moved[1].id, 4U);
  EXPECT_EQ(router.queue_lengths().at("tiny"), 1);
  // b refuses 2: it and 5 have nowhere to go until b has rested; 2 is older.
  EXPECT_TRUE(router.refused(3, 2, Refusal::kFull).empty());
  EXPECT_EQ(router.queue_lengths().at("tiny"), 2);
  EXPECT_DOUBLE_EQ(*router.next_deadline_s(), 3.05);
  EXPECT_EQ(all<Dispatch>(router.tick(3.06)).at(0).id, 2U);
  EXPECT_EQ(all<Dispatch>(router.completed(4, 4, {})).at(0).id, 5U);
  EXPECT_EQ(all<Reject>(use(5, dispatch::RoutingTable{{1, 9}, {}})).size(), 0U);
}

// Given JSQ with a full chain; the queue's limit and time-outs hold for those that wait at it, and so does the end of the
// model.
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
