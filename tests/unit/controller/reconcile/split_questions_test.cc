// Which questions the strategies get, when, and how long an answer is valid.
#include "controller/reconcile/split_questions.h"

#include <atomic>
#include <thread>

#include <gtest/gtest.h>

#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::controller {
namespace {

using planner::testing::a100;
using planner::testing::chat_service;
using planner::testing::h100;
using planner::testing::ready_worker;
using planner::testing::with_gpus;

planner::SplitAdvice advice(const std::string& prefill = "h100", const std::string& decode = "a100") {
  return {"distserve", true, {prefill, 1, 20}, {decode, 1, 10}, "drawn by hand"};
}

planner::Snapshot snapshot(const std::string& name = "chat") {
  planner::Snapshot out;
  out.accelerators = {with_gpus(h100(), 8), with_gpus(a100(), 8)};
  out.services = {chat_service(name)};
  out.services[0].accelerators.push_back({"a100", std::nullopt});
  out.services[0].scaling.strategy = planner::Family::kDisaggregated;
  return out;
}

// Asks a question and stores an answer.
void settle(SplitQuestions& questions, planner::Snapshot& at) {
  EXPECT_TRUE(questions.advise(at));
  const auto question = questions.next();
  ASSERT_TRUE(question);
  questions.answer(*question, advice());
  EXPECT_FALSE(questions.advise(at));
  EXPECT_EQ(at.services[0].split, advice());
}

// Given services of all strategies; expects that those with split phases are asked about once, with their spec and the classes
// that have GPUs, and have their answer from then on; others are not asked about.
TEST(SplitQuestions, EachIsAskedOnce) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot();
  at.services.push_back(chat_service("whole"));
  at.services.push_back(at.services[0]);
  at.services[2].id = {"default", "shapeless", "uid-shapeless"};
  at.services[2].shape.reset();
  at.accelerators[1].allocatable_gpus = 0;
  EXPECT_TRUE(questions.advise(at));
  EXPECT_FALSE(questions.advise(at));
  EXPECT_FALSE(at.services[0].split);
  const auto question = questions.next();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->service.id, at.services[0].id);
  EXPECT_EQ(question->service.slo, at.services[0].slo);
  ASSERT_EQ(question->classes.size(), 1U);
  EXPECT_EQ(question->classes[0].spec.name, "h100");
  EXPECT_FALSE(questions.next());
  EXPECT_FALSE(questions.advise(at));
  questions.answer(*question, advice());
  EXPECT_FALSE(questions.advise(at));
  EXPECT_EQ(at.services[0].split, advice());
  EXPECT_FALSE(at.services[1].split);
}

// Given services with strategy Auto; expects questions about those that split phases may pay for and about one that is already
// split, and no others. Given a spec for which they no longer pay; expects the answer to be dropped.
TEST(SplitQuestions, AutoIsAskedIfItMayPay) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot("long-prompts");
  planner::Service& long_prompts = at.services[0];
  long_prompts.scaling.strategy = planner::Family::kAuto;
  long_prompts.workload = {40, 4000, 100};
  long_prompts.slo.tpot_s = 0.03;
  at.services.push_back(chat_service("one-worker"));
  at.services.push_back(chat_service("split"));
  at.services[2].memory.configuration = "h100-1";
  at.services[2].memory.prefill_share = 1;
  EXPECT_TRUE(questions.advise(at));
  EXPECT_FALSE(questions.advise(at));
  for (const std::size_t asked : {2, 0}) {  // a service that is already split does not scale without an answer
    const auto question = questions.next();
    ASSERT_TRUE(question);
    EXPECT_EQ(question->service.id, at.services[asked].id);
    questions.answer(*question, advice());
  }
  EXPECT_FALSE(questions.next());
  EXPECT_FALSE(questions.advise(at));
  EXPECT_EQ(at.services[0].split, advice());
  EXPECT_FALSE(at.services[1].split);
  EXPECT_EQ(at.services[2].split, advice());

  at.services[0].workload = {40, 50, 1000};
  EXPECT_FALSE(questions.advise(at));
  EXPECT_FALSE(at.services[0].split);
  at.services[0].workload = {40, 4000, 100};
  at.services[0].scaling.max_workers = 1;
  EXPECT_FALSE(questions.advise(at)) << "a pair is two";
  at.services[0].scaling.max_workers = 4;
  EXPECT_TRUE(questions.advise(at));
  EXPECT_TRUE(questions.next());
  at.services[0].workload = {40, 50, 1000};
  EXPECT_FALSE(questions.advise(at));
  // It becomes split anyway, as after an edit of the strategy and back; then it is asked about.
  at.services[0].memory = at.services[2].memory;
  EXPECT_TRUE(questions.advise(at));
  EXPECT_TRUE(questions.next());
}

