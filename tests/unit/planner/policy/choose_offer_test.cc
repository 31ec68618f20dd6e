// Tests which of the strategies' offers a service runs: at the start, when one becomes clearly cheaper, and after a change of
// leader; and mixes of two kinds of whole workers.
#include "planner/policy/choose_offer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "planner/base/rng.h"
#include "planner/policy/asked_workload.h"
#include "planner/policy/make_plan.h"
#include "tests/effort.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner {
namespace {

using testing::a100;
using testing::carry_out;
using testing::chat_service;
using testing::h100;
using testing::has_reason;
using testing::l4;
using testing::observe;
using testing::offers_of;
using testing::ready_worker;
using testing::split_offer;
using testing::whole_offer;
using testing::with_gpus;

constexpr double kNow = 100'000;
constexpr double kRate = 1000;  // of the offers: many workers, so that their costs differ in small steps
constexpr double kLoad = 100;   // requests/s that five h100 serve by the closed forms

Service service_with(std::vector<Offer> offers, double arrivals_per_s = kLoad) {
  Service service = chat_service();
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}, AllowedAccelerator{"a100", std::nullopt}};
  service.memory.history_since_s = kNow - 3600;
  service.starts = StartTimes{1, 10};
  service.offers = offers_of(std::move(offers), kRate);
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

ServicePlan planned(const Service& service, int h100s = 64, int a100s = 64) {
  return make_plan(cluster({service}, h100s, a100s)).services[0];
}

// Whole workers whose confirmed capacity is this multiple of the closed forms'.
Offer whole_h100(double ratio) { return whole_offer({{"h100", 1, 16, 4, ratio}}); }
Offer whole_a100(double ratio) { return whole_offer({{"a100", 1, 8, 4, ratio}}); }

// 70 % of the requests on h100, the others on a100, with rates slightly below the closed forms'.
Offer mix_of_both() { return whole_offer({{"h100", 1, 22, 7, 1, 0.7}, {"a100", 1, 7.5, 9, 1, 0.3}}); }
constexpr double kMixShare = 22 / 0.7 * 0.3 / 7.5;  // workers of a100 per worker of h100

int workers_of(const ServicePlan& plan, const std::string& accelerator) {
  int workers = 0;
  for (const Pool& pool : plan.pools) workers += pool.spec.accelerator == accelerator ? pool.workers : 0;
  return workers;
}

// The service with ready workers of a kind, which have run for hours.
Service running(Service service, const std::string& accelerator, int workers) {
  for (int slot = 0; slot < workers; ++slot) {
    service.workers.push_back(ready_worker(accelerator + "-1", accelerator, 1, slot, kNow));
  }
  service.memory.configuration = accelerator + "-1";
  service.memory.configuration_since_s = kNow - 7200;
  service.last_desired = workers;
  return service;
}

// Given a service without workers; expects closed forms to choose without an answer, and if nothing was confirmed; and the
// cheapest offer otherwise, with the strategies' answers for people.
TEST(ChooseOffer, ANewServiceStartsOnTheBestOffer) {
  Service service = service_with({});
  service.offers.reset();
  service.searching_since_s = kNow - 3;
  const ServicePlan closed = planned(service);
  EXPECT_TRUE(has_reason(closed, "WorkerConfiguration"));
  EXPECT_TRUE(has_reason(closed, "StrategiesSearching"));
  EXPECT_FALSE(closed.memory.offer);
  service = service_with({});
  EXPECT_TRUE(has_reason(planned(service), "WorkerConfiguration"));
  EXPECT_EQ(planned(service).pools, closed.pools);

  service = service_with({whole_a100(3), whole_h100(1)});
  service.offers->answers = {{"vidur", "4 x a100-1", 8, "chosen"}};
  const ServicePlan plan = planned(service);
  EXPECT_TRUE(has_reason(plan, "ConfirmedOffer"));
  EXPECT_EQ(plan.feasible.status, Truth::kTrue);
  EXPECT_EQ(plan.memory.offer, service.offers->confirmed[0]);
  EXPECT_EQ(plan.strategies, service.offers->answers);
  EXPECT_GE(workers_of(plan, "a100"), 1);
  EXPECT_EQ(workers_of(plan, "h100"), 0);
}

