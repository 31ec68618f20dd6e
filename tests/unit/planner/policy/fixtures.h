// Fixtures of the planner's tests: accelerators with the figures of real data sheets, a service that can be served, ready
// workers.
#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "planner/catalog/accelerator.h"
#include "planner/catalog/model_shape.h"
#include "planner/perf/linear_model.h"
#include "planner/policy/plan.h"
#include "planner/policy/snapshot.h"

namespace windlass::planner::testing {

inline constexpr double kGiB = 1024.0 * 1024 * 1024;

inline AcceleratorSpec h100() {
  AcceleratorSpec spec;
  spec.name = "h100";
  spec.memory_bytes = 80 * kGiB;
  spec.peak_flops = {{DType::kBFloat16, 989e12}, {DType::kFloat8, 1979e12}, {DType::kFloat32, 67e12}};
  spec.memory_bandwidth_bytes_per_s = 3.35e12;
  spec.intra_link_bandwidth_bytes_per_s = 450e9;
  spec.intra_link_latency_s = 3e-6;
  spec.gpus_per_node = 8;
  spec.price_per_hour = 4;
  return spec;
}

inline AcceleratorSpec a100() {
  AcceleratorSpec spec = h100();
  spec.name = "a100";
  spec.peak_flops = {{DType::kBFloat16, 312e12}, {DType::kFloat32, 19.5e12}};
  spec.memory_bandwidth_bytes_per_s = 2.039e12;
  spec.intra_link_bandwidth_bytes_per_s = 300e9;
  spec.price_per_hour = 2;
  return spec;
}

inline AcceleratorSpec l4() {
  AcceleratorSpec spec;
  spec.name = "l4";
  spec.memory_bytes = 24 * kGiB;
  spec.peak_flops = {{DType::kBFloat16, 121e12}, {DType::kFloat32, 30e12}};
  spec.memory_bandwidth_bytes_per_s = 300e9;
  spec.gpus_per_node = 1;
  spec.price_per_hour = 0.7;
  return spec;
}

inline AcceleratorState with_gpus(AcceleratorSpec spec, int gpus) {
  AcceleratorState state;
  state.spec = std::move(spec);
  state.allocatable_gpus = gpus;
  return state;
}

// llama3-8b, 512 + 256 tokens, 1 s to the first token and 50 ms per token; on h100 one worker serves about 16 requests/s.
inline Service chat_service(const std::string& name = "chat") {
  Service service;
  service.id = ServiceId{"default", name, "uid-" + name};
  service.generation = 1;
  service.served_name = name;
  service.shape = model_shape_by_name("llama3-8b").value();
  service.slo = Slo{1.0, 0.05, 95, 300};
  service.workload = AssumedWorkload{0, 512, 256};
  service.accelerators = {AllowedAccelerator{"h100", std::nullopt}};
  service.scaling.min_workers = 1;
  service.scaling.scale_down_stabilization_s = 300;
  return service;
}

// One pool of a hand-made offer: what one of its workers serves.
struct OfferedWorkers {
  std::string accelerator;
  int gpus = 1;
  double requests_per_s = 0;
  int workers = 1;
  double capacity_ratio = 1;
  double load_share = 1;
};

inline OfferedPool offered_pool(const OfferedWorkers& of, dispatch::Role role) {
  return {{of.accelerator, of.gpus}, role, of.workers, of.load_share, of.requests_per_s, 0, of.capacity_ratio};
}

inline Offer split_offer(const OfferedWorkers& prefill, const OfferedWorkers& decode) {
  Offer offer;
  offer.strategy = "distserve";
  offer.pools = {offered_pool(decode, dispatch::Role::kDecode), offered_pool(prefill, dispatch::Role::kPrefill)};
  offer.why = "drawn by hand";
  return offer;
}

// Whole workers: of one class, or a mix.
inline Offer whole_offer(const std::vector<OfferedWorkers>& pools) {
  Offer offer;
  offer.strategy = "vidur";
  for (const OfferedWorkers& pool : pools) offer.pools.push_back(offered_pool(pool, dispatch::Role::kUnified));
  offer.why = "drawn by hand";
  return offer;
}

// A complete answer for this rate. `confirmed`: cheapest first.
inline Offers offers_of(std::vector<Offer> confirmed, double requests_per_s = 0) {
  Offers offers;
  offers.requests_per_s = requests_per_s;
  offers.complete = true;
  for (Offer& offer : confirmed) offer.requests_per_s = requests_per_s;
  offers.confirmed = std::move(confirmed);
  return offers;
}

inline Offers split_offers(const OfferedWorkers& prefill, const OfferedWorkers& decode) {
  return offers_of({split_offer(prefill, decode)});
}
inline Offers whole_offers(const std::vector<OfferedWorkers>& pools) { return offers_of({whole_offer(pools)}); }

// Nothing was confirmed.
inline Offers no_offers(std::string why) {
  Offers offers = offers_of({});
  offers.why = std::move(why);
  return offers;
}

// Measurements of such workers, accurate to 2 %: these multiples of the data sheet's times.
inline WorkerEstimate measured(const Service& service, const AcceleratorSpec& spec, int gpus, double prefill, double decode) {
  const LinearCoefficients sheet = linear_coefficients(*service.shape, spec, gpus, service.engine);
  LinearCoefficients truth = sheet;
  truth.k1 *= prefill;
  truth.c1 *= prefill;
  for (double* one : {&truth.k2, &truth.c2, &truth.c3}) *one *= decode;
  return {spec.name, gpus, false, estimate_from(sheet, LinearModel(truth), 0.02, 500, 64)};
}

inline Worker ready_worker(const std::string& pool, const std::string& accelerator, int gpus, int slot, double now_s,
                           double running = 0) {
  Worker worker;
  worker.name = pool + "-" + std::to_string(slot);
  worker.pool = pool;
  worker.slot = slot;
  worker.accelerator = accelerator;
  worker.gpus = gpus;
  worker.state = WorkerState::kReady;
  worker.created_s = now_s - 1000;
  worker.ready_s = now_s - 900;
  worker.running = Reading{running, now_s};
  worker.waiting = Reading{0, now_s};
  worker.address = "10.0.0.1:8000";
  worker.max_concurrency = 256;
  return worker;
}

inline void observe(Service& service, double now_s, double arrivals_per_s, double queued = 0) {
  service.demand.arrivals_per_s = Reading{arrivals_per_s, now_s};
  service.demand.queued = Reading{queued, now_s};
  if (arrivals_per_s > 0) service.demand.last_arrival_at_s = now_s;
}

// Applies a plan instantly: its workers exist and are ready, and its memory is passed back.
inline void carry_out(const ServicePlan& plan, Service& service, double now_s) {
  service.memory = plan.memory;
  service.last_desired = plan.desired_workers();
  service.workers.clear();
  std::map<std::string, int> slots;  // by pool name, shared by its roles
  for (const Pool& pool : plan.pools) {
    for (int i = 0; i < pool.workers; ++i) {
      Worker worker = ready_worker(pool.name, pool.spec.accelerator, pool.spec.gpus(), slots[pool.name]++, now_s);
      worker.max_concurrency = pool.each.max_concurrency;
      worker.role = pool.role;
      worker.later_nodes.resize(static_cast<std::size_t>(pool.spec.pipeline_stages - 1));
      service.workers.push_back(std::move(worker));
    }
  }
}

inline bool has_reason(const ServicePlan& plan, const std::string& code) {
  for (const Reason& reason : plan.reasons) {
    if (reason.code == code) return true;
  }
  return false;
}

}  // namespace windlass::planner::testing
