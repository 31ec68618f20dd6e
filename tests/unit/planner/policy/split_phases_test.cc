// Tests split phases, with separate prefill and decode workers: how many of each, their limits, and changes.
#include <cmath>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/perf/linear_model.h"
#include "planner/policy/make_plan.h"
#include "planner/policy/split.h"
#include "planner/whatif/what_if.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using testing::a100;
using testing::carry_out;
using testing::chat_service;
using testing::h100;
using testing::has_reason;
using testing::observe;
using testing::ready_worker;
using testing::split_offers;
using testing::with_gpus;

constexpr double kNow = 100'000;

Service split_service(const std::string& name, double arrivals_per_s) {
  Service service = chat_service(name);
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}, AllowedAccelerator{"a100", std::nullopt}};
  service.scaling.strategy = Family::kDisaggregated;
  service.offers = split_offers({"h100", 1, 20}, {"a100", 1, 10});
  service.memory.history_since_s = kNow - 3600;
  service.starts = StartTimes{1, 10};
  observe(service, kNow, arrivals_per_s);
  return service;
}

Snapshot cluster(std::vector<Service> services, int h100s = 64, int a100s = 64) {
  Snapshot snapshot;
  snapshot.now_s = kNow;
  snapshot.accelerators = {with_gpus(h100(), h100s), with_gpus(a100(), a100s)};
  snapshot.services = std::move(services);
  return snapshot;
}

OfferedPool& decode_of(Service& service) { return service.offers->confirmed.at(0).pools.at(0); }
OfferedPool& prefill_of(Service& service) { return service.offers->confirmed.at(0).pools.at(1); }

const Pool& pool_of(const ServicePlan& plan, dispatch::Role role) {
  static const Pool kNone{};
  for (const Pool& pool : plan.pools) {
    if (pool.role == role && pool.workers > 0) return pool;
  }
  return kNone;
}

// Cost of the best offer over the cost of what runs, from the reason why it stays.
double other_cost_share(const ServicePlan& plan) {
  for (const Reason& reason : plan.reasons) {
    if (reason.code != "KeptConfiguration") continue;
    return std::stod(reason.inputs.at("otherCostPerHour")) / std::stod(reason.inputs.at("costPerHour"));
  }
  return 0;
}

int prefills(const ServicePlan& plan) { return pool_of(plan, dispatch::Role::kPrefill).workers; }
int answers(const ServicePlan& plan) { return pool_of(plan, dispatch::Role::kDecode).workers; }

// Given workers that take three times as long as the data sheet says, and two recommendations, one made with the data sheet and
// one with measurements; expects the same number of workers from both: measurements count once.
TEST(SplitPhases, MeasuredTimesCountOnce) {
  Service service = split_service("chat", 60);
  const int as_planned = answers(make_plan(cluster({service})).services[0]);
  service.estimates = {testing::measured(service, a100(), 1, 1, 3)};
  const int measured = answers(make_plan(cluster({service}, 64, 400)).services[0]);
  EXPECT_GT(measured, 2 * as_planned);
  const Lengths lengths{service.workload.input_tokens, service.workload.output_tokens};
  const auto rate = [&](std::span<const WorkerEstimate> estimates) {
    const LinearModel model(believed_coefficients(*service.shape, a100(), 1, EngineType::kWindlass, estimates));
    return phase_rate_per_s(service, model, lengths, dispatch::Role::kDecode);
  };
  OfferedPool& decode = decode_of(service);
  decode.closed_form_per_s = rate(service.estimates);
  decode.requests_per_s *= decode.closed_form_per_s / rate({});
  EXPECT_EQ(answers(make_plan(cluster({service}, 64, 400)).services[0]), measured);
}