// Given workers that closed forms chose, and then an offer of the same workers that serve a third more; expects that the offer
// is adopted at once without a change of configuration, and after the stabilization window one worker fewer.
TEST(ChooseOffer, EqualWorkersAdoptWhatTheSimulatorFound) {
  Service service = service_with({whole_h100(4.0 / 3)});
  const Offers offers = *service.offers;
  service.offers.reset();
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}};
  carry_out(planned(service), service, kNow);
  ASSERT_EQ(service.workers.size(), 5U);
  service.offers = offers;
  for (double now_s = kNow + 15; now_s < kNow + 400; now_s += 15) {
    SCOPED_TRACE(now_s);
    Snapshot snapshot = cluster({service});
    snapshot.now_s = now_s;
    observe(snapshot.services[0], now_s, kLoad);
    const ServicePlan plan = make_plan(snapshot).services[0];
    EXPECT_TRUE(has_reason(plan, "ConfirmedOffer"));
    EXPECT_EQ(plan.memory.offer, offers.confirmed[0]);
    EXPECT_EQ(plan.memory.configuration_since_s, service.memory.configuration_since_s);
    if (now_s < kNow + 300) {
      EXPECT_EQ(workers_of(plan, "h100"), 5);
    }
    carry_out(plan, service, now_s);
  }
  EXPECT_EQ(service.workers.size(), 4U);
}

// Given running workers and an offer of others; expects a change only if it costs clearly less, pays back, and signals are
// complete. An adopted offer stays in the same way.
TEST(ChooseOffer, WhatRunsStaysUntilAnOfferIsClearlyCheaper) {
  for (const bool adopted : {false, true}) {
    SCOPED_TRACE(adopted);
    const auto with = [&](double ratio) {
      Service service = running(service_with({whole_a100(ratio), whole_h100(1)}), "h100", 5);
      if (adopted) service.memory.offer = service.offers->confirmed[1];
      return service;
    };
    constexpr double kHardly = 1.5, kClearly = 3;
    const ServicePlan kept = planned(with(kHardly));
    EXPECT_TRUE(has_reason(kept, "KeptConfiguration"));
    EXPECT_EQ(workers_of(kept, "a100"), 0);
    ASSERT_TRUE(kept.memory.offer) << "the simulator has confirmed what runs";
    EXPECT_EQ(kept.memory.offer->pools[0].spec.accelerator, "h100");
    const ServicePlan changed = planned(with(kClearly));
    EXPECT_GT(workers_of(changed, "a100"), 0);
    EXPECT_EQ(changed.memory.configuration_since_s, kNow);
    EXPECT_EQ(changed.memory.offer->pools[0].spec.accelerator, "a100");
    Service service = with(kClearly);
    service.memory.configuration_since_s = kNow - 1;
    EXPECT_TRUE(has_reason(planned(service), "ChangeDoesNotPayBack"));
    EXPECT_EQ(workers_of(planned(service), "a100"), 0);
    service = with(kClearly);
    service.demand.arrivals_per_s.reset();
    EXPECT_TRUE(has_reason(planned(service), "HeldOnMissingSignals"));
    EXPECT_EQ(workers_of(planned(service), "a100"), 0);
  }
}

