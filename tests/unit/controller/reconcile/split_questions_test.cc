// What the strategies are asked, when, and for how long an answer stands.
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

// A question that has been asked and answered.
void settle(SplitQuestions& questions, planner::Snapshot& at) {
  EXPECT_TRUE(questions.advise(at));
  const auto question = questions.next();
  ASSERT_TRUE(question);
  questions.answer(*question, advice());
  EXPECT_FALSE(questions.advise(at));
  EXPECT_EQ(at.services[0].split, advice());
}

// Given services of all strategies; those that want split phases are asked about once, with their spec and the classes that
// have GPUs, and have their answer from then on; no other is asked about.
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

// Given services with strategy Auto; those for which split phases may pay are asked about, and one that is split already, and
// no other. Given a spec for which they do not pay any more, the answer is gone.
TEST(SplitQuestions, AutoIsAskedWhereItMayPay) {
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
  for (const std::size_t asked : {2, 0}) {  // what is split already does not scale without an answer
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
  // It becomes split all the same, as by an edit of the strategy and back: then it is asked about.
  at.services[0].memory = at.services[2].memory;
  EXPECT_TRUE(questions.advise(at));
  EXPECT_TRUE(questions.next());
}

// Given an answer and then other load, workers, free GPUs, and a class that nobody asked for; nothing is asked. Given another
// spec, what was said of the old one is gone at once, and an answer that comes late for it is not counted.
TEST(SplitQuestions, AnAnswerStandsAsLongAsTheSpec) {
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

// Given classes that come and go; an answer stands while workers run on the class that went, and is asked for again when none
// does, when the class has another price, or when it was that nothing holds. It is in force until the new one is there.
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

// Given transfers that are measured, and measured anew; it is asked again with them, and the answer stands until there is a new
// one. What was measured of a class that it may not use is nothing to it.
TEST(SplitQuestions, TransfersThatAreMeasured) {
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
    at.services[0].slo.ttft_s += 1;  // another spec, for the answer by hand
    settle(questions, at);
  }
}

// Given times that workers are measured at; what they say nearly as before is no question, what is off by more than a third is
// asked, and the answer stands until there is a new one. An estimate that is not sure, or of a class that it may not use, is
// nothing to it.
TEST(SplitQuestions, TimesThatAreMeasured) {
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
  service.estimates.clear();  // forgotten: what was believed last is as good as anything
  EXPECT_FALSE(questions.advise(at));
}

// Given a service that may use one class alone; that others come and go is nothing to it, also where no split held.
TEST(SplitQuestions, ClassesThatItMayNotUse) {
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

// Given a question that waits behind another one, and that an edit makes a new one of; it keeps its place in the line.
TEST(SplitQuestions, AnEditKeepsThePlace) {
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

// Given a service that is deleted while its question is out; the answer is nobody's, and one of the same name is asked about
// anew.
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

// Given a thread that answers while the loop asks for a hundred services; all have their answer in the end.
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