// Given whole workers and a recommendation to split on the same accelerator and GPUs; expects a change of configuration
// although all pools have the same name: the new configuration's clock starts, and whole workers stay until it serves.
// Afterwards its clock continues.
TEST(SplitPhases, IsAnotherConfigurationUnderTheSameName) {
  Service service = split_service("chat", 10);
  decode_of(service).spec.accelerator = "h100";
  service.workers = {ready_worker("h100-1", "h100", 1, 0, kNow), ready_worker("h100-1", "h100", 1, 1, kNow)};
  service.memory.configuration = "h100-1";
  service.memory.configuration_since_s = kNow - 1000;
  const ServicePlan plan = make_plan(cluster({service})).services[0];
  ASSERT_EQ(plan.pools.size(), 3U);
  EXPECT_EQ(plan.pools[0].id(), (PoolId{"h100-1", dispatch::Role::kDecode}));
  EXPECT_EQ(plan.pools[1].id(), (PoolId{"h100-1", dispatch::Role::kPrefill}));
  EXPECT_EQ(plan.pools[2].id(), PoolId{"h100-1"});
  EXPECT_GE(plan.pools[2].workers, 1);
  EXPECT_EQ(plan.memory.configuration, "h100-1");
  EXPECT_EQ(plan.memory.configuration_since_s, kNow);
  carry_out(plan, service, kNow);
  Snapshot later = cluster({service});
  later.now_s += 15;
  const ServicePlan next = make_plan(later).services[0];
  EXPECT_EQ(next.memory.configuration_since_s, kNow);
  EXPECT_EQ(next.pools.size(), 2U);
}

// Given load and a strategy's rate per worker of each side; expects both sides to serve the load in their proportion, with the
// strategy's explanation among the reasons; at ten times the load, about ten times as many workers.
TEST(SplitPhases, BothSidesServeTheDemand) {
  int before = 0;
  for (const double load : {30.0, 300.0}) {
    const Plan plan = make_plan(cluster({split_service("chat", load)}, 200, 200));
    const ServicePlan& planned = plan.services[0];
    EXPECT_EQ(planned.strategy, Family::kDisaggregated);
    EXPECT_EQ(planned.feasible.status, Truth::kTrue) << planned.feasible.message;
    const Pool& prompts = pool_of(planned, dispatch::Role::kPrefill);
    const Pool& decode = pool_of(planned, dispatch::Role::kDecode);
    EXPECT_EQ(prompts.name, "h100-1");
    EXPECT_EQ(decode.name, "a100-1");
    EXPECT_GE(decode.workers * 10, load);
    EXPECT_LE(decode.workers * 10, 2 * load);
    EXPECT_EQ(prompts.workers, (decode.workers + 1) / 2);
    EXPECT_TRUE(has_reason(planned, "SplitPhases"));
    EXPECT_EQ(planned.predicted.gpus, prompts.workers + decode.workers);
    EXPECT_DOUBLE_EQ(planned.predicted.cost_per_hour, 4.0 * prompts.workers + 2.0 * decode.workers);
    EXPECT_GT(planned.predicted.ttft_s, 0);
    EXPECT_LE(planned.predicted.ttft_s, 1);
    EXPECT_GE(prompts.each.slots, 2);
    EXPECT_GT(decode.each.slots, prompts.each.slots);
    if (before > 0) {
      EXPECT_NEAR(planned.desired_workers(), 10 * before, 3.5 * before);
    }
    before = planned.desired_workers();
  }
}

// Given no strategy's answer yet, an answer that no split is feasible, or a limit of one worker; expects running workers to
// stay, with the reason.
TEST(SplitPhases, WithoutAnAnswerThingsStay) {
  Service service = split_service("chat", 10);
  service.workers = {ready_worker("h100-1", "h100", 1, 0, kNow)};
  service.offers.reset();
  const auto planned = [&] { return make_plan(cluster({service})).services[0]; };
  EXPECT_EQ(planned().feasible.reason, "StrategySearching");
  EXPECT_EQ(planned().feasible.status, Truth::kUnknown);
  ASSERT_EQ(planned().pools.size(), 1U);
  EXPECT_EQ(planned().pools[0].workers, 1);
  service.offers = testing::no_offers("the first token needs 2 s");
  EXPECT_EQ(planned().feasible.reason, "NoSplitHolds");
  EXPECT_EQ(planned().feasible.message, "the first token needs 2 s");
  EXPECT_EQ(planned().pools[0].workers, 1);
  service = split_service("chat", 10);
  service.scaling.max_workers = 1;
  EXPECT_EQ(planned().feasible.reason, "MaxWorkers");
  service = split_service("chat", 10);
  decode_of(service).spec.accelerator = "gone";
  EXPECT_EQ(planned().feasible.reason, "RunningClassUnknown");
}