// Given running split phases whose prefill class is too slow for prompts as long as they are now, and an offer for such prompts
// with a faster class that costs more; expects the change and its reason. Given prompts that the running class still serves in
// time, an offer for other prompts, missing signals or lengths, or no room; expects none.
TEST(ChooseOffer, WhatIsTooSlowForThePromptsIsReplaced) {
  const auto with = [](double input_tokens) {
    const Offer running = split_offer({"l4", 1, 4}, {"a100", 1, 25}), faster = split_offer({"h100", 1, 9}, {"a100", 1, 25});
    Service service = service_with({running}, 4);
    service.accelerators.push_back(AllowedAccelerator{"l4", std::nullopt});
    service.scaling.strategy = Family::kDisaggregated;
    Snapshot snapshot = cluster({service});
    snapshot.accelerators.push_back(with_gpus(l4(), 64));
    carry_out(make_plan(snapshot).services[0], snapshot.services[0], kNow);
    Service& changed = snapshot.services[0];
    changed.memory.history_since_s = changed.memory.configuration_since_s = kNow - 3600;
    changed.offers = offers_of({faster}, kRate);
    observe(changed, kNow, 4);
    changed.demand.input_tokens = Reading{input_tokens, kNow};
    changed.demand.output_tokens = Reading{256, kNow};
    changed.demand.measured_requests = 1000;
    const ServicePlan shifted = make_plan(snapshot).services[0];
    EXPECT_FALSE(has_reason(shifted, "RunningTooSlow")) << "the offers are for other prompts";
    changed.memory = shifted.memory;
    changed.last_desired = shifted.desired_workers();
    changed.offers->input_tokens = workload_to_ask(changed).input_tokens;
    return snapshot;
  };
  const ServicePlan replaced = make_plan(with(8000)).services[0];
  EXPECT_TRUE(has_reason(replaced, "RunningTooSlow"));
  EXPECT_GT(workers_of(replaced, "h100"), 0);
  const ServicePlan kept = make_plan(with(1000)).services[0];
  EXPECT_FALSE(has_reason(kept, "RunningTooSlow"));
  EXPECT_EQ(workers_of(kept, "h100"), 0);
  Snapshot blind = with(8000);
  blind.services[0].demand.arrivals_per_s.reset();
  EXPECT_EQ(workers_of(make_plan(blind).services[0], "h100"), 0);
  Snapshot unmeasured = with(8000);
  unmeasured.services[0].demand.input_tokens.reset();
  EXPECT_EQ(workers_of(make_plan(unmeasured).services[0], "h100"), 0);
  Snapshot full = with(8000);
  for (AcceleratorState& state : full.accelerators) {
    if (state.spec.name == "h100") state.used_by_others = state.allocatable_gpus;
  }
  const ServicePlan waiting = make_plan(full).services[0];
  EXPECT_EQ(workers_of(waiting, "h100"), 0);
  EXPECT_TRUE(has_reason(waiting, "NoRoomForChange"));
}

// Given any rates and ratios; expects the two costs in the reason to be the cost of each deployment's workers at the offers'
// rate, and the decision to follow from them.
TEST(ChooseOffer, TheCostsDecide) {
  Rng rng(1, "costs");
  int changes = 0;
  for (int i = 0; i < effort(100, 1000); ++i) {
    SCOPED_TRACE(i);
    const Service service =
        running(service_with({whole_a100(rng.uniform(0.5, 4)), whole_h100(rng.uniform(0.5, 2))}), "h100", 4);
    Service on = service;
    on.memory.offer = service.offers->confirmed[1];
    const Snapshot snapshot = cluster({on});
    const CapacityByClass capacities = capacity_by_class(snapshot);
    const ConfigurationInput input{&snapshot.services[0], &snapshot, &capacities, &snapshot.services[0].memory,
                                   Lengths{512, 256}};
    const auto cost = [&](std::size_t of) { return cost_per_hour(input, choice_of(input, on.offers->confirmed[of]), kRate); };
    const ServicePlan plan = planned(on);
    const bool changed = workers_of(plan, "a100") > 0;
    changes += changed;
    EXPECT_EQ(changed, cost(0) < 0.8 * cost(1)) << cost(0) << " " << cost(1);
    EXPECT_EQ(has_reason(plan, "KeptConfiguration"), !changed);
  }
  EXPECT_GT(changes, effort(20, 200));
}

