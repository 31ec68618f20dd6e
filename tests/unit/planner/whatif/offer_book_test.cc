// Which questions the strategies get, when, and how long an answer is valid.
#include "planner/whatif/offer_book.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::search {
namespace {

using planner::testing::a100;
using planner::testing::chat_service;
using planner::testing::h100;
using planner::testing::ready_worker;
using planner::testing::with_gpus;

// A service that assumes a rate: without one, only split phases are asked about.
planner::Service service_named(const std::string& name) {
  planner::Service service = chat_service(name);
  service.workload.requests_per_s = 1;
  return service;
}

planner::Offers answer(const std::string& prefill = "h100", const std::string& decode = "a100") {
  return planner::testing::split_offers({prefill, 1, 20}, {decode, 1, 10});
}

planner::Snapshot snapshot(const std::string& name = "chat") {
  planner::Snapshot out;
  out.accelerators = {with_gpus(h100(), 8), with_gpus(a100(), 8)};
  out.services = {service_named(name)};
  out.services[0].accelerators.push_back({"a100", std::nullopt});
  out.services[0].scaling.strategy = planner::Family::kDisaggregated;
  return out;
}

// Asks a question and stores an answer.
void settle(OfferBook& book, planner::Snapshot& at) {
  EXPECT_TRUE(book.attach(at));
  const auto question = book.next();
  ASSERT_TRUE(question);
  book.answer(*question, answer());
  EXPECT_FALSE(book.attach(at));
  EXPECT_EQ(at.services[0].offers, answer());
}

// Given services of all strategies; expects one question about each, with its spec and the classes that have GPUs, and their
// answers from then on. Services without a shape, chains, and whole workers without an assumed rate are not asked about.
TEST(OfferBook, EachIsAskedOnce) {
  OfferBook book;
  planner::Snapshot at = snapshot();
  at.now_s = 100;
  at.services.push_back(service_named("whole"));
  at.services.push_back(service_named("shapeless"));
  at.services[2].shape.reset();
  at.services.push_back(service_named("chained"));
  at.services[3].scaling.strategy = planner::Family::kChained;
  at.services.push_back(chat_service("without-a-rate"));
  at.accelerators[1].allocatable_gpus = 0;
  EXPECT_TRUE(book.attach(at));
  at.now_s = 110;
  EXPECT_FALSE(book.attach(at));
  for (const std::size_t asked : {0, 1}) {
    EXPECT_FALSE(at.services[asked].offers);
    EXPECT_EQ(at.services[asked].searching_since_s, 100);
    const auto question = book.next();
    ASSERT_TRUE(question);
    EXPECT_EQ(question->service.id, at.services[asked].id);
    EXPECT_EQ(question->service.slo, at.services[asked].slo);
    EXPECT_EQ(question->service.scaling.strategy, at.services[asked].scaling.strategy);
    ASSERT_EQ(question->classes.size(), 1U);
    EXPECT_EQ(question->classes[0].spec.name, "h100");
    book.answer(*question, answer());
    EXPECT_FALSE(book.attach(at));
    EXPECT_EQ(at.services[asked].offers, answer());
    EXPECT_FALSE(at.services[asked].searching_since_s);
  }
  EXPECT_FALSE(book.next());
  for (const std::size_t ignored : {2, 3}) {
    EXPECT_FALSE(at.services[ignored].offers);
    EXPECT_FALSE(at.services[ignored].searching_since_s);
  }
}

// Given services with strategy Auto, one of which runs split phases, and one that must split them; expects questions first
// about those, because they do not scale without an answer.
TEST(OfferBook, ServicesThatStandStillComeFirst) {
  OfferBook book;
  planner::Snapshot at = snapshot("must-split");
  planner::Service parts = service_named("split");
  parts.memory.configuration = "h100-1";
  parts.memory.prefill_share = 1;
  parts.slo.ttft_s = 2;
  at.services = {service_named("whole"), parts, at.services[0]};
  EXPECT_TRUE(book.attach(at));
  for (const char* name : {"split", "must-split", "whole"}) EXPECT_EQ(book.next()->service.id.name, name);
  EXPECT_FALSE(book.next());
}

// Given an edit of maxWorkers to one; expects a question without split phases, which need two workers. Other limits on the
// number of workers, and on what they cost, are no part of the question.
TEST(OfferBook, OneWorkerCannotBeSplit) {
  OfferBook book;
  planner::Snapshot at = snapshot();
  at.services[0].scaling.strategy = planner::Family::kAuto;
  settle(book, at);
  at.services[0].scaling.max_workers = 4;
  at.services[0].scaling.max_cost_per_hour = 8;
  EXPECT_FALSE(book.attach(at));
  at.services[0].scaling.max_workers = 1;
  EXPECT_TRUE(book.attach(at));
  EXPECT_FALSE(at.services[0].offers);
  const auto question = book.next();
  ASSERT_TRUE(question);
  EXPECT_FALSE(question->service.may_split);
}

// Given services that ask the same, one of which joins while the search runs, and one that asks something else; expects one
// search for all that ask the same.
TEST(OfferBook, EqualQuestionsAreSearchedOnce) {
  OfferBook book;
  planner::Snapshot at = snapshot("a");
  const auto add = [&](const std::string& name) {
    at.services.push_back(at.services[0]);
    at.services.back().id = {"default", name, "uid-" + name};
  };
  add("b");
  add("other");
  at.services.back().slo.ttft_s = 2;
  EXPECT_TRUE(book.attach(at));
  const auto question = book.next();
  ASSERT_TRUE(question);
  add("c");
  EXPECT_TRUE(book.attach(at));
  book.answer(*question, answer());
  EXPECT_FALSE(book.attach(at));
  for (const planner::Service& service : at.services) EXPECT_EQ(service.offers.has_value(), service.id.name != "other");
  EXPECT_EQ(book.next()->service.id.name, "other");
  EXPECT_FALSE(book.next());
}

// Given quick searches that were cut short; expects a longer one for each service, but only after all have an answer, and its
// answer in place of the first.
TEST(OfferBook, ALongerRoundFollows) {
  OfferBook book;
  planner::Snapshot at = snapshot("first");
  at.services.push_back(at.services[0]);
  at.services[1].id = {"default", "second", "uid-second"};
  at.services[1].slo.ttft_s = 2;
  EXPECT_TRUE(book.attach(at));
  planner::Offers cut_short = answer();
  cut_short.complete = false;
  for (const int round : {0, 1}) {
    for (const std::size_t asked : {0, 1}) {
      const auto question = book.next();
      ASSERT_TRUE(question);
      EXPECT_EQ(question->service.id, at.services[asked].id);
      EXPECT_EQ(question->round, round);
      EXPECT_LT(max_iterations(0), max_iterations(1));
      const planner::Offers found = round == 0 ? cut_short : answer("a100", "a100");
      book.answer(*question, found);
      EXPECT_FALSE(book.attach(at));
      EXPECT_EQ(at.services[asked].offers, found);
      EXPECT_FALSE(at.services[asked].searching_since_s) << "it has an answer";
    }
  }
  EXPECT_FALSE(book.next());
  // A new service comes before longer rounds of others.
  at.services[0].slo.ttft_s = 3;
  EXPECT_TRUE(book.attach(at));
  book.answer(*book.next(), cut_short);
  at.services.push_back(at.services[0]);
  at.services[2].id = {"default", "third", "uid-third"};
  at.services[2].slo.ttft_s = 4;
  EXPECT_TRUE(book.attach(at));
  EXPECT_EQ(book.next()->service.id.name, "third");
  EXPECT_EQ(book.next()->service.id.name, "first");
}

// Given an answer and then other load, workers, free GPUs, and an irrelevant class; expects no question. Given another spec;
// expects the old answer to be dropped immediately, and a late answer for it to be ignored.
TEST(OfferBook, AnAnswerIsValidAsLongAsTheSpec) {
  OfferBook book;
  planner::Snapshot at = snapshot();
  settle(book, at);
  planner::testing::observe(at.services[0], 100, 40);
  at.services[0].workers = {ready_worker("h100-1", "h100", 1, 0, 100)};
  at.services[0].memory.desired = 3;
  at.accelerators[0].used_by_others = 6;
  at.accelerators.push_back(with_gpus(planner::testing::l4(), 4));
  EXPECT_FALSE(book.attach(at));
  EXPECT_TRUE(at.services[0].offers);

  at.services[0].slo.ttft_s = 2;
  EXPECT_TRUE(book.attach(at));
  EXPECT_FALSE(at.services[0].offers);
  const auto outdated = book.next();
  at.services[0].slo.ttft_s = 3;
  EXPECT_TRUE(book.attach(at));
  ASSERT_TRUE(outdated);
  book.answer(*outdated, answer());
  EXPECT_FALSE(book.attach(at));
  EXPECT_FALSE(at.services[0].offers);
  const auto question = book.next();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->service.slo.ttft_s, 3);
}