// Given strategy Auto and offers of split phases and of whole workers, with costs for the same rate; expects splitting if it
// costs clearly less, or if whole workers are not feasible. Expects running workers to stay otherwise, without an answer,
// without signals, and if a change does not pay back; and for a service without workers the cheaper kind.
TEST(SplitPhases, AutoTakesWhatCostsClearlyLess) {
  const auto planned = [](const Service& service) { return make_plan(cluster({service})).services[0]; };
  const auto is_split = [&](const Service& service) { return planned(service).strategy == Family::kDisaggregated; };
  constexpr double kRate = 1000;  // of the offers: many workers, so that their costs differ in small steps
  // Split phases of 4 per hour and decode worker, and whole workers. Each worker serves more the higher its capacity ratio.
  const auto split = [](double ratio) { return testing::split_offer({"h100", 1, 20}, {"a100", 1, 10, 1, ratio}); };
  const auto whole_workers = [](double ratio) { return testing::whole_offer({{"h100", 1, 10, 1, ratio}}); };
  const auto with = [](Service service, std::vector<Offer> offers) {
    service.offers = testing::offers_of(std::move(offers), kRate);
    return service;
  };
  Service whole = split_service("chat", 30);
  whole.scaling.strategy = Family::kAuto;
  whole.workers = {ready_worker("h100-1", "h100", 1, 0, kNow), ready_worker("h100-1", "h100", 1, 1, kNow)};
  whole.memory.configuration = "h100-1";
  whole.memory.configuration_since_s = kNow - 7200;
  const Service clearly = with(whole, {split(3.15), whole_workers(1)});
  const Service hardly = with(whole, {split(2.45), whole_workers(1)});
  EXPECT_TRUE(is_split(clearly));
  EXPECT_TRUE(planned(clearly).memory.prefill_share);
  EXPECT_EQ(planned(clearly).memory.offer, clearly.offers->confirmed[0]);
  EXPECT_FALSE(is_split(hardly));
  EXPECT_NEAR(other_cost_share(planned(hardly)), 0.9, 0.02);
  EXPECT_TRUE(is_split(with(whole, {split(2.45)})));

  Service held = clearly;
  held.demand.arrivals_per_s.reset();
  EXPECT_FALSE(is_split(held));
  held = clearly;
  held.memory.configuration_since_s = kNow - 1;
  EXPECT_TRUE(has_reason(planned(held), "ChangeDoesNotPayBack"));
  EXPECT_FALSE(is_split(held));
  held = clearly;
  held.scaling.max_workers = 1;
  EXPECT_FALSE(is_split(held));
  held = clearly;
  held.may_split = false;
  EXPECT_FALSE(is_split(held)) << "its engine cannot";

  Service fresh = hardly;
  fresh.workers.clear();
  EXPECT_TRUE(is_split(fresh));

  Service parts = whole;
  parts.workers = {ready_worker("h100-1", "h100", 1, 0, kNow), ready_worker("a100-1", "a100", 1, 0, kNow)};
  parts.workers[0].role = dispatch::Role::kPrefill;
  parts.workers[1].role = dispatch::Role::kDecode;
  parts.memory.configuration = "a100-1";
  parts.memory.prefill_share = 0.5;
  parts.memory.offer = split(2.45);
  const Service hardly_whole = with(parts, {whole_workers(1.235), split(2.45)});
  const Service clearly_whole = with(parts, {whole_workers(1.6), split(2.45)});
  EXPECT_TRUE(is_split(hardly_whole));
  EXPECT_NEAR(other_cost_share(planned(hardly_whole)), 0.9, 0.02);
  EXPECT_FALSE(is_split(clearly_whole));
  EXPECT_FALSE(planned(clearly_whole).memory.prefill_share);
  EXPECT_TRUE(is_split(with(parts, {split(2.45)})));
  // A new leader has neither memory nor an answer: workers stay.
  parts.memory.configuration.clear();
  parts.memory.prefill_share.reset();
  parts.memory.offer.reset();
  parts.offers.reset();
  EXPECT_EQ(planned(parts).feasible.reason, "StrategySearching");
  EXPECT_EQ(planned(parts).desired_workers(), 2);
}

