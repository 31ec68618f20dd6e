// See apply.h.
#include "controller/reconcile/apply.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "controller/reconcile/routes.h"
#include "controller/reconcile/spec.h"

namespace windlass::controller {
namespace {

constexpr double kBackoffMinS = 1;
constexpr double kBackoffMaxS = 60;
constexpr double kOverdueGraceS = 5;  // for a worker that has outlived its drainTimeout
constexpr double kSettleS = 5;        // after taking the lead: time for the gateways to find us before anything is ended
constexpr const char* kWorkerFailed = "WorkerFailed";
constexpr double kQuietGraceS = 30;  // for a worker that nobody uses any more; it ends at once, unless we were wrong

class Applier {
 public:
  Applier(const ApplyContext& context, ControllerState& state) : context_(context), state_(state) {}

  Applied run() {
    for (std::size_t i = 0; i < context_.observation.services.size(); ++i) {
      const api::ModelService& service = *context_.observation.services[i];
      const std::vector<Worker>& workers = context_.observation.workers.at(service.metadata.uid);
      for (const Worker& worker : workers) finish(service, worker);
      const planner::Mode mode = context_.observation.snapshot.services[i].scaling.mode;
      if (mode == planner::Mode::kApply) scale(service, context_.plan.services.at(i), workers);
    }
    for (const Worker& orphan : context_.observation.orphans) let_go(orphan);
    for (const Worker& stray : context_.observation.strays) {
      if (stray.finished) note(context_.runtime.release(stray), "releasing " + chain_id(stray));
    }
    forget_gone_drains();
    return std::move(applied_);
  }

 private:
  void note(const Result<void>& result, const std::string& what) {
    if (result.ok()) {
      applied_.changed = true;
    } else if (result.error().code != ErrorCode::kNotFound) {
      applied_.errors.push_back(result.error().within(what).message);
    }
  }

  // A worker that drains: end it once nobody needs it. One that has ended: let go of it.
  void finish(const api::ModelService& service, const Worker& worker) {
    const double drain_timeout_s = service.spec.scaling.drain_timeout_s;
    if (worker.finished) {
      // Ended by itself (evicted, refused by its node): its successor must not follow at once, again and again.
      const ServiceMemory& memory = state_.services[service.metadata.uid];
      const bool in_force = memory.create_backoff && context_.now.monotonic_s < memory.create_backoff->until_s;
      if (worker.failed && !worker.terminating && !in_force) {
        back_off(service, state_.services[service.metadata.uid], worker.name,
                 Error{ErrorCode::kUnavailable, fmt::format("worker {} failed: {}", worker.name, worker.message)},
                 kWorkerFailed);
      }
      note(context_.runtime.release(worker), "releasing " + chain_id(worker));
      return;
    }
    if (worker.terminating) {
      applied_.waiting = true;
      return;
    }
    if (!worker.draining_since_s) return;
    applied_.waiting = true;
    const double drained_s = context_.now.wall_s - *worker.draining_since_s;
    if (drained_s >= drain_timeout_s) {
      note(context_.runtime.terminate(worker, kOverdueGraceS), "ending " + chain_id(worker));
    } else if (quiet(worker)) {
      note(context_.runtime.terminate(worker, std::max(kQuietGraceS, drain_timeout_s - drained_s)),
           "ending " + chain_id(worker));
    }
  }

  // Whether every gateway knows that the worker drains, and since then neither they nor it have a request in flight.
  bool quiet(const Worker& worker) {
    const double now_s = context_.now.monotonic_s;
    if (now_s - state_.leading_since_s < kSettleS) return false;
    // The table in force was made from the observation that shows the worker draining, so it is the first that can say so.
    const auto drain = state_.drains.try_emplace(worker.uid, DrainMemory{context_.table, std::nullopt}).first;
    const bool all_know = std::all_of(context_.gateways.begin(), context_.gateways.end(), [&](const GatewayPeer& gateway) {
      return gateway.acknowledged >= drain->second.version;
    });
    if (!all_know) return false;
    if (!drain->second.acknowledged_s) drain->second.acknowledged_s = now_s;
    // Only what was read after the acknowledgement counts: an older page may have missed the last request.
    const double since_s = *drain->second.acknowledged_s;
    const auto in_flight = context_.signals.in_flight(context_.gateways, chain_id(worker));
    if (!in_flight || in_flight->at_s <= since_s || in_flight->value > 0) return false;
    const auto load = context_.signals.worker_load(worker.uid);
    // Another engine, a worker that never answered, or one that does not run: the gateways' word is all there is.
    if (!load || worker.failed) return true;
    return load->running.at_s > since_s && load->running.value + load->waiting.value <= 0;
  }

  // Nobody's worker any more. It is told to end and finishes what it has in flight by itself.
  void let_go(const Worker& worker) {
    if (worker.finished) {
      note(context_.runtime.release(worker), "releasing " + chain_id(worker));
    } else if (!worker.terminating) {
      note(context_.runtime.terminate(worker, std::nullopt), "ending " + chain_id(worker));
    } else {
      applied_.waiting = true;
    }
  }