// Given classes that come and go; expects an answer to stay valid while workers run on the class that went, and to be requested
// again when none does, when the class has another price, or when the answer was that no split is possible. It stays in force
// until the new one arrives.
TEST(OfferBook, ClassesThatComeAndGo) {
  OfferBook book;
  planner::Snapshot at = snapshot();
  settle(book, at);
  at.services[0].workers = {ready_worker("a100-1", "a100", 1, 0, 100)};
  at.accelerators[1].allocatable_gpus = 0;
  EXPECT_FALSE(book.attach(at));
  at.services[0].workers.clear();
  EXPECT_TRUE(book.attach(at));
  EXPECT_TRUE(at.services[0].offers) << "until there is a new one";
  const auto question = book.next();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->classes.size(), 1U);
  book.answer(*question, planner::testing::no_offers("nothing holds"));
  EXPECT_FALSE(book.attach(at));
  EXPECT_TRUE(at.services[0].offers->confirmed.empty());
  at.accelerators[1].allocatable_gpus = 8;
  EXPECT_TRUE(book.attach(at));
  book.answer(*book.next(), answer());
  EXPECT_FALSE(book.attach(at));
  at.accelerators[0].spec.price_per_hour = 9;
  EXPECT_TRUE(book.attach(at));
}

// Given a class whose first node joins after the search, and an edit of one that no offer uses; expects a new question about
// each, with the old answer until the new one arrives. Expects none when its number of GPUs changes, or when they go and come
// back. The service names its classes, or allows all.
TEST(OfferBook, AClassThatAppearsIsAskedAbout) {
  for (const bool named : {true, false}) {
    OfferBook book;
    planner::Snapshot at = snapshot();
    if (named) {
      at.services[0].accelerators.push_back({"l4", std::nullopt});
      at.accelerators.push_back(with_gpus(planner::testing::l4(), 0));
    } else {
      at.services[0].accelerators.clear();
    }
    settle(book, at);
    const auto expect_asked = [&] {
      EXPECT_TRUE(book.attach(at));
      EXPECT_EQ(at.services[0].offers, answer()) << "until there is a new one";
      const auto question = book.next();
      ASSERT_TRUE(question);
      ASSERT_EQ(question->classes.size(), 3U);
      EXPECT_EQ(question->classes[2].spec, at.accelerators[2].spec);
      book.answer(*question, answer());
    };
    at.accelerators.resize(2);
    at.accelerators.push_back(with_gpus(planner::testing::l4(), 1));
    expect_asked();
    for (const int gpus : {4, 0, 2}) {
      at.accelerators[2].allocatable_gpus = gpus;
      EXPECT_FALSE(book.attach(at)) << gpus;
    }
    at.accelerators[2].spec.price_per_hour /= 2;
    expect_asked();
  }
}