// Given an answer and then other load, workers, free GPUs, and an irrelevant class; expects no question. Given another spec;
// expects the old answer to be dropped immediately, and a late answer for it to be ignored.
TEST(SplitQuestions, AnAnswerIsValidAsLongAsTheSpec) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot();
  settle(questions, at);
  planner::testing::observe(at.services[0], 100, 40);
  at.services[0].workers = {ready_worker("h100-1", "h100", 1, 0, 100)};
  at.services[0].memory.desired = 3;
  at.accelerators[0].used_by_others = 6;
  at.accelerators.push_back(with_gpus(planner::testing::l4(), 4));
  EXPECT_FALSE(questions.advise(at));
  EXPECT_TRUE(at.services[0].split);

  at.services[0].slo.ttft_s = 2;
  EXPECT_TRUE(questions.advise(at));
  EXPECT_FALSE(at.services[0].split);
  const auto outdated = questions.next();
  at.services[0].slo.ttft_s = 3;
  EXPECT_TRUE(questions.advise(at));
  ASSERT_TRUE(outdated);
  questions.answer(*outdated, advice());
  EXPECT_FALSE(questions.advise(at));
  EXPECT_FALSE(at.services[0].split);
  const auto question = questions.next();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->service.slo.ttft_s, 3);
}

// Given classes that come and go; expects an answer to stay valid while workers run on the class that went, and to be requested
// again when none does, when the class has another price, or when the answer was that no split is possible. It stays in force
// until the new one arrives.
TEST(SplitQuestions, ClassesThatComeAndGo) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot();
  settle(questions, at);
  at.services[0].workers = {ready_worker("a100-1", "a100", 1, 0, 100)};
  at.accelerators[1].allocatable_gpus = 0;
  EXPECT_FALSE(questions.advise(at));
  at.services[0].workers.clear();
  EXPECT_TRUE(questions.advise(at));
  EXPECT_TRUE(at.services[0].split) << "until there is a new one";
  const auto question = questions.next();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->classes.size(), 1U);
  questions.answer(*question, {"", false, {}, {}, "nothing holds"});
  EXPECT_FALSE(questions.advise(at));
  EXPECT_FALSE(at.services[0].split->holds);
  at.accelerators[1].allocatable_gpus = 8;
  EXPECT_TRUE(questions.advise(at));
  questions.answer(*questions.next(), advice());
  EXPECT_FALSE(questions.advise(at));
  at.accelerators[0].spec.price_per_hour = 9;
  EXPECT_TRUE(questions.advise(at));
}

// Given measured transfers, then new measurements; expects a new question with them, and the old answer to stay until there is
// a new one. Measurements of a class that the service may not use have no effect.
TEST(SplitQuestions, MeasuredTransfersAreANewQuestion) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot();
  settle(questions, at);
  at.services[0].transfers = {{"l4", 1, {1e9, 0, 0, 9}}};
  EXPECT_FALSE(questions.advise(at));
  for (const double bandwidth : {1e9, 2e9}) {
    at.services[0].transfers = {{"a100", 1, {bandwidth, 0, 0, 9}}};
    EXPECT_TRUE(questions.advise(at));
    EXPECT_EQ(at.services[0].split, advice()) << "until there is a new one";
    const auto question = questions.next();
    ASSERT_TRUE(question);
    EXPECT_EQ(question->service.transfers, at.services[0].transfers);
    questions.answer(*question, advice("a100", "a100"));
    EXPECT_FALSE(questions.advise(at));
    EXPECT_EQ(at.services[0].split, advice("a100", "a100"));
    at.services[0].slo.ttft_s += 1;  // another spec, to replace the hand-made answer
    settle(questions, at);
  }
}

