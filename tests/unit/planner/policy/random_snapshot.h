// Random snapshots from a seed, with everything that valid ones may contain and some invalid values.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "planner/base/rng.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::planner::testing {

inline bool chance(Rng& rng, double probability) { return rng.uniform() < probability; }

inline int between(Rng& rng, int low, int high) { return static_cast<int>(rng.integer(low, high)); }

// Usually fresh; otherwise missing, stale, NaN, infinite or negative.
inline std::optional<Reading> random_reading(Rng& rng, double value, double now_s) {
  switch (rng.integer(0, 19)) {
    case 0: return std::nullopt;
    case 1: return Reading{value, now_s - 100};
    case 2: return Reading{std::numeric_limits<double>::quiet_NaN(), now_s};
    case 3: return Reading{std::numeric_limits<double>::infinity(), now_s};
    case 4: return Reading{-value - 1, now_s};
    default: return Reading{value, now_s - rng.uniform(0, 20)};
  }
}

inline Worker random_worker(Rng& rng, const Snapshot& snapshot, int slot) {
  const auto& spec =
      snapshot
          .accelerators[static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(snapshot.accelerators.size()) - 1))]
          .spec;
  const int gpus = 1 << between(rng, 0, 1);
  Worker worker = ready_worker(spec.name + "-" + std::to_string(gpus), spec.name, gpus, slot, snapshot.now_s);
  const WorkerState states[] = {WorkerState::kReady,        WorkerState::kReady,    WorkerState::kReady,
                                WorkerState::kStarting,     WorkerState::kDraining, WorkerState::kFailed,
                                WorkerState::kUnschedulable};
  worker.state = states[between(rng, 0, 6)];
  worker.running = random_reading(rng, between(rng, 0, 40), snapshot.now_s);
  worker.waiting = random_reading(rng, between(rng, 0, 5), snapshot.now_s);
  worker.node_leaving = between(rng, 0, 9) == 0;
  worker.max_concurrency = between(rng, 0, 256);
  worker.kv_use = random_reading(rng, rng.uniform(), snapshot.now_s);
  if (chance(rng, 0.15)) {
    worker.trouble = static_cast<WorkerTrouble>(between(rng, 1, 6));
    worker.trouble_message = "as the kubelet has it";
  }
  if (chance(rng, 0.2)) worker.ready_s = snapshot.now_s - rng.uniform(0, 60);
  return worker;
}