// Given limits without room for the smallest pair; expects strategy Auto to keep, or return to, whole workers, which the limits
// allow.
TEST(SplitPhases, AutoNeedsRoomForAPair) {
  Service service = split_service("chat", 3);
  service.scaling.strategy = Family::kAuto;
  const auto planned = [&] { return make_plan(cluster({service})).services[0]; };
  EXPECT_EQ(planned().strategy, Family::kDisaggregated);
  service.scaling.max_cost_per_hour = 5.9;  // of 4 + 2
  EXPECT_EQ(planned().strategy, Family::kReplicated);
  EXPECT_GE(planned().desired_workers(), 1);
  service.scaling.max_cost_per_hour = 6;
  EXPECT_EQ(planned().strategy, Family::kDisaggregated);
  service.accelerators = {AllowedAccelerator{"h100", 1}};
  decode_of(service).spec.accelerator = "h100";
  EXPECT_EQ(planned().strategy, Family::kReplicated);
  service.accelerators[0].max_gpus = 2;
  service.workers = {ready_worker("h100-1", "h100", 1, 0, kNow), ready_worker("h100-1", "h100", 1, 0, kNow)};
  service.workers[0].role = dispatch::Role::kPrefill;
  service.workers[1].role = dispatch::Role::kDecode;
  service.memory.configuration = "h100-1";
  service.memory.prefill_share = 0.5;
  service.scaling.max_cost_per_hour.reset();
  EXPECT_EQ(planned().strategy, Family::kDisaggregated);
  service.accelerators[0].max_gpus = 1;
  EXPECT_EQ(planned().strategy, Family::kReplicated);
}

// Given a service that Auto has split, and an answer that no split is feasible any more; expects whole workers, but running
// workers to stay while arrivals are unknown.
TEST(SplitPhases, AutoLeavesASplitThatIsNoLongerFeasible) {
  Service service = split_service("chat", 10);
  service.scaling.strategy = Family::kAuto;
  service.workers = {ready_worker("h100-1", "h100", 1, 0, kNow), ready_worker("a100-1", "a100", 1, 0, kNow)};
  service.workers[0].role = dispatch::Role::kPrefill;
  service.workers[1].role = dispatch::Role::kDecode;
  service.memory.configuration = "a100-1";
  service.memory.prefill_share = 0.5;
  service.offers = testing::no_offers("drawn by hand");
  EXPECT_EQ(make_plan(cluster({service})).services[0].strategy, Family::kReplicated);
  service.demand.arrivals_per_s.reset();
  const ServicePlan plan = make_plan(cluster({service})).services[0];
  EXPECT_EQ(plan.strategy, Family::kDisaggregated);
  EXPECT_EQ(plan.desired_workers(), 2);
}

// Given an objective that no whole worker meets by the closed forms; expects strategy Auto to split the phases as soon as there
// is an answer.
TEST(SplitPhases, AutoSplitsWhereNothingElseHolds) {
  Service service = split_service("chat", 10);
  service.scaling.strategy = Family::kAuto;
  service.slo.ttft_s = 1e-4;
  const Offers offers = *service.offers;
  service.offers.reset();
  EXPECT_EQ(make_plan(cluster({service})).services[0].feasible.reason, "TtftTooTight");
  service.offers = offers;
  const ServicePlan plan = make_plan(cluster({service})).services[0];
  EXPECT_EQ(plan.feasible.status, Truth::kTrue);
  EXPECT_GT(answers(plan), 0);
  EXPECT_GT(prefills(plan), 0);
}