// Given an offer whose class is full, and a next one; expects the next one, with the reason; and the first again if no other
// has room either. Given an offer that exceeds the service's own limits; expects the next one.
TEST(ChooseOffer, AnOfferWithoutRoomIsSkipped) {
  const Service service = service_with({whole_a100(3), whole_h100(1)});
  const ServicePlan next = planned(service, 64, 0);
  EXPECT_TRUE(has_reason(next, "NoRoom"));
  EXPECT_GT(workers_of(next, "h100"), 0);
  EXPECT_EQ(next.memory.offer, service.offers->confirmed[1]);
  const ServicePlan nowhere = planned(service, 0, 0);
  EXPECT_EQ(nowhere.desired_workers(), 0);
  EXPECT_EQ(nowhere.memory.offer, service.offers->confirmed[0]);
  EXPECT_EQ(nowhere.able_to_scale.reason, "InsufficientCapacity");

  Service limited = service_with({mix_of_both(), whole_h100(1)});
  limited.scaling.max_workers = 1;
  EXPECT_TRUE(has_reason(planned(limited), "MaxWorkers"));
  EXPECT_EQ(planned(limited).memory.offer, limited.offers->confirmed[1]);
}

// Given a mix of two classes and any load; expects workers of both in proportion, which together serve the load.
TEST(ChooseOffer, AMixHasWorkersOfBothKinds) {
  for (const double load : {5.0, 60.0, 600.0}) {
    SCOPED_TRACE(load);
    const ServicePlan plan = planned(service_with({mix_of_both()}, load), 200, 200);
    EXPECT_EQ(plan.strategy, Family::kReplicated);
    EXPECT_EQ(plan.feasible.status, Truth::kTrue);
    ASSERT_EQ(plan.pools.size(), 2U);
    EXPECT_EQ(plan.pools[0].id(), PoolId{"h100-1"});
    EXPECT_EQ(plan.pools[1].id(), PoolId{"a100-1"});
    EXPECT_EQ(plan.pools[1].workers, static_cast<int>(std::ceil(plan.pools[0].workers * kMixShare - 1e-9)));
    EXPECT_GE(plan.predicted.requests_per_s, load);
    EXPECT_FALSE(plan.memory.prefill_share);
    // The same requests on h100 alone need more of it than their share in the mix.
    const ServicePlan alone = planned(service_with({whole_h100(1)}, load), 200, 200);
    EXPECT_LE(plan.pools[0].workers, alone.pools[0].workers);
    if (load > 100) {
      EXPECT_NEAR(plan.pools[0].workers, 0.7 * alone.pools[0].workers, 2);
    }
  }
}

// A running mix, step by step, as requests of these lengths arrive.
class RunningMix {
 public:
  RunningMix() {
    std::vector<OfferedPool>& pools = service_.offers->confirmed[0].pools;
    for (OfferedPool& pool : pools) pool.closed_form_per_s = pool.requests_per_s;
    pools[1].requests_per_s *= 1.21;  // about one a100 per h100: a slightly larger share needs one more
    step(512);
  }

  void step(double input_tokens) {
    now_s_ += 10;
    Snapshot snapshot = cluster({service_}, 200, 200);
    snapshot.now_s = now_s_;
    Service& seen = snapshot.services[0];
    observe(seen, now_s_, kLoad);
    seen.demand.input_tokens = Reading{input_tokens, now_s_};
    seen.demand.output_tokens = Reading{256, now_s_};
    for (Worker& worker : seen.workers) worker.running = worker.waiting = Reading{1, now_s_};
    carry_out(make_plan(snapshot).services[0], service_, now_s_);
  }
  void steps(int count, double input_tokens) {
    for (int i = 0; i < count; ++i) step(input_tokens);
  }
  [[nodiscard]] long beside() const {
    return std::count_if(service_.workers.begin(), service_.workers.end(),
                         [](const Worker& worker) { return worker.accelerator == "a100"; });
  }
  [[nodiscard]] double share() const { return service_.memory.sides.at(0).share; }

  // Of the memory, a new leader knows the offer only.
  void restart() {
    const std::optional<Offer> offer = service_.memory.offer;
    service_.memory = {};
    service_.memory.offer = offer;
  }
  // The strategies answer with the same kinds of workers for another rate.
  void answer_again() { service_.offers->confirmed[0].pools[0].requests_per_s *= 1.02; }

 private:
  double now_s_ = kNow;
  Service service_ = service_with({mix_of_both()}, kLoad);
};