// What a policy would remember after some time, or what another clock's policy would.
inline void random_memory(Rng& rng, PolicyMemory& memory, double now_s) {
  if (chance(rng, 0.5)) memory.wanted = {{now_s - rng.uniform(0, 200), between(rng, 0, 6)}};
  if (chance(rng, 0.5)) {
    memory.last_change = Change{now_s - rng.uniform(-5, 300), chance(rng, 0.5) ? Direction::kUp : Direction::kDown};
  }
  if (chance(rng, 0.2)) memory.panic_until_s = now_s + rng.uniform(-60, 600);
  if (chance(rng, 0.2)) memory.queue_since_s = now_s - rng.uniform(-5, 300);
  if (chance(rng, 0.5)) memory.slots = {{"h100-1", between(rng, 1, 256)}, {"a100-2", between(rng, 1, 256)}};
  if (chance(rng, 0.5)) {
    memory.configuration = "h100-1";
    memory.configuration_since_s = now_s - rng.uniform(0, 7200);
  }
  if (chance(rng, 0.5)) memory.counted = Reading{rng.uniform(0, 100'000), now_s - rng.uniform(0, 80)};
  for (double at_s = now_s - 60; at_s < now_s - 5 && chance(rng, 0.9); at_s += 10) {
    memory.arrivals.push_back({at_s, rng.uniform(0, 60)});
  }
  if (chance(rng, 0.5)) memory.burstiness = rng.uniform(1, 20);
  if (chance(rng, 0.5)) memory.bursts_per_s = rng.uniform(0, 100);
  if (chance(rng, 0.2)) {
    auto forecaster = workload::BestForecaster::make({}).value();
    const double rate = rng.uniform(0, 60);
    for (double at_s = now_s - 600; at_s < now_s - 5; at_s += 10) {
      static_cast<void>(forecaster.observe({at_s, rate * rng.uniform(0.5, 1.5)}, 60));
    }
    memory.forecast = forecaster.state();
  }
}

// A pool of an offer, on a class that may no longer exist.
inline OfferedPool random_pool(Rng& rng, const Snapshot& snapshot, dispatch::Role role, double load_share) {
  const auto last = static_cast<std::int64_t>(snapshot.accelerators.size()) - 1;
  OfferedPool pool{{snapshot.accelerators[static_cast<std::size_t>(rng.integer(0, last))].spec.name, 1 << between(rng, 0, 1)},
                   role,
                   between(rng, 1, 8),
                   load_share,
                   rng.uniform(0.2, 40)};
  if (chance(rng, 0.05)) pool.spec.accelerator = "unheard-of";
  if (chance(rng, 0.5)) pool.closed_form_per_s = pool.requests_per_s * rng.uniform(0.3, 3);
  if (chance(rng, 0.5)) pool.capacity_ratio = rng.uniform(0.3, 3);
  return pool;
}

// Whole workers of one or two kinds; or decode workers of one or two kinds, and prefill workers.
inline Offer random_offer(Rng& rng, const Snapshot& snapshot, bool split) {
  Offer offer;
  offer.strategy = split ? "distserve" : "mix";
  const dispatch::Role role = split ? dispatch::Role::kDecode : dispatch::Role::kUnified;
  const double first_share = chance(rng, 0.5) ? 1 : rng.uniform(0.5, 0.95);
  offer.pools.push_back(random_pool(rng, snapshot, role, first_share));
  if (first_share < 1) {
    OfferedPool second = random_pool(rng, snapshot, role, 1 - first_share);
    if (second.spec == offer.pools.front().spec) second.spec.tensor_parallel = 3 - second.spec.tensor_parallel;
    offer.pools.push_back(second);
  }
  if (split) offer.pools.push_back(random_pool(rng, snapshot, dispatch::Role::kPrefill, 1));
  offer.requests_per_s = rng.uniform(0.1, 60);
  offer.capacity_per_s = offer.requests_per_s * rng.uniform(1, 1.5);
  offer.attainment = rng.uniform(0.9, 1);
  offer.cost_per_hour = rng.uniform(1, 60);
  offer.why = "drawn";
  return offer;
}

// With or without the strategies' answer, and an offer that runs.
inline void random_offers(Rng& rng, const Snapshot& snapshot, Service& service) {
  const Family strategies[] = {Family::kDisaggregated, Family::kDisaggregated, Family::kAuto, Family::kAuto,
                               Family::kReplicated};
  const Family strategy = service.scaling.strategy = strategies[between(rng, 0, 4)];
  const auto offer = [&] {
    return random_offer(rng, snapshot, strategy == Family::kDisaggregated || (strategy == Family::kAuto && chance(rng, 0.5)));
  };
  if (chance(rng, 0.5)) service.memory.prefill_share = rng.uniform(0.05, 8);
  if (const auto& share = service.memory.prefill_share) {
    service.memory.sides = {{"h100-1", dispatch::Role::kPrefill, *share, Reading{*share / 2, snapshot.now_s - 100}}};
  }
  if (chance(rng, 0.4)) service.memory.offer = offer();
  if (chance(rng, 0.4)) service.last_offer = offer();
  if (strategy != Family::kDisaggregated) service.may_split = chance(rng, 0.9);
  for (Worker& worker : service.workers) {
    if (strategy == Family::kReplicated || chance(rng, 0.3)) continue;
    worker.role = chance(rng, 0.5) ? dispatch::Role::kPrefill : dispatch::Role::kDecode;
  }
  if (chance(rng, 0.1)) {
    service.searching_since_s = snapshot.now_s - rng.uniform(0, 60);
    return;
  }
  Offers offers;
  offers.requests_per_s = rng.uniform(0.1, 60);
  offers.complete = chance(rng, 0.8);
  for (int left = between(rng, 0, 3); left > 0; --left) offers.confirmed.push_back(offer());
  std::sort(offers.confirmed.begin(), offers.confirmed.end(),
            [](const Offer& a, const Offer& b) { return a.cost_per_hour < b.cost_per_hour; });
  for (const Offer& of : offers.confirmed) offers.answers.push_back({of.strategy, describe(of), of.cost_per_hour, "drawn"});
  if (offers.confirmed.empty()) offers.why = "drawn";
  service.offers = offers;
}

inline Service random_service(Rng& rng, const Snapshot& snapshot, int index) {
  Service service = chat_service("s" + std::to_string(index));
  // Mostly models that fit on one GPU; with others there would be little to decide.
  const auto names = model_shape_names();
  constexpr double kMaxBytes = 20e9;
  do {
    const auto at = static_cast<std::size_t>(rng.integer(0, static_cast<std::int64_t>(names.size()) - 1));
    service.shape = model_shape_by_name(names[at]).value();
  } while (weight_bytes(*service.shape) > kMaxBytes && chance(rng, 0.9));
  if (chance(rng, 0.05)) {
    service.shape.reset();
    service.shape_unknown_reason = "neither architecture nor config is given";
  }
  if (index % 3 == 2) service.max_gpus_per_worker = 1 + index % 2;
  service.slo = Slo{rng.uniform(0.05, 4), rng.uniform(0.005, 0.2), rng.uniform(50, 99.9), 300};
  service.workload = AssumedWorkload{chance(rng, 0.5) ? rng.uniform(0, 30) : 0, rng.uniform(1, 2000), rng.uniform(1, 600)};
  service.accelerators.clear();
  if (chance(rng, 0.6)) {
    for (const AcceleratorState& state : snapshot.accelerators) {
      if (chance(rng, 0.7))
        service.accelerators.push_back({state.spec.name, chance(rng, 0.3) ? std::optional(between(rng, 0, 12)) : std::nullopt});
    }
    if (chance(rng, 0.1)) service.accelerators.push_back({"unheard-of", std::nullopt});
  }
  Scaling& scaling = service.scaling;
  const Family strategies[] = {Family::kAuto, Family::kAuto, Family::kReplicated, Family::kReplicated, Family::kChained};
  scaling.strategy = strategies[between(rng, 0, 4)];
  scaling.min_workers = between(rng, 0, 3);
  if (chance(rng, 0.4)) scaling.max_workers = scaling.min_workers + between(rng, 0, 6);
  if (chance(rng, 0.3)) scaling.max_cost_per_hour = rng.uniform(0, 60);
  if (chance(rng, 0.3)) {
    scaling.min_workers = 0;
    scaling.idle_to_zero_after_s = rng.uniform(10, 1000);
  }
  scaling.scale_down_stabilization_s = chance(rng, 0.2) ? 0 : rng.uniform(0, 600);
  scaling.scale_up_stabilization_s = chance(rng, 0.8) ? 0 : rng.uniform(0, 60);
  if (chance(rng, 0.2)) scaling.scale_up_max_per_minute = between(rng, 1, 4);
  if (chance(rng, 0.2)) scaling.scale_down_max_per_minute = between(rng, 1, 4);
  if (chance(rng, 0.5)) scaling.tolerance = rng.uniform(0, 0.5);
  const Mode modes[] = {Mode::kApply, Mode::kApply, Mode::kApply, Mode::kApply, Mode::kRecommend, Mode::kPaused};
  scaling.mode = modes[between(rng, 0, 5)];
  service.priority = between(rng, 0, 2);

  const int workers = between(rng, 0, 6);
  for (int slot = 0; slot < workers; ++slot) service.workers.push_back(random_worker(rng, snapshot, slot));
  if (chance(rng, 0.9)) service.last_desired = between(rng, 0, 6);
  const double load = chance(rng, 0.3) ? 0 : rng.uniform(0, 60);
  service.demand.arrivals_per_s = random_reading(rng, load, snapshot.now_s);
  service.demand.arrivals_total = random_reading(rng, between(rng, 0, 100'000), snapshot.now_s);
  service.demand.arrivals_window_s = rng.uniform(1, 120);
  service.demand.queued = random_reading(rng, chance(rng, 0.6) ? 0 : between(rng, 0, 300), snapshot.now_s);
  service.demand.input_tokens = random_reading(rng, rng.uniform(1, 4000), snapshot.now_s);
  service.demand.output_tokens = random_reading(rng, rng.uniform(1, 1000), snapshot.now_s);
  if (chance(rng, 0.7)) service.demand.last_arrival_at_s = snapshot.now_s - rng.uniform(0, 2000);
  service.demand.attainment = random_reading(rng, rng.uniform(), snapshot.now_s);
  service.demand.recent_attainment = random_reading(rng, rng.uniform(), snapshot.now_s);
  service.demand.recently_judged = between(rng, 0, 500);
  if (chance(rng, 0.7)) service.starts = StartTimes{rng.uniform(0, 900), between(rng, 0, 20)};
  if (chance(rng, 0.5)) {
    for (const AcceleratorState& state : snapshot.accelerators) {
      WorkerEstimate measured;
      measured.accelerator = state.spec.name;
      measured.gpus_per_worker = 1 << between(rng, 0, 2);
      measured.estimate.mean = {rng.uniform(0, 6), rng.uniform(0, 6), rng.uniform(0, 6), rng.uniform(-0.1, 0.1)};
      for (double& one : measured.estimate.covariance) one = rng.uniform(-0.01, 0.2);
      measured.estimate.samples = between(rng, 0, 1000);
      measured.estimate.largest_batch = rng.uniform(0, 100);
      service.estimates.push_back(measured);
    }
  }
  if (chance(rng, 0.1)) {
    service.refused = CreationRefusal{"QuotaExceeded", "exceeded quota: gpus", snapshot.now_s + rng.uniform(-60, 60)};
  }
  if (chance(rng, 0.7)) {
    service.memory.history_since_s = snapshot.now_s - rng.uniform(0, 2000);
    for (double at_s = *service.memory.history_since_s; at_s < snapshot.now_s; at_s += rng.uniform(1, 300)) {
      service.memory.recommendations.push_back({at_s, between(rng, 0, 6)});
    }
    if (chance(rng, 0.5)) service.memory.desired = service.last_desired;
    random_memory(rng, service.memory, snapshot.now_s);
  }
  // A separate random stream, so that the other services do not depend on this one.
  Rng split(static_cast<std::uint64_t>(snapshot.now_s * 1000) + static_cast<std::uint64_t>(index), "split");
  if (chance(split, 0.4)) random_offers(split, snapshot, service);
  if (chance(split, 0.25)) {
    service.transfers.push_back(
        {snapshot.accelerators.front().spec.name,
         1 << between(split, 0, 2),
         {split.uniform(1, 1e11), split.uniform(0, 0.1), split.uniform(0, 1e6), between(split, 0, 99)}});
  }
  return service;
}

inline Snapshot random_snapshot(std::uint64_t seed) {
  Rng rng(seed, "snapshot");
  Snapshot snapshot;
  snapshot.now_s = 1e6 + rng.uniform(0, 1e6);
  for (const AcceleratorSpec& spec : {h100(), a100(), l4()}) {
    if (!snapshot.accelerators.empty() && chance(rng, 0.3)) continue;
    AcceleratorState state = with_gpus(spec, between(rng, 0, 16));
    state.spec.price_per_hour = chance(rng, 0.2) ? 0 : rng.uniform(0.2, 8);
    state.used_by_others = between(rng, 0, 4);
    if (chance(rng, 0.3)) {
      state.mode = CapacityMode::kElastic;
      state.max_gpus = between(rng, 0, 24);
    }
    snapshot.accelerators.push_back(std::move(state));
  }
  const int services = between(rng, 1, 4);
  for (int index = 0; index < services; ++index) snapshot.services.push_back(random_service(rng, snapshot, index));
  return snapshot;
}

}  // namespace windlass::planner::testing