// Given that nothing can be decided, and a worker that is being replaced; expects its successor not to count as one more in any
// plan; and the count of the first such plan when workers fail and leave.
TEST(SplitPhases, SuccessorsAreNoGrowth) {
  Service service = split_service("chat", 10);
  service.offers.reset();
  for (int slot = 0; slot < 2; ++slot) service.workers.push_back(ready_worker("h100-1", "h100", 1, slot, kNow));
  const auto next = [&] {
    const ServicePlan plan = make_plan(cluster({service})).services[0];
    service.memory = plan.memory;
    service.last_desired = plan.desired_workers();
    return plan.desired_workers();
  };
  EXPECT_EQ(next(), 2);
  service.workers.push_back(ready_worker("h100-1", "h100", 1, 2, kNow));
  EXPECT_EQ(next(), 2);
  EXPECT_EQ(next(), 2);
  service.workers.resize(1);
  EXPECT_EQ(next(), 2);
}

// Given no GPU for any decode worker; expects no prefill worker either, running or not.
TEST(SplitPhases, NoPrefillWorkersWithoutDecodeWorkers) {
  Service service = split_service("chat", 10);
  service.workers = {ready_worker("h100-1", "h100", 1, 0, kNow)};
  service.workers[0].role = dispatch::Role::kPrefill;
  const Plan plan = make_plan(cluster({service}, 8, 0));
  EXPECT_EQ(plan.services[0].desired_workers(), 0);
  EXPECT_EQ(plan.services[0].able_to_scale.reason, "InsufficientCapacity");
}

// Given random limits; expects both sides together within each limit, with as many workers as fit (one more pair would exceed a
// limit), and the applicable limit named.
TEST(SplitPhases, LimitsCountBothSides) {
  Rng rng(1, "split limits");
  int bitten = 0;
  for (int i = 0; i < effort(200, 2000); ++i) {
    SCOPED_TRACE(i);
    Service service = split_service("chat", rng.uniform(0, 400));
    prefill_of(service).requests_per_s = rng.uniform(1, 60);
    decode_of(service).requests_per_s = rng.uniform(1, 60);
    if (rng.integer(0, 1) == 0) decode_of(service).spec.accelerator = "h100";
    Scaling& scaling = service.scaling;
    scaling.min_workers = static_cast<int>(rng.integer(0, 4));
    if (rng.integer(0, 1) == 0) scaling.max_workers = static_cast<int>(rng.integer(2, 30));
    if (rng.integer(0, 1) == 0) scaling.max_cost_per_hour = rng.uniform(1, 100);
    if (rng.integer(0, 1) == 0) service.accelerators[0].max_gpus = static_cast<int>(rng.integer(1, 30));
    const Plan plan = make_plan(cluster({service}, 1000, 1000));
    const ServicePlan& planned = plan.services[0];
    ASSERT_EQ(planned.feasible.status, Truth::kTrue);
    const int d = answers(planned), p = prefills(planned);
    const bool both = decode_of(service).spec.accelerator == "h100";
    const auto inside = [&](int answering, int beside) {
      const double cost = 4.0 * beside + (both ? 4.0 : 2.0) * answering;
      const int h100s = beside + (both ? answering : 0);
      return (!scaling.max_workers || answering + beside <= *scaling.max_workers) &&
             (!scaling.max_cost_per_hour || cost <= *scaling.max_cost_per_hour + 1e-9) &&
             (!service.accelerators[0].max_gpus || h100s <= *service.accelerators[0].max_gpus);
    };
    ASSERT_TRUE(inside(d, p)) << d << " + " << p;
    if (!plan.denied.empty()) {
      ++bitten;
      EXPECT_EQ(plan.denied.size(), 1U);
      const double share = planned.memory.prefill_share.value();
      const SidePool side{{}, share};
      EXPECT_LE(p, side.workers(d));
      EXPECT_FALSE(inside(d + 1, d == 0 ? 0 : side.workers(d + 1))) << plan.denied[0].message;
      if (p < side.workers(d)) {
        EXPECT_EQ(d, 1);
        EXPECT_FALSE(inside(1, p + 1)) << plan.denied[0].message;
      }
      EXPECT_FALSE(plan.denied[0].message.empty());
    }
  }
  EXPECT_GT(bitten, effort(13, 200));
}

