// Tests what the strategies together offer a service.
#include "planner/whatif/offer_search.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/perf/linear_model.h"
#include "planner/policy/choose_offer.h"
#include "planner/policy/make_plan.h"
#include "planner/whatif/offer_book.h"
#include "planner/whatif/question.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/fixtures.h"
#include "tests/unit/planner/policy/random_snapshot.h"

namespace windlass::search {
namespace {

using planner::Family;
using planner::Offers;
using planner::testing::a100;
using planner::testing::chat_service;
using planner::testing::h100;
using planner::testing::with_gpus;
using ::testing::HasSubstr;

planner::Service service() {
  planner::Service out = chat_service();
  out.scaling.strategy = Family::kDisaggregated;
  out.workload.requests_per_s = 8;
  out.accelerators = {{"h100", std::nullopt}, {"a100", std::nullopt}};
  return out;
}

const std::vector<planner::AcceleratorState>& classes() {
  static const std::vector<planner::AcceleratorState> kClasses = {with_gpus(h100(), 8), with_gpus(a100(), 8)};
  return kClasses;
}

Offers offers_for(const planner::Service& service, const std::vector<planner::AcceleratorState>& at = classes()) {
  return search_offers({service, at}, Effort{}).value();
}

const planner::OfferedPool& pool_of(const planner::Offer& offer, dispatch::Role role) {
  static const planner::OfferedPool kNone{};
  const auto found = std::find_if(offer.pools.begin(), offer.pools.end(), [&](const auto& pool) { return pool.role == role; });
  return found == offer.pools.end() ? kNone : *found;
}

// Given a service; expects a confirmed offer, the same every time, with a rate per worker of each phase and the answer of every
// strategy; and a plan of the policy with it that serves the assumed load.
TEST(OfferSearch, SaysWhatAWorkerOfEachPhaseServes) {
  const Offers offers = offers_for(service());
  ASSERT_FALSE(offers.confirmed.empty()) << offers.why;
  const planner::Offer& best = offers.confirmed.front();
  EXPECT_TRUE(best.split());
  EXPECT_GT(pool_of(best, dispatch::Role::kPrefill).requests_per_s, 1);
  EXPECT_GT(pool_of(best, dispatch::Role::kDecode).requests_per_s, 1);
  EXPECT_GE(best.capacity_per_s, 8);
  EXPECT_GE(best.attainment, 0.95);
  std::set<std::string> asked;
  for (const planner::StrategyAnswer& answer : offers.answers) {
    asked.insert(answer.strategy);
    EXPECT_FALSE(answer.outcome.empty()) << answer.strategy;
  }
  EXPECT_EQ(asked, (std::set<std::string>{"auto", "distserve", "splitwise", "tetriinfer", "hexgen2"}));
  EXPECT_EQ(offers_for(service()), offers);

  planner::Snapshot snapshot;
  snapshot.now_s = 1000;
  snapshot.accelerators = classes();
  snapshot.services = {service()};
  snapshot.services[0].offers = offers;
  const auto plan = planner::make_plan(snapshot).services[0];
  EXPECT_EQ(plan.feasible.status, planner::Truth::kTrue) << plan.feasible.message;
  EXPECT_EQ(plan.pools.size(), best.pools.size());
  EXPECT_EQ(plan.strategies, offers.answers);
  EXPECT_GE(plan.predicted.requests_per_s, 8);
}

// Given strategy Auto and long prompts that delay many answers; expects a split that costs clearly less than the cheapest whole
// workers, both simulated, and a policy that changes to it from running whole workers. Given short prompts; expects whole
// workers to stay.
TEST(OfferSearch, AutoComparesWithWholeWorkers) {
  constexpr double kRate = 48;
  planner::Service either = service();
  either.scaling.strategy = Family::kAuto;
  either.accelerators = {{"h100", std::nullopt}};
  const auto plan_of = [&](double input_tokens, double output_tokens) {
    either.workload = {kRate, input_tokens, output_tokens};
    either.slo.tpot_s = 0.015;
    planner::Snapshot snapshot;
    snapshot.now_s = 10'000;
    snapshot.accelerators = {with_gpus(h100(), 64)};
    snapshot.services = {either};
    planner::Service& running = snapshot.services[0];
    running.offers = search_offers({either, classes(), 1}, Effort{}).value();
    EXPECT_TRUE(running.offers->complete);
    running.memory.history_since_s = 0;
    planner::testing::observe(running, snapshot.now_s, kRate);
    for (int slot = 0; slot < 4; ++slot) {
      running.workers.push_back(planner::testing::ready_worker("h100-1", "h100", 1, slot, snapshot.now_s));
    }
    return std::pair(*running.offers, planner::make_plan(snapshot).services[0]);
  };
  // The cheapest of a kind; infinite if none holds.
  const auto cost = [](const Offers& offers, bool split) {
    const auto found = std::find_if(offers.confirmed.begin(), offers.confirmed.end(),
                                    [&](const planner::Offer& offer) { return offer.split() == split; });
    return found == offers.confirmed.end() ? std::numeric_limits<double>::infinity() : found->cost_per_hour;
  };
  const auto [long_prompts, split] = plan_of(4000, 100);
  EXPECT_LT(cost(long_prompts, true), 0.8 * cost(long_prompts, false));
  EXPECT_EQ(split.strategy, Family::kDisaggregated);
  const auto [short_prompts, whole] = plan_of(100, 100);
  EXPECT_GT(cost(short_prompts, true), 0.8 * cost(short_prompts, false));
  EXPECT_EQ(whole.strategy, Family::kReplicated);
}

// Given an engine that can split the model over two GPUs; expects a problem with workers of one and two GPUs only, and offers
// of such workers.
TEST(OfferSearch, WorkersHaveNoMoreGpusThanTheirEngineCanUse) {
  planner::Service bounded = service();
  bounded.max_gpus_per_worker = 2;
  const auto made = question_of(bounded, classes());
  ASSERT_TRUE(made.ok()) << made.error().message;
  int largest = 0;
  for (const WorkerKind& kind : made->problem().kinds) largest = std::max(largest, kind.gpus());
  EXPECT_EQ(largest, 2);
  const Offers offers = offers_for(bounded);
  ASSERT_FALSE(offers.confirmed.empty()) << offers.why;
  for (const planner::Offer& offer : offers.confirmed) {
    for (const planner::OfferedPool& pool : offer.pools) EXPECT_LE(pool.spec.gpus(), 2);
  }
}

// Given measured transfers to workers of one kind; expects the problem to use them for that kind only, and, if they are too
// slow for the time per token, an offer with another kind of decode worker.
TEST(OfferSearch, UsesMeasuredTransfers) {
  planner::Service measured = service();
  const Offers before = offers_for(measured);
  ASSERT_FALSE(before.confirmed.empty()) << before.why;
  const planner::WorkerSpec decode = pool_of(before.confirmed[0], dispatch::Role::kDecode).spec;
  measured.transfers = {{decode.accelerator, decode.gpus(), {1e6, 0.5, 262144, 9}}};
  const auto made = question_of(measured, classes());
  ASSERT_TRUE(made.ok()) << made.error().message;
  const Problem& problem = made->problem();
  for (const WorkerKind& kind : problem.kinds) {
    const bool is_it = problem.spec(kind).name == decode.accelerator && kind.gpus() == decode.gpus();
    const planner::KvTransferPath slow{0.5e6, 0.5, 0, 0};
    EXPECT_EQ(problem.path_to(kind, true), is_it ? slow : problem.within_node);
    EXPECT_EQ(problem.path_to(kind, false), is_it ? slow : problem.between_nodes);
  }
  const Offers after = offers_for(measured);
  ASSERT_FALSE(after.confirmed.empty()) << after.why;
  for (const planner::Offer& offer : after.confirmed) {
    for (const planner::OfferedPool& pool : offer.pools) {
      EXPECT_TRUE(pool.role != dispatch::Role::kDecode || pool.spec != decode) << describe(offer);
    }
  }
}

// Given workers measured at three times their data sheet's times; expects a problem with those iteration times, and an offer
// with a lower rate per worker.
TEST(OfferSearch, UsesMeasuredTimes) {
  planner::Service measured = service();
  measured.accelerators = {{"h100", std::nullopt}};
  const Offers before = offers_for(measured);
  ASSERT_FALSE(before.confirmed.empty()) << before.why;
  measured.estimates = {planner::testing::measured(measured, h100(), 1, 3, 3)};
  const auto made = question_of(measured, classes());
  ASSERT_TRUE(made.ok()) << made.error().message;
  for (const WorkerKind& kind : made->problem().kinds) {
    const planner::LinearModel sheet(
        planner::linear_coefficients(*measured.shape, h100(), kind.gpus(), planner::EngineType::kWindlass));
    const double decode_s = kind.model->iteration_s(planner::decode_batch(8, 512));
    EXPECT_NEAR(decode_s / sheet.decode_s(8, 512), 3, 0.1) << kind.gpus();
  }
  const Offers after = offers_for(measured);
  ASSERT_FALSE(after.confirmed.empty()) << after.why;
  const auto per_gpu = [](const Offers& offers) {
    double gpus = 0;
    for (const planner::OfferedPool& pool : offers.confirmed[0].pools) gpus += pool.workers * pool.spec.gpus();
    return offers.confirmed[0].capacity_per_s / gpus;
  };
  EXPECT_LT(per_gpu(after), 0.6 * per_gpu(before));
}

// Given an objective that nothing meets; expects the answer to say so. Given no class with GPUs, an unknown shape or no
// assumed load; expects an explanation or an answer, and no error. Given a stop; expects Cancelled.
TEST(OfferSearch, ExplainsWhatCannotBePlanned) {
  planner::Service hopeless = service();
  hopeless.slo.tpot_s = 1e-5;
  const Offers none = offers_for(hopeless);
  EXPECT_TRUE(none.confirmed.empty());
  EXPECT_TRUE(none.complete);
  EXPECT_THAT(none.why, HasSubstr("auto: meets the objective for 0 %"));

  const Offers nowhere = offers_for(service(), {});
  EXPECT_TRUE(nowhere.confirmed.empty());
  EXPECT_TRUE(nowhere.complete);
  EXPECT_THAT(nowhere.why, HasSubstr("no class"));

  planner::Service shapeless = service();
  shapeless.shape.reset();
  EXPECT_TRUE(offers_for(shapeless).confirmed.empty());

  Effort stopped;
  stopped.stop = [] { return true; };
  const auto cancelled = search_offers({service(), classes()}, stopped);
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
}

// Given a class that the spec allows but that has no GPUs; expects an offer without it. Given no assumed load; expects an
// offer.
TEST(OfferSearch, PlansWithTheClassesThatAreThere) {
  planner::Service idle = service();
  idle.workload.requests_per_s = 0;
  const Offers offers = offers_for(idle, {classes()[1]});
  ASSERT_FALSE(offers.confirmed.empty()) << offers.why;
  for (const planner::OfferedPool& pool : offers.confirmed[0].pools) EXPECT_EQ(pool.spec.accelerator, "a100");
}

// Given a rate that needs hundreds of workers; expects a search at a lower one, and the policy to scale its offer.
TEST(OfferSearch, LargeRatesAreSearchedAtALowerOne) {
  planner::Service large = service();
  large.scaling.strategy = Family::kReplicated;
  large.workload.requests_per_s = 5000;
  const Offers offers = offers_for(large);
  ASSERT_FALSE(offers.confirmed.empty()) << offers.why;
  EXPECT_LT(offers.requests_per_s, 1000);
  planner::Snapshot snapshot;
  snapshot.now_s = 1000;
  snapshot.accelerators = {with_gpus(h100(), 10'000), with_gpus(a100(), 10'000)};
  snapshot.services = {large};
  snapshot.services[0].offers = offers;
  planner::testing::observe(snapshot.services[0], 1000, 5000);
  const auto plan = planner::make_plan(snapshot).services[0];
  int offered = 0;
  for (const planner::OfferedPool& pool : offers.confirmed[0].pools) offered += pool.workers;
  const double scale = 5000 / offers.confirmed[0].capacity_per_s;
  EXPECT_NEAR(plan.desired_workers(), scale * offered, 0.15 * scale * offered);
}

// What must hold of each answer, whatever the question.
void expect_sound(const OfferQuestion& question, const Offers& offers) {
  const Family family = question.service.may_split ? question.service.scaling.strategy : Family::kReplicated;
  EXPECT_LE(offers.confirmed.size(), planner::kMaxOffers);
  EXPECT_EQ(offers.confirmed.empty(), !offers.why.empty());
  EXPECT_TRUE(std::is_sorted(offers.confirmed.begin(), offers.confirmed.end(),
                             [](const auto& a, const auto& b) { return a.cost_per_hour < b.cost_per_hour; }));
  planner::Snapshot snapshot;
  snapshot.services = {question.service};
  snapshot.accelerators = question.classes;
  for (planner::AcceleratorState& state : snapshot.accelerators) state.max_gpus = 1000;
  const planner::CapacityByClass capacities = planner::capacity_by_class(snapshot);
  const planner::Service& service = snapshot.services[0];
  const planner::ConfigurationInput input{&service, &snapshot, &capacities, &service.memory,
                                          planner::Lengths{service.workload.input_tokens, service.workload.output_tokens}};
  for (const planner::Offer& offer : offers.confirmed) {
    SCOPED_TRACE(describe(offer));
    EXPECT_TRUE(family == Family::kAuto || offer.split() == (family == Family::kDisaggregated));
    EXPECT_EQ(offer.requests_per_s, offers.requests_per_s);
    EXPECT_GE(offer.capacity_per_s, offer.requests_per_s);
    double cost = 0;
    for (const planner::OfferedPool& pool : offer.pools) {
      EXPECT_TRUE(planner::may_use(service, pool.spec.accelerator));
      EXPECT_GT(pool.requests_per_s, 0);
      cost += pool.workers * pool.spec.gpus() * find_accelerator(snapshot, pool.spec.accelerator)->spec.price_per_hour;
    }
    EXPECT_NEAR(cost, offer.cost_per_hour, 1e-6 * cost + 1e-9);
    // Its own rate needs exactly its workers, and they serve what the simulator confirmed.
    const planner::ConfigurationChoice choice = planner::choice_of(input, offer);
    ASSERT_TRUE(choice.chosen);
    const int chosen = planner::workers_for(service, *choice.chosen, offer.requests_per_s);
    EXPECT_EQ(chosen, offer.pools[0].workers);
    const std::vector<int> beside = choice.sides.workers(chosen);
    for (std::size_t i = 0; i < beside.size(); ++i) EXPECT_EQ(beside[i], offer.pools[i + 1].workers);
    EXPECT_NEAR(planner::capacity_of(service, *choice.chosen, chosen), offer.capacity_per_s, 1e-3 * offer.capacity_per_s);
  }
  // The cheapest of each kind that any strategy offered for a confirmed price is listed.
  for (const bool split : {false, true}) {
    const bool listed = std::any_of(offers.confirmed.begin(), offers.confirmed.end(),
                                    [&](const auto& offer) { return offer.split() == split; });
    for (const planner::StrategyAnswer& answer : offers.answers) {
      const bool is_split = answer.deployment.find("prefill") != std::string::npos;
      const bool holds = answer.outcome.starts_with("the cheapest costs") || answer.outcome == "none is cheaper";
      EXPECT_TRUE(listed || !holds || is_split != split) << answer.strategy << ": " << answer.deployment;
    }
  }
}

// Given random services of all three families; expects sound answers.
TEST(OfferSearch, AnOffersOwnRateNeedsItsWorkers) {
  int confirmed = 0;
  for (std::uint64_t seed = 0; seed < effort(6U, 60U); ++seed) {
    for (const Family family : {Family::kAuto, Family::kReplicated, Family::kDisaggregated}) {
      planner::Snapshot snapshot = planner::testing::random_snapshot(seed);
      snapshot.services.resize(1);
      snapshot.services[0].scaling.strategy = family;
      OfferBook book;
      book.attach(snapshot);
      while (const auto question = book.next()) {
        SCOPED_TRACE("seed " + std::to_string(seed) + ", " + to_string(family));
        const Offers offers = search_offers(*question, Effort{}).value();
        expect_sound(*question, offers);
        confirmed += static_cast<int>(offers.confirmed.size());
        Offers enough = offers;  // the longer round is another test's
        enough.complete = true;
        book.answer(*question, enough);
      }
    }
  }
  EXPECT_GT(confirmed, effort(6, 60));
}

}  // namespace
}  // namespace windlass::search