// Given nodes of two GPUs of a class whose data sheet says eight; expects a question with two per node, no new one when a node
// goes or its GPUs vanish for a moment, and a new one when a larger node joins.
TEST(OfferBook, NoWorkerIsLargerThanTheLargestNode) {
  OfferBook book;
  planner::Snapshot at = snapshot();
  for (planner::AcceleratorState& state : at.accelerators) state.mode = planner::CapacityMode::kObserved;
  const auto nodes = [&](const std::vector<int>& gpus) {
    at.nodes.clear();
    for (const int count : gpus) at.nodes.push_back({"n" + std::to_string(at.nodes.size()), "h100", count, 0, "", false});
  };
  nodes({2, 2, 1});
  EXPECT_TRUE(book.attach(at));
  const auto question = book.next();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->classes[0].spec.gpus_per_node, 2);
  EXPECT_EQ(question->classes[1].spec.gpus_per_node, 8) << "its nodes are not known";
  book.answer(*question, answer());
  nodes({1});
  EXPECT_FALSE(book.attach(at));
  nodes({0, 1});
  EXPECT_FALSE(book.attach(at));
  nodes({1, 4});
  EXPECT_TRUE(book.attach(at));
  EXPECT_EQ(book.next()->classes[0].spec.gpus_per_node, 4);
}

// Given measured transfers, then new measurements; expects a new question with them, and the old answer to stay until there is
// a new one. Measurements of a class that the service may not use have no effect.
TEST(OfferBook, MeasuredTransfersAreANewQuestion) {
  OfferBook book;
  planner::Snapshot at = snapshot();
  settle(book, at);
  at.services[0].transfers = {{"l4", 1, {1e9, 0, 0, 9}}};
  EXPECT_FALSE(book.attach(at));
  for (const double bandwidth : {1e9, 2e9}) {
    at.services[0].transfers = {{"a100", 1, {bandwidth, 0, 0, 9}}};
    EXPECT_TRUE(book.attach(at));
    EXPECT_EQ(at.services[0].offers, answer()) << "until there is a new one";
    const auto question = book.next();
    ASSERT_TRUE(question);
    EXPECT_EQ(question->service.transfers, at.services[0].transfers);
    book.answer(*question, answer("a100", "a100"));
    EXPECT_FALSE(book.attach(at));
    EXPECT_EQ(at.services[0].offers, answer("a100", "a100"));
    at.services[0].slo.ttft_s += 1;  // another spec, to replace the hand-made answer
    settle(book, at);
  }
}