  void scale(const api::ModelService& service, const planner::ServicePlan& plan, const std::vector<Worker>& workers) {
    ServiceMemory& memory = state_.services[service.metadata.uid];
    std::vector<const Worker*> active;
    for (const Worker& worker : workers) {
      if (!worker.finished && !worker.terminating && !worker.draining_since_s) active.push_back(&worker);
    }
    std::set<const Worker*> current;
    int ready_current = 0;
    bool wants_room = false;  // a new worker cannot be placed before an outdated one goes
    for (const planner::PoolPlan& pool : plan.pools) {
      const auto accelerator = context_.observation.classes.find(pool.accelerator);
      if (accelerator == context_.observation.classes.end()) continue;  // removed since the plan was made
      const std::string hash = worker_spec(service, pool, 0, *accelerator->second).hash();
      std::vector<const Worker*> mine;
      for (const Worker* worker : active) {
        if (worker->pool == pool.name && worker->spec_hash == hash) mine.push_back(worker);
      }
      current.insert(mine.begin(), mine.end());
      for (const Worker* worker : mine) {
        ready_current += worker->ready ? 1 : 0;
        wants_room = wants_room || worker->unschedulable;
      }
      const int surplus = static_cast<int>(mine.size()) - pool.workers;
      if (surplus > 0) {
        drain_some(service, mine, surplus);
      } else if (surplus < 0) {
        // Workers of this pool that are outdated stand in the new ones' place until they go: one more than planned at a time,
        // and that only where every budget leaves it.
        const int live = static_cast<int>(
            std::count_if(active.begin(), active.end(), [&](const Worker* worker) { return worker->pool == pool.name; }));
        const bool replacing = live > static_cast<int>(mine.size());
        const int surge = replacing && room_for_one_more(service, pool, *accelerator->second, active) ? 1 : 0;
        const int may = std::clamp(pool.workers + surge - live, 0, -surplus);
        if (may > 0) create_some(service, memory, pool, *accelerator->second, workers, may);
        // The next one makes room only once those that came before it serve.
        const bool all_serve = std::all_of(mine.begin(), mine.end(), [](const Worker* worker) { return worker->ready; });
        wants_room = wants_room || (replacing && surge == 0 && may == 0 && all_serve);
      }
    }
    const bool making_room = std::any_of(workers.begin(), workers.end(), [](const Worker& worker) {
      return !worker.finished && (worker.terminating || worker.draining_since_s);
    });
    if (ready_current == plan.desired_workers()) memory.create_backoff.reset();
    replace(service, active, current, ready_current, plan.desired_workers(), wants_room && !making_room);
  }

  // Whether a worker beyond the plan would stay inside the service's limits and what the class has free.
  bool room_for_one_more(const api::ModelService& service, const planner::PoolPlan& pool,
                         const api::AcceleratorClass& accelerator, const std::vector<const Worker*>& active) const {
    const api::ScalingSpec& scaling = service.spec.scaling;
    if (scaling.max_workers && static_cast<std::int64_t>(active.size()) + 1 > *scaling.max_workers) return false;
    const auto price = [&](const std::string& name) {
      const auto found = context_.observation.classes.find(name);
      return found == context_.observation.classes.end() ? 0.0 : found->second->spec.price_per_hour.value_or(0);
    };
    double cost = pool.gpus_per_worker * price(pool.accelerator);
    std::int64_t of_service = pool.gpus_per_worker;
    for (const Worker* worker : active) {
      cost += worker->gpus * price(worker->accelerator);
      if (worker->accelerator == pool.accelerator) of_service += worker->gpus;
    }
    if (scaling.max_cost_per_hour && cost > *scaling.max_cost_per_hour) return false;
    for (const api::AcceleratorChoice& choice : service.spec.accelerators) {
      if (choice.accelerator_class == pool.accelerator && choice.max_gpus && of_service > *choice.max_gpus) return false;
    }
    std::int64_t held = pool.gpus_per_worker;
    const auto add = [&](const Worker& worker) {
      if (worker.accelerator == pool.accelerator && !worker.finished) held += worker.gpus;
    };
    for (const auto& [uid, workers] : context_.observation.workers) std::for_each(workers.begin(), workers.end(), add);
    std::for_each(context_.observation.orphans.begin(), context_.observation.orphans.end(), add);
    std::for_each(context_.observation.strays.begin(), context_.observation.strays.end(), add);
    const auto capacity = context_.observation.capacity.find(pool.accelerator);
    if (capacity == context_.observation.capacity.end()) return false;
    const bool elastic = accelerator.spec.capacity.mode == api::CapacityMode::kElastic;
    const std::int64_t limit = elastic ? accelerator.spec.capacity.max_gpus.value_or(0) : capacity->second.allocatable;
    return held + capacity->second.used_by_others <= limit;
  }