// Given too few GPUs for one side; expects the other side no larger than it can use, and the remaining GPUs with the service
// that waits for them, whichever is listed first.
TEST(SplitPhases, NoSideGrowsWithoutTheOther) {
  for (const bool first : {true, false}) {
    Service pair = split_service("pair", 100);  // about 12 decode and 6 prefill workers
    Service other = chat_service("other");
    other.accelerators = {AllowedAccelerator{"a100", std::nullopt}};
    other.memory.history_since_s = kNow - 3600;
    observe(other, kNow, 400);
    const std::vector<Service> services = first ? std::vector{pair, other} : std::vector{other, pair};
    const Plan plan = make_plan(cluster(services, 2, 12));  // prefill workers for 4 decode workers
    const ServicePlan& planned = plan.services[first ? 0 : 1];
    const ServicePlan& beside = plan.services[first ? 1 : 0];
    EXPECT_EQ(prefills(planned), 2);
    EXPECT_LE(answers(planned), 4);
    EXPECT_GE(answers(planned), 1);
    EXPECT_EQ(answers(planned) + beside.predicted.gpus, 12) << "a GPU that nobody has";
    EXPECT_EQ(planned.able_to_scale.reason, "InsufficientCapacity");
  }
}

// Given whole workers and then a change to split phases; expects them to stay until enough decode workers serve, and then to
// go; and the same in the other direction.
TEST(SplitPhases, ChangesOverAndBackWithoutAGap) {
  Service service = split_service("chat", 30);
  service.scaling.strategy = Family::kReplicated;
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}};
  decode_of(service).spec.accelerator = "h100";
  Plan plan = make_plan(cluster({service}));
  carry_out(plan.services[0], service, kNow);
  const int whole = static_cast<int>(service.workers.size());
  ASSERT_GE(whole, 2);
  for (const Family to : {Family::kDisaggregated, Family::kReplicated}) {
    service.scaling.strategy = to;
    std::vector<Worker> before = service.workers;
    int least = 1000;
    for (int step = 0; step < 40; ++step) {
      plan = make_plan(cluster({service}));
      int serving = 0;
      std::vector<Worker> now;
      for (const Pool& pool : plan.services[0].pools) {
        for (int slot = 0; slot < pool.workers; ++slot) {
          Worker worker = ready_worker(pool.name, pool.spec.accelerator, pool.spec.gpus(), slot, kNow);
          worker.role = pool.role;
          worker.max_concurrency = pool.each.max_concurrency;
          // New workers become ready one by one.
          const bool old = slot < std::count_if(
                                      service.workers.begin(), service.workers.end(),
                                      [&](const Worker& w) { return w.pool == pool.name && w.state == WorkerState::kReady; });
          const bool may_start =
              !old && std::none_of(now.begin(), now.end(), [](const Worker& w) { return w.state == WorkerState::kStarting; });
          worker.state = old ? WorkerState::kReady : WorkerState::kStarting;
          if (!old && may_start && step % 2 == 1) worker.state = WorkerState::kReady;
          serving += old && pool.role != dispatch::Role::kPrefill ? 1 : 0;
          now.push_back(worker);
        }
      }
      least = std::min(least, serving);
      service.workers = now;
      service.memory = plan.services[0].memory;
      service.last_desired = plan.services[0].desired_workers();
    }
    EXPECT_GE(least, to == Family::kDisaggregated ? std::min(whole, answers(plan.services[0])) : 1);
    for (const Pool& pool : plan.services[0].pools) {
      EXPECT_EQ(pool.role == dispatch::Role::kUnified, to == Family::kReplicated) << pool.name << " " << pool.workers;
    }
  }
}