// Given measured worker times; expects no question for small changes, a question for changes of more than a third, and the old
// answer to stay until there is a new one. Uncertain estimates, and those of a class that the service may not use, have no
// effect.
TEST(OfferBook, ClearlyDifferentTimesAreANewQuestion) {
  OfferBook book;
  planner::Snapshot at = snapshot();
  settle(book, at);
  planner::Service& service = at.services[0];
  const auto measured = [&](double prefill, double decode) {
    return planner::testing::measured(service, h100(), 1, prefill, decode);
  };
  service.estimates = {measured(1.1, 0.9)};
  EXPECT_FALSE(book.attach(at));
  service.estimates = {measured(1, 3)};
  service.estimates[0].estimate.covariance.fill(1);
  EXPECT_FALSE(book.attach(at));
  service.estimates = {measured(1, 3)};
  service.estimates[0].accelerator = "l4";
  EXPECT_FALSE(book.attach(at));
  for (const auto& [prefill, decode] : {std::pair(1.0, 3.0), {2.0, 3.0}, {2.0, 1.5}}) {
    service.estimates = {measured(prefill, decode)};
    EXPECT_TRUE(book.attach(at));
    EXPECT_EQ(service.offers, answer()) << "until there is a new one";
    const auto question = book.next();
    ASSERT_TRUE(question);
    EXPECT_EQ(question->service.estimates, service.estimates);
    service.estimates = {measured(prefill * 1.1, decode * 1.1)};
    EXPECT_FALSE(book.attach(at));
    book.answer(*question, answer());
    EXPECT_FALSE(book.attach(at));
    EXPECT_EQ(service.offers, answer());
  }
  service.estimates.clear();  // forgotten: the last estimate stays valid
  EXPECT_FALSE(book.attach(at));
}

// Given a PerformanceProfile that comes after the first question, with times near the data sheet's; expects a new question, as
// `windlass plan` asks with the profile from the start, and none for the same profile again.
TEST(OfferBook, AProfileIsANewQuestion) {
  OfferBook book;
  planner::Snapshot at = snapshot();
  settle(book, at);
  planner::Service& service = at.services[0];
  service.estimates = {planner::testing::measured(service, h100(), 1, 1.1, 0.9)};
  service.estimates[0].from_profile = true;
  EXPECT_TRUE(book.attach(at));
  const auto question = book.next();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->service.estimates, service.estimates);
  book.answer(*question, answer());
  EXPECT_FALSE(book.attach(at));
}

// Given a service that may use only one class; expects other classes to have no effect, even if no split was possible.
TEST(OfferBook, UnusableClassesHaveNoEffect) {
  OfferBook book;
  planner::Snapshot at = snapshot();
  at.services[0].accelerators = {{"h100", std::nullopt}};
  EXPECT_TRUE(book.attach(at));
  const auto question = book.next();
  ASSERT_TRUE(question);
  EXPECT_EQ(question->classes.size(), 1U);
  book.answer(*question, planner::testing::no_offers("nothing holds"));
  at.accelerators[1].allocatable_gpus = 0;
  EXPECT_FALSE(book.attach(at));
  at.accelerators[0].spec.price_per_hour = 9;
  EXPECT_TRUE(book.attach(at));
}

// Given a queued question that an edit replaces; expects the new one to keep its position.
TEST(OfferBook, AnEditKeepsThePositionInTheQueue) {
  OfferBook book;
  planner::Snapshot at = snapshot("first");
  at.services.push_back(service_named("second"));
  at.services[1].scaling.strategy = planner::Family::kDisaggregated;
  EXPECT_TRUE(book.attach(at));
  at.services[0].slo.ttft_s = 2;
  EXPECT_TRUE(book.attach(at));
  EXPECT_EQ(book.next()->service.id, at.services[0].id);
  EXPECT_EQ(book.next()->service.id, at.services[1].id);
}

// Given a service that is deleted while its question is out; expects the answer to be ignored, and a new service of the same
// name to be asked about again.
TEST(OfferBook, DeletedServicesAreForgotten) {
  OfferBook book;
  planner::Snapshot at = snapshot(), empty = snapshot();
  empty.services.clear();
  EXPECT_TRUE(book.attach(at));
  const auto question = book.next();
  ASSERT_TRUE(question);
  EXPECT_FALSE(book.attach(empty));
  book.answer(*question, answer());
  EXPECT_TRUE(book.attach(at));
  EXPECT_FALSE(at.services[0].offers);
}

}  // namespace
}  // namespace windlass::search