// Given measured worker times; expects no question for small changes, a question for changes of more than a third, and the old
// answer to stay until there is a new one. Uncertain estimates, and those of a class that the service may not use, have no
// effect.
TEST(SplitQuestions, ClearlyDifferentTimesAreANewQuestion) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot();
  settle(questions, at);
  planner::Service& service = at.services[0];
  const auto measured = [&](double prefill, double decode) {
    return planner::testing::measured(service, h100(), 1, prefill, decode);
  };
  service.estimates = {measured(1.1, 0.9)};
  EXPECT_FALSE(questions.advise(at));
  service.estimates = {measured(1, 3)};
  service.estimates[0].estimate.covariance.fill(1);
  EXPECT_FALSE(questions.advise(at));
  service.estimates = {measured(1, 3)};
  service.estimates[0].accelerator = "l4";
  EXPECT_FALSE(questions.advise(at));
  for (const auto& [prefill, decode] : {std::pair(1.0, 3.0), {2.0, 3.0}, {2.0, 1.5}}) {
    service.estimates = {measured(prefill, decode)};
    EXPECT_TRUE(questions.advise(at));
    EXPECT_EQ(service.split, advice()) << "until there is a new one";
    const auto question = questions.next();
    ASSERT_TRUE(question);
    EXPECT_EQ(question->service.estimates, service.estimates);
    service.estimates = {measured(prefill * 1.1, decode * 1.1)};
    EXPECT_FALSE(questions.advise(at));
    questions.answer(*question, advice());
    EXPECT_FALSE(questions.advise(at));
    EXPECT_EQ(service.split, advice());
  }
  service.estimates.clear();  // forgotten: the last estimate stays valid
  EXPECT_FALSE(questions.advise(at));
}

// Given a service that may use only one class; expects other classes to have no effect, even if no split was possible.
TEST(SplitQuestions, UnusableClassesHaveNoEffect) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot();
  at.services[0].accelerators = {{"h100", std::nullopt}};
  EXPECT_TRUE(questions.advise(at));
  const auto question = questions.next();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->classes.size(), 1U);
  questions.answer(*question, {"", false, {}, {}, "nothing holds"});
  at.accelerators[1].allocatable_gpus = 0;
  EXPECT_FALSE(questions.advise(at));
  at.accelerators[0].spec.price_per_hour = 9;
  EXPECT_TRUE(questions.advise(at));
}

// Given a queued question that an edit replaces; expects the new one to keep its position.
TEST(SplitQuestions, AnEditKeepsThePositionInTheQueue) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot("first");
  at.services.push_back(chat_service("second"));
  at.services[1].scaling.strategy = planner::Family::kDisaggregated;
  EXPECT_TRUE(questions.advise(at));
  at.services[0].slo.ttft_s = 2;
  EXPECT_TRUE(questions.advise(at));
  EXPECT_EQ(questions.next()->service.id, at.services[0].id);
  EXPECT_EQ(questions.next()->service.id, at.services[1].id);
}

// Given a service that is deleted while its question is out; expects the answer to be ignored, and a new service of the same
// name to be asked about again.
TEST(SplitQuestions, DeletedServicesAreForgotten) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot(), empty = snapshot();
  empty.services.clear();
  EXPECT_TRUE(questions.advise(at));
  const auto question = questions.next();
  ASSERT_TRUE(question);
  EXPECT_FALSE(questions.advise(empty));
  questions.answer(*question, advice());
  EXPECT_TRUE(questions.advise(at));
  EXPECT_FALSE(at.services[0].split);
}

// Given a thread that answers while the loop asks for a hundred services; expects all to have their answer in the end.
TEST(SplitQuestions, AnsweredFromAnotherThread) {
  SplitQuestions questions;
  planner::Snapshot at = snapshot();
  for (int i = 0; i < 100; ++i) {
    at.services.push_back(at.services[0]);
    at.services.back().id = {"default", "s" + std::to_string(i), "uid-" + std::to_string(i)};
  }
  std::atomic<bool> done = false;
  std::thread thread([&] {
    while (!done) {
      if (const auto question = questions.next()) questions.answer(*question, advice());
    }
  });
  const auto unanswered = [&] {
    (void)questions.advise(at);
    return std::any_of(at.services.begin(), at.services.end(), [](const auto& service) { return !service.split; });
  };
  while (unanswered()) std::this_thread::yield();
  done = true;
  thread.join();
}

}  // namespace
}  // namespace windlass::controller