// Given a new service for which the search found no split that holds; expects it to start as one does whose search still
// runs, with the search's answer as its condition.
TEST(SplitPhases, StartsAlsoWhereNoSplitHolds) {
  Service service = split_service("chat", 10);
  service.offers.reset();
  const ServicePlan searching = make_plan(cluster({service})).services[0];
  EXPECT_EQ(searching.feasible.status, Truth::kTrue) << searching.feasible.message;
  service.offers = testing::no_offers("the first token needs 2 s");
  const ServicePlan planned = make_plan(cluster({service})).services[0];
  EXPECT_EQ(planned.feasible.status, Truth::kFalse);
  EXPECT_EQ(planned.feasible.reason, "NoSplitHolds");
  EXPECT_EQ(planned.feasible.message, "the first token needs 2 s");
  EXPECT_GT(planned.desired_workers(), 1);
  EXPECT_EQ(planned.pools, searching.pools);
}

// Given split phases whose load outgrows maxCostPerHour, so that no strategy's deployment holds it; expects both sides to grow
// as far as the money goes, with what limits them named.
TEST(SplitPhases, GrowsToTheBudget) {
  Service service = split_service("chat", 20);
  service.scaling.max_cost_per_hour = 24;  // 4 for a prefill worker and 2 for a decode worker
  carry_out(make_plan(cluster({service})).services[0], service, kNow);
  const std::size_t few = service.workers.size();
  observe(service, kNow, 400);
  service.offers = testing::no_offers("costs 90 per hour, but only 24 may be spent");
  const Plan plan = make_plan(cluster({service}));
  const ServicePlan& grown = plan.services[0];
  EXPECT_GT(grown.desired_workers(), static_cast<int>(few));
  const auto cost = [&](int answering, int beside) { return 2 * answering + 4 * beside; };
  const int d = answers(grown);
  const SidePool side{{}, grown.memory.prefill_share.value()};
  EXPECT_EQ(prefills(grown), side.workers(d));
  EXPECT_LE(cost(d, prefills(grown)), 24);
  EXPECT_GT(cost(d + 1, side.workers(d + 1)), 24);
  EXPECT_EQ(grown.able_to_scale.reason, "MaxCost");
  EXPECT_TRUE(has_reason(grown, "MaxCost"));
  EXPECT_EQ(grown.feasible.status, Truth::kFalse);
  EXPECT_EQ(grown.feasible.reason, "NoSplitHolds");
  EXPECT_EQ(grown.feasible.message, "costs 90 per hour, but only 24 may be spent");
}

// Given a proportion of prefill workers for which maxWorkers has no room; expects one decode worker with the prefill workers
// that fit, and never no worker.
TEST(SplitPhases, OneAnswersWhereverThereIsRoom) {
  Service service = split_service("chat", 3);
  prefill_of(service).requests_per_s = 2;  // five prefill workers per decode worker
  for (const int most : {2, 3, 6, 7}) {
    service.scaling.max_workers = most;
    const Plan plan = make_plan(cluster({service}));
    EXPECT_EQ(answers(plan.services[0]), 1) << most;
    EXPECT_EQ(prefills(plan.services[0]), std::min(most - 1, 5)) << most;
    EXPECT_EQ(plan.denied.empty(), most > 5) << most;
  }
  const Plan short_of_gpus = make_plan(cluster({service}, 2, 4));
  EXPECT_EQ(answers(short_of_gpus.services[0]), 1);
  EXPECT_EQ(prefills(short_of_gpus.services[0]), 2);
}