// Given a mix under steady load whose mean lengths vary by a few percent; expects no worker of its side pool to start or stop.
TEST(ChooseOffer, ASidePoolIgnoresSmallChangesOfLengths) {
  RunningMix mix;
  const long workers = mix.beside();
  for (int i = 0; i < 200; ++i) {
    mix.step(i % 2 == 0 ? 495 : 525);
    ASSERT_EQ(mix.beside(), workers) << i;
  }
}

// Given a mix whose prompts become twelve times as long; expects a larger side pool at once. Given prompts that are short again
// for less than the scale-down window, time after time; expects no smaller one. Given short ones for longer; expects the first
// share again.
TEST(ChooseOffer, ASidePoolShrinksAfterTheWindow) {
  RunningMix mix;
  const long few = mix.beside();
  const double small = mix.share();
  mix.step(6000);
  const long many = mix.beside();
  const double large = mix.share();
  EXPECT_GT(many, few);
  EXPECT_GT(large, 1.2 * small);
  for (int i = 0; i < 10; ++i) {
    mix.steps(25, 512);
    EXPECT_EQ(mix.share(), large);
    EXPECT_GE(mix.beside(), many);
    mix.step(6000);
  }
  mix.steps(100, 512);
  EXPECT_NEAR(mix.share(), small, 1e-9);
  EXPECT_LT(mix.beside(), many);
}

// Given a mix whose prompts became long, and short ones right after a restart, or after a new answer with the same kinds of
// workers; expects no side worker to go within the scale-down window, and fewer after it.
TEST(ChooseOffer, ASidePoolOutlivesRestartsAndAnswers) {
  for (const auto happen : {&RunningMix::restart, &RunningMix::answer_again}) {
    RunningMix mix;
    mix.step(6000);
    const long many = mix.beside();
    (mix.*happen)();
    mix.steps(25, 512);
    EXPECT_GE(mix.beside(), many);
    mix.steps(100, 512);
    EXPECT_LT(mix.beside(), many);
  }
}

// Given a mix and random limits; expects both pools together within each, with as many workers as fit, and the limit named.
TEST(ChooseOffer, LimitsCountAllPoolsOfAMix) {
  Rng rng(2, "mix limits");
  int bitten = 0;
  for (int i = 0; i < effort(200, 2000); ++i) {
    SCOPED_TRACE(i);
    Service service = service_with({mix_of_both()}, rng.uniform(0, 300));
    OfferedPool& second = service.offers->confirmed[0].pools[1];
    second.requests_per_s = rng.uniform(2, 20);
    Scaling& scaling = service.scaling;
    if (rng.integer(0, 1) == 0) scaling.max_workers = static_cast<int>(rng.integer(12, 30));
    if (rng.integer(0, 1) == 0) scaling.max_cost_per_hour = rng.uniform(30, 100);
    if (rng.integer(0, 1) == 0) service.accelerators[0].max_gpus = static_cast<int>(rng.integer(1, 12));
    if (rng.integer(0, 1) == 0) service.accelerators[1].max_gpus = static_cast<int>(rng.integer(8, 20));
    const Plan plan = make_plan(cluster({service}, 1000, 1000));
    const ServicePlan& made = plan.services[0];
    ASSERT_EQ(made.feasible.status, Truth::kTrue);
    const double share = 22 / 0.7 * 0.3 / second.requests_per_s;
    const auto inside = [&](int first, int beside) {
      return (!scaling.max_workers || first + beside <= *scaling.max_workers) &&
             (!scaling.max_cost_per_hour || 4.0 * first + 2.0 * beside <= *scaling.max_cost_per_hour + 1e-9) &&
             (!service.accelerators[0].max_gpus || first <= *service.accelerators[0].max_gpus) &&
             (!service.accelerators[1].max_gpus || beside <= *service.accelerators[1].max_gpus);
    };
    const auto beside_of = [&](int first) { return std::max(1, static_cast<int>(std::ceil(first * share - 1e-9))); };
    const int first = workers_of(made, "h100"), beside = workers_of(made, "a100");
    ASSERT_TRUE(inside(first, beside)) << first << " + " << beside;
    ASSERT_EQ(beside, beside_of(first));
    if (plan.denied.empty()) continue;
    ++bitten;
    EXPECT_FALSE(inside(first + 1, beside_of(first + 1))) << plan.denied[0].message;
    EXPECT_FALSE(plan.denied[0].message.empty());
  }
  EXPECT_GT(bitten, effort(30, 300));
}