  // Those that give least go first: not ready, then fewest requests, then the highest slot.
  void drain_some(const api::ModelService& service, std::vector<const Worker*> candidates, int count) {
    const auto running = [&](const Worker* worker) {
      const auto load = context_.signals.worker_load(worker->uid);
      return load ? load->running.value + load->waiting.value : 0.0;
    };
    std::sort(candidates.begin(), candidates.end(), [&](const Worker* a, const Worker* b) {
      if (a->ready != b->ready) return !a->ready;
      const double load_a = running(a), load_b = running(b);
      if (load_a != load_b) return load_a < load_b;
      return a->slot > b->slot;
    });
    for (int i = 0; i < count && i < static_cast<int>(candidates.size()); ++i)
      drain(service, *candidates[static_cast<std::size_t>(i)]);
  }

  void drain(const api::ModelService& service, const Worker& worker) {
    // One that never became ready has nothing in flight.
    const auto result = worker.ready_s || worker.ready ? context_.runtime.begin_drain(worker, context_.now)
                                                       : context_.runtime.terminate(worker, kQuietGraceS);
    note(result, "draining " + chain_id(worker));
    if (result.ok()) {
      applied_.happenings.push_back({&service, false, "WorkerDraining", fmt::format("draining worker {}", worker.name)});
    }
  }

  void create_some(const api::ModelService& service, ServiceMemory& memory, const planner::PoolPlan& pool,
                   const api::AcceleratorClass& accelerator, const std::vector<Worker>& workers, int count) {
    const double now_s = context_.now.monotonic_s;
    if (memory.create_backoff && now_s < memory.create_backoff->until_s) {
      applied_.waiting = true;
      return;
    }
    std::set<int> taken;  // slots whose names are in use, by workers that are going too
    for (const Worker& worker : workers) {
      if (worker.pool == pool.name) taken.insert(worker.slot);
    }
    for (const std::vector<Worker>* former : {&context_.observation.orphans, &context_.observation.strays}) {
      for (const Worker& worker : *former) {  // of an earlier service of this name
        const bool same_name = worker.name_space == service.metadata.name_space && worker.service == service.metadata.name;
        if (same_name && worker.pool == pool.name) taken.insert(worker.slot);
      }
    }
    int slot = 0;
    while (count > 0) {
      while (taken.contains(slot)) ++slot;
      taken.insert(slot);
      const WorkerSpec spec = worker_spec(service, pool, slot, accelerator);
      const auto created = context_.runtime.create(spec);
      if (!created.ok()) {
        back_off(service, memory, spec.name, created.error(),
                 created.error().code == ErrorCode::kResourceExhausted ? "QuotaExceeded" : "CreateFailed");
        return;
      }
      if (memory.create_backoff && memory.create_backoff->code != kWorkerFailed) memory.create_backoff.reset();
      applied_.changed = true;
      applied_.happenings.push_back({&service, false, "WorkerCreated",
                                     fmt::format("created worker {} on {} x {}", spec.name, spec.gpus, spec.accelerator)});
      --count;
    }
  }

  void back_off(const api::ModelService& service, ServiceMemory& memory, const std::string& worker, const Error& error,
                const char* code) {
    applied_.errors.push_back(error.within("creating worker " + worker).message);
    applied_.waiting = true;
    const double last_s = memory.create_backoff ? memory.create_backoff->delay_s : 0;
    Backoff backoff;
    backoff.delay_s = std::clamp(last_s * 2, kBackoffMinS, kBackoffMaxS);
    backoff.until_s = context_.now.monotonic_s + backoff.delay_s;
    backoff.code = code;
    backoff.message = error.message;
    const bool news = !memory.create_backoff || memory.create_backoff->message != backoff.message;
    memory.create_backoff = backoff;
    if (news) applied_.happenings.push_back({&service, true, backoff.code, error.message});
  }

  // Workers of a configuration that is no longer wanted go as the new ones become ready; where the new ones find no room, one
  // of the old ones makes it.
  void replace(const api::ModelService& service, const std::vector<const Worker*>& active,
               const std::set<const Worker*>& current, int ready_current, int desired, bool make_room) {
    std::vector<const Worker*> outdated;
    int ready_outdated = 0;
    for (const Worker* worker : active) {
      if (current.contains(worker)) continue;
      outdated.push_back(worker);
      ready_outdated += worker->ready ? 1 : 0;
    }
    if (outdated.empty()) return;
    const int not_ready = static_cast<int>(outdated.size()) - ready_outdated;
    const int spare = std::clamp(ready_current + ready_outdated - desired, 0, ready_outdated);
    int count = not_ready + spare;
    if (count == 0 && make_room) count = 1;
    drain_some(service, outdated, count);
  }

  void forget_gone_drains() {
    std::set<std::string> there;
    for (const auto& [uid, workers] : context_.observation.workers) {
      for (const Worker& worker : workers) there.insert(worker.uid);
    }
    std::erase_if(state_.drains, [&](const auto& one) { return !there.contains(one.first); });
  }

  const ApplyContext& context_;
  ControllerState& state_;
  Applied applied_;
};

}  // namespace

Applied apply(const ApplyContext& context, ControllerState& state) { return Applier(context, state).run(); }

}  // namespace windlass::controller