// Given one GPU too few for the prefill worker of one service and the only worker of another; expects the other service to get
// it, whatever the priorities, unless minWorkers requires both sides.
TEST(SplitPhases, TheFloorIsMinWorkers) {
  for (const int least : {1, 2}) {
    Service pair = split_service("pair", 1);
    decode_of(pair).spec.accelerator = "h100";
    pair.scaling.min_workers = least;
    pair.priority = 5;
    Service other = chat_service("other");
    other.memory.history_since_s = kNow - 3600;
    observe(other, kNow, 1);
    const Plan plan = make_plan(cluster({pair, other}, 2, 0));
    EXPECT_EQ(answers(plan.services[0]), 1);
    EXPECT_EQ(prefills(plan.services[0]), least - 1);
    EXPECT_EQ(plan.services[1].desired_workers(), 2 - least);
  }
}

// Given steady load whose mean lengths vary by a tenth; expects no worker of either side to start or stop. When prompts become
// three times as long; expects more prefill workers.
TEST(SplitPhases, TheProportionMovesWithLengthsAlone) {
  Service service = split_service("chat", 100);
  carry_out(make_plan(cluster({service})).services[0], service, kNow);
  const auto count = [&](dispatch::Role role) {
    return std::count_if(service.workers.begin(), service.workers.end(), [&](const Worker& w) { return w.role == role; });
  };
  const auto prompts = count(dispatch::Role::kPrefill);
  Rng rng(3, "wander");
  double now_s = kNow;
  const auto step = [&](double input_tokens) {
    now_s += 10;
    Snapshot snapshot = cluster({service});
    snapshot.now_s = now_s;
    Service& seen = snapshot.services[0];
    observe(seen, now_s, 100);
    seen.demand.input_tokens = Reading{input_tokens, now_s};
    seen.demand.output_tokens = Reading{256, now_s};
    for (Worker& worker : seen.workers) worker.running = worker.waiting = Reading{1, now_s};
    const Plan plan = make_plan(snapshot);
    carry_out(plan.services[0], service, now_s);
  };
  for (int i = 0; i < 200; ++i) {
    step(512 * rng.uniform(0.92, 1.08));
    ASSERT_EQ(count(dispatch::Role::kPrefill), prompts) << i;
  }
  for (int i = 0; i < 100; ++i) step(3 * 512);
  EXPECT_GE(count(dispatch::Role::kPrefill), 2 * prompts);
}

// Given the question what a split service would do with more or fewer requests; expects workers of both sides in the count.
TEST(SplitPhases, WhatIfCountsBothSides) {
  const Snapshot snapshot = cluster({split_service("chat", 100)});
  const auto what = what_if(snapshot, 0);
  ASSERT_TRUE(what);
  EXPECT_EQ(what->workers, make_plan(snapshot).services[0].desired_workers());
}

// Given pools next to the chosen one, in any proportion; expects the two counts to be inverse: the most chosen workers within a
// total, and the fewest that reach it.
TEST(SplitPhases, CountsOfUnits) {
  Rng rng(5, "units");
  for (int i = 0; i < 500; ++i) {
    SidePools sides;
    const auto pools = rng.integer(1, 3);
    for (int pool = 0; pool < pools; ++pool) sides.pools.push_back({{}, std::exp(rng.uniform(-4, 3))});
    EXPECT_EQ(sides.total(0), 0);
    EXPECT_EQ(sides.workers(0), std::vector<int>(sides.pools.size(), 0));
    for (const int workers : sides.workers(1)) EXPECT_GE(workers, 1);
    for (const int total : {0, 1, 2, 3, 7, 100, 5000}) {
      const int within = sides.chosen_within(total), from = sides.chosen_from(total);
      if (total > 0 && total < sides.total(1)) {
        EXPECT_EQ(within, 1) << "one worker runs with the others that fit";
        EXPECT_EQ(from, 1);
        continue;
      }
      EXPECT_LE(sides.total(within), total);
      EXPECT_GT(sides.total(within + 1), total);
      EXPECT_GE(sides.total(from), total);
      if (from > 0) {
        EXPECT_LT(sides.total(from - 1), total);
      }
    }
  }
}

}  // namespace
}  // namespace windlass::planner