// Given too few GPUs of one class for a mix, whichever class it is; expects all that are there and the full number of the
// other, and what lacks named. Given two services with the same mix; expects no GPU planned twice.
TEST(ChooseOffer, EachPoolOfAMixGetsGpus) {
  const Service service = service_with({mix_of_both()}, 200);
  const ServicePlan full = planned(service);
  const int h100s = workers_of(full, "h100"), a100s = workers_of(full, "a100");
  for (const bool lacks_first : {true, false}) {
    const Plan plan = make_plan(cluster({service}, lacks_first ? 2 : h100s, lacks_first ? a100s : 2));
    const ServicePlan& made = plan.services[0];
    EXPECT_EQ(workers_of(made, "h100"), lacks_first ? 2 : h100s);
    EXPECT_EQ(workers_of(made, "a100"), lacks_first ? a100s : 2);
    EXPECT_EQ(made.able_to_scale.reason, "InsufficientCapacity");
    ASSERT_EQ(plan.denied.size(), 1U);
    EXPECT_EQ(plan.denied[0].accelerator, lacks_first ? "h100" : "a100");
  }
  Service other = service;
  other.id = {"default", "other", "uid-other"};
  const Plan both = make_plan(cluster({service, other}, h100s, a100s));
  for (const char* accelerator : {"h100", "a100"}) {
    const int sum = workers_of(both.services[0], accelerator) + workers_of(both.services[1], accelerator);
    EXPECT_EQ(sum, accelerator[0] == 'h' ? h100s : a100s);
  }
  for (const ServicePlan& plan : both.services) EXPECT_GE(workers_of(plan, "h100"), 1);
}

// Given a new leader that knows the last offer from the status and nothing else; expects what runs to stay in the same numbers,
// whole workers, mixes and split phases alike, with and without an answer of the strategies. Without the last offer, closed
// forms would need another number.
TEST(ChooseOffer, ANewLeaderKeepsTheOfferThatRuns) {
  const Offer split = split_offer({"h100", 1, 40}, {"a100", 1, 25, 1, 1.5});
  for (const Offer& offer : {whole_h100(1.7), mix_of_both(), split}) {
    SCOPED_TRACE(describe(offer));
    Service service = service_with({offer});
    carry_out(planned(service), service, kNow);
    const std::vector<Worker> workers = service.workers;
    ASSERT_EQ(service.memory.offer, service.offers->confirmed[0]);
    service.last_offer = service.memory.offer;
    service.memory = {};
    for (const bool answered : {true, false}) {
      if (!answered) service.offers.reset();
      const ServicePlan plan = planned(service);
      EXPECT_EQ(plan.memory.offer, service.last_offer);
      Service after = service;
      carry_out(plan, after, kNow);
      EXPECT_EQ(after.workers, workers);
    }
  }
  Service forgotten = service_with({whole_h100(1.7)});
  carry_out(planned(forgotten), forgotten, kNow);
  EXPECT_EQ(forgotten.workers.size(), 3U);
  forgotten.memory = {};
  forgotten.offers.reset();
  EXPECT_GT(planned(forgotten).desired_workers(), 3);
}

// Given a new service that has just started on closed forms, without signals, and a mix whose first or second class is the one
// that runs; expects the mix in the numbers that a preview shows.
TEST(ChooseOffer, ANewServiceTakesTheNumbersOfAMix) {
  for (const Offer& mix : {whole_offer({{"h100", 1, 22, 2, 1, 0.7}, {"a100", 1, 7.5, 1, 1, 0.3}}),
                           whole_offer({{"a100", 1, 7.5, 2, 1, 0.6}, {"h100", 1, 22, 1, 1, 0.4}})}) {
    SCOPED_TRACE(describe(mix));
    Service service = service_with({mix});
    service.memory = {};
    service.demand = {};
    service.workload.requests_per_s = 10;
    const ServicePlan preview = planned(service);
    Service live = service;
    live.offers.reset();
    carry_out(planned(live), live, kNow);
    ASSERT_GT(live.workers.size(), 0U);
    for (Worker& worker : live.workers) {
      worker.state = WorkerState::kStarting;
      worker.ready_s.reset();
      worker.created_s = kNow;
    }
    live.offers = service.offers;
    const ServicePlan heard = planned(live);
    for (const char* accelerator : {"h100", "a100"}) {
      EXPECT_GT(workers_of(preview, accelerator), 0);
      EXPECT_EQ(workers_of(heard, accelerator), workers_of(preview, accelerator)) << accelerator;
    }
  }
}

// Given an adopted offer on a class that cannot be read any more, and another offer; expects the workers unchanged, with the
// reason. Given an edit of the spec that forbids the class; expects the other offer.
TEST(ChooseOffer, AClassThatCannotBeReadLeavesWorkersUnchanged) {
  Service service = running(service_with({whole_h100(3)}), "l4", 3);
  service.accelerators.push_back({"l4", std::nullopt});
  service.memory.offer = whole_offer({{"l4", 1, 3, 3, 1}});
  const ServicePlan plan = planned(service);
  EXPECT_EQ(plan.feasible.status, Truth::kUnknown);
  EXPECT_EQ(plan.feasible.reason, "RunningClassUnknown");
  EXPECT_EQ(workers_of(plan, "l4"), 3);
  EXPECT_EQ(plan.desired_workers(), 3);
  EXPECT_EQ(plan.memory.offer, service.memory.offer) << "it still runs";
  service.accelerators.pop_back();
  EXPECT_GT(workers_of(planned(service), "h100"), 0);
  EXPECT_EQ(planned(service).memory.offer, service.offers->confirmed[0]);

  // An offer on such a class that does not run is skipped.
  service = running(service_with({whole_offer({{"l4", 1, 3}}), whole_h100(2)}), "h100", 3);
  EXPECT_EQ(planned(service).memory.offer, service.offers->confirmed[1]);
  EXPECT_TRUE(has_reason(planned(service), "RunningClassUnknown"));
}

// Given measured times or lengths that differ from the question's; expects an offer's workers to serve in proportion to the
// closed forms.
TEST(ChooseOffer, ClosedFormsCarryOffersOver) {
  Service service = service_with({split_offer({"h100", 1, 40}, {"a100", 1, 5})}, 100);
  const auto decode = [&] { return planned(service, 200, 400).pools[0].workers; };
  const int assumed = decode();
  service.demand.output_tokens = Reading{512, kNow};
  service.demand.input_tokens = Reading{512, kNow};
  EXPECT_NEAR(decode(), 2 * assumed, 0.3 * assumed) << "answers twice as long";
}

// Given workers that closed forms chose and of which the simulator says that they serve less, and a better offer of another
// class; expects what runs to cost what the simulator says: the other class is taken if it is clearly cheaper than that, and
// otherwise the simulator's number of the running workers.
TEST(ChooseOffer, WhatRunsCostsWhatTheSimulatorSays) {
  const auto planned_with = [&](double ratio) {
    return planned(running(service_with({whole_a100(1), whole_h100(ratio)}), "h100", 5));
  };
  ASSERT_TRUE(has_reason(planned_with(1), "KeptConfiguration"));
  const ServicePlan kept = planned_with(0.85);
  EXPECT_TRUE(has_reason(kept, "KeptConfiguration"));
  ASSERT_TRUE(kept.memory.offer);
  EXPECT_EQ(kept.memory.offer->pools[0].spec.accelerator, "h100");
  EXPECT_GT(workers_of(kept, "h100"), 5);
  EXPECT_GT(workers_of(planned_with(0.3), "a100"), 0);
}

}  // namespace
}  // namespace windlass::planner
