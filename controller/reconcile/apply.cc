// See apply.h.
#include "controller/reconcile/apply.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "controller/reconcile/routes.h"
#include "controller/reconcile/spec.h"

namespace windlass::controller {
namespace {

constexpr double kOverdueGraceS = 5;  // for a worker that has outlived its drainTimeout
constexpr double kSettleS = 5;        // after taking the lead: time for the gateways to find us before anything is ended
constexpr double kStuckS = 60;        // a worker still there so long after its drainTimeout is told of
constexpr double kDrainWatchS = 60;   // a drain that another leader began is watched at least this long before it is overdue
constexpr double kNodeLostS = 300;    // a worker whose node does not answer for so long is given up, as Kubernetes does
constexpr double kMassLoss = 0.55;    // beyond this share of lost workers it is more likely the cluster that cannot see
constexpr int kMassLossWorkers = 3;
constexpr double kQuietGraceS = 30;  // for a worker that nobody uses any more; it ends at once, unless we were wrong

class Applier {
 public:
  Applier(const ApplyContext& context, ControllerState& state) : context_(context), state_(state) {}

  Applied run() {
    look_for_lost_nodes();
    const std::size_t count = context_.observation.services.size();
    const std::size_t first = count == 0 ? 0 : state_.first_service % count;
    state_.first_service = 0;
    for (std::size_t k = 0; k < count; ++k) {
      const std::size_t i = (first + k) % count;
      // The services that the last step had no time for come first, so that none waits for ever behind slow others.
      if (state_.first_service == 0 && out_of_time()) state_.first_service = i;
      const api::ModelService& service = *context_.observation.services[i];
      const std::vector<Worker>& workers = context_.observation.workers.at(service.metadata.uid);
      for (const Worker& worker : workers) finish(service, worker);
      const planner::Mode mode = context_.observation.snapshot.services[i].scaling.mode;
      if (mode != planner::Mode::kApply) continue;
      scale(service, context_.plan.services.at(i), workers);
      budgets_.push_back(budget(service, context_.plan.services.at(i), workers));
    }
    if (const auto set = context_.runtime.set_disruption_budgets(budgets_); !set.ok()) {
      applied_.errors.push_back(set.error().within("setting disruption budgets").message);
    }
    for (const Worker& orphan : context_.observation.orphans) let_go(orphan);
    for (const Worker& stray : context_.observation.strays) {
      if (stray.finished) note(context_.runtime.release(stray), "releasing " + chain_id(stray));
    }
    forget_the_gone();
    return std::move(applied_);
  }

 private:
  [[nodiscard]] double now_s() const { return context_.now.monotonic_s; }

  // Ten thousand writes take minutes: meanwhile nobody would tell the gateways of a worker that is ready.
  [[nodiscard]] bool out_of_time() const { return context_.time_is_up && context_.time_is_up(); }

  // Whether the cluster takes writes now. What cannot be done yet is done by a later step.
  bool may_write() {
    if (now_s() >= context_.runtime.not_before_s() && !out_of_time()) return true;
    applied_.waiting = true;
    return false;
  }

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
      const bool by_itself = worker.failed && !worker.terminating && worker.trouble != planner::WorkerTrouble::kNodeLost;
      const Backoffs::Place place{worker.pool, worker.slot, FailureKind::kEnded};
      Backoffs& backoffs = state_.services[service.metadata.uid].backoffs;
      const Backoff* before = backoffs.find(place);
      if (by_itself && (before == nullptr || now_s() >= before->until_s)) {
        const std::string what = fmt::format("worker {} failed: {}", worker.name, worker.message);
        if (before == nullptr || before->message != what) applied_.happenings.push_back({&service, true, "WorkerFailed", what});
        (void)backoffs.failed(place, now_s(), "WorkerFailed", what);
      }
      if (may_write()) note(context_.runtime.release(worker), "releasing " + chain_id(worker));
      return;
    }
    const bool draining = worker.draining_since_s.has_value();
    const double drained_s = draining ? drained_for_s(worker, drain_timeout_s) : 0;
    if (draining && drained_s >= drain_timeout_s + kOverdueGraceS + kStuckS && !state_.drains[worker.uid].told) {
      state_.drains[worker.uid].told = true;
      applied_.happenings.push_back(
          {&service, true, "DrainStuck",
           fmt::format("worker {} has been draining for {:.0f} s, its drainTimeout is {:.0f} s; it holds its GPUs{}{}",
                       worker.name, drained_s, drain_timeout_s, worker.message.empty() ? "" : ": ", worker.message)});
    }
    if (worker.terminating) {
      applied_.waiting = true;
      return;
    }
    if (!draining) return;
    applied_.waiting = true;
    if (!may_write()) return;
    if (drained_s >= drain_timeout_s) {
      note(context_.runtime.terminate(worker, kOverdueGraceS), "ending " + chain_id(worker));
    } else if (quiet(worker)) {
      note(context_.runtime.terminate(worker, std::max(kQuietGraceS, drain_timeout_s - drained_s)),
           "ending " + chain_id(worker));
    }
  }

  // How long the worker has drained, by our own clock since we first saw it. What it had drained before under another leader is
  // known by that one's wall clock alone; so it is believed only as far as a minute remains, and a clock that is hours off
  // neither ends a request at once nor holds the worker for longer than one drainTimeout.
  double drained_for_s(const Worker& worker, double drain_timeout_s) {
    const auto [drain, is_new] = state_.drains.try_emplace(worker.uid);
    if (is_new) {
      // The table in force was made from the observation that shows the worker draining, so it is the first that can say so.
      drain->second.version = context_.table;
      drain->second.seen_s = now_s();
      const double most_s = drain_timeout_s - std::min(kDrainWatchS, drain_timeout_s);
      drain->second.inherited_s = std::clamp(context_.now.wall_s - *worker.draining_since_s, 0.0, most_s);
    }
    return drain->second.inherited_s + now_s() - drain->second.seen_s;
  }

  // Whether every gateway knows that the worker drains, and since then neither they nor it have a request in flight.
  bool quiet(const Worker& worker) {
    if (now_s() - state_.leading_since_s < kSettleS) return false;
    const auto drain = state_.drains.find(worker.uid);
    const bool all_know = std::all_of(context_.gateways.begin(), context_.gateways.end(), [&](const GatewayPeer& gateway) {
      return gateway.acknowledged >= drain->second.version;
    });
    if (!all_know) return false;
    if (!drain->second.acknowledged_s) drain->second.acknowledged_s = now_s();
    // Only what was read after the acknowledgement counts: an older page may have missed the last request.
    const double since_s = *drain->second.acknowledged_s;
    const auto in_flight = context_.signals.in_flight(context_.gateways, chain_id(worker));
    if (!in_flight || in_flight->at_s <= since_s || in_flight->value > 0) return false;
    const WorkerLoad* load = context_.signals.worker_load(worker.uid);
    const auto inside = load == nullptr ? std::nullopt : load->requests();
    // A worker that never told its load, or one that does not run: the gateways' word is all there is.
    if (!inside || worker.failed) return true;
    return inside->at_s > since_s && inside->value <= 0;
  }

  // Nobody's worker any more. It is told to end and finishes what it has in flight by itself.
  void let_go(const Worker& worker) {
    if (!may_write()) return;
    if (worker.finished) {
      note(context_.runtime.release(worker), "releasing " + chain_id(worker));
    } else if (!worker.terminating) {
      note(context_.runtime.terminate(worker, std::nullopt), "ending " + chain_id(worker));
    } else {
      applied_.waiting = true;
    }
  }

  // A pool of the plan as workers are made for it.
  struct Wanted {
    const planner::PoolPlan* pool;
    const api::AcceleratorClass* accelerator;
    WorkerSpec spec;  // of slot 0
    std::string hash;

    [[nodiscard]] bool is(const Worker& worker) const {
      return worker.pool == pool->name && WorkerSpec::matches(worker.spec_hash, hash);
    }
  };

  std::vector<Wanted> wanted_of(const api::ModelService& service, const planner::ServicePlan& plan) const {
    std::vector<Wanted> all;
    for (const planner::PoolPlan& pool : plan.pools) {
      const auto accelerator = context_.observation.classes.find(pool.accelerator);
      if (accelerator == context_.observation.classes.end()) continue;  // removed since the plan was made
      WorkerSpec spec = worker_spec(service, pool, 0, *accelerator->second);
      std::string hash = spec.hash();
      all.push_back({&pool, accelerator->second, std::move(spec), std::move(hash)});
    }
    return all;
  }

  void scale(const api::ModelService& service, const planner::ServicePlan& plan, const std::vector<Worker>& workers) {
    asked_for_.clear();
    ServiceMemory& memory = state_.services[service.metadata.uid];
    memory.backoffs.expire(now_s());
    std::vector<const Worker*> active;  // those that are to stay, and whose node answers
    std::vector<const Worker*> lost;
    for (const Worker& worker : workers) {
      if (worker.finished || worker.terminating || worker.draining_since_s) continue;
      (worker.trouble == planner::WorkerTrouble::kNodeLost ? lost : active).push_back(&worker);
    }
    const std::vector<Wanted> wanted_pools = wanted_of(service, plan);
    for (const Wanted& wanted : wanted_pools) {
      if (!accepted(service, memory, wanted, active)) {
        sum_up(memory, false);
        return;  // what cannot be made changes nothing that runs
      }
    }
    std::set<const Worker*> current;
    int ready_current = 0;
    // Where a class cannot be read now nobody knows what its workers should be: they stay as they are.
    for (const planner::PoolPlan& pool : plan.pools) {
      if (context_.observation.classes.contains(pool.accelerator)) continue;
      for (const Worker* worker : active) {
        if (worker->pool != pool.name) continue;
        current.insert(worker);
        ready_current += worker->ready ? 1 : 0;
      }
    }
    bool wants_room = false;  // a new worker cannot be placed before an outdated one goes
    for (const Wanted& wanted : wanted_pools) {
      const planner::PoolPlan& pool = *wanted.pool;
      const api::AcceleratorClass& accelerator = *wanted.accelerator;
      std::vector<const Worker*> mine;
      for (const Worker* worker : active) {
        // One whose node is being emptied stands to be replaced elsewhere, as an outdated one does.
        if (wanted.is(*worker) && !worker->node_leaving) mine.push_back(worker);
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
        // A surge comes on top of those that the plan is owed; beside a lost worker they come one by one.
        const int more = lost.empty() ? std::max(0, pool.workers - live) + 1 : 1;
        const bool room = (replacing || !lost.empty()) && room_for(more, service, pool, accelerator, active, lost);
        const int surge = replacing && room ? 1 : 0;
        int may = std::clamp(pool.workers + surge - live, 0, -surplus);
        if (may > 0 && !lost.empty()) {
          // A successor elsewhere may stand beside the lost one only inside every budget.
          if (!room) give_up(service, *lost.front());
          may = room ? 1 : 0;
        }
        // What this pool is planned to have fits beside what others are planned to keep, but those that are to go may be there
        // yet: they make room first.
        int fits = 0;
        while (fits < may && inside_budget(fits + 1, service, pool, active, lost)) ++fits;
        wants_room = wants_room || (may > 0 && fits == 0);
        may = fits;
        if (may > 0) create_some(service, memory, pool, accelerator, workers, may);
        // The next one makes room only once those that came before it serve.
        const bool all_serve = std::all_of(mine.begin(), mine.end(), [](const Worker* worker) { return worker->ready; });
        wants_room = wants_room || (replacing && surge == 0 && may == 0 && all_serve);
      }
    }
    for (const Worker* worker : lost) {
      if (now_s() - state_.lost_since_s[worker->uid] >= kNodeLostS) give_up(service, *worker);
    }
    for (const Worker* worker : active) replace_if_failing(service, memory, *worker);
    const bool making_room = std::any_of(workers.begin(), workers.end(), [](const Worker& worker) {
      return !worker.finished && (worker.terminating || worker.draining_since_s);
    });
    sum_up(memory, ready_current == plan.desired_workers());
    replace(service, active, current, ready_current, plan.desired_workers(), wants_room && !making_room);
  }

  // What people are told of the service's back-offs.
  void sum_up(ServiceMemory& memory, bool all_serve) const {
    if (all_serve) memory.backoffs.forget_refusals(now_s());
    const Backoff* told = all_serve ? memory.backoffs.refusal(now_s()) : memory.backoffs.worst();
    memory.create_backoff = told == nullptr ? std::nullopt : std::optional(*told);
  }

  // Whether the cluster would take workers of this pool as the spec has them now. Asked once for each new spec, before anything
  // of what runs is touched for it.
  bool accepted(const api::ModelService& service, ServiceMemory& memory, const Wanted& wanted,
                const std::vector<const Worker*>& active) {
    const planner::PoolPlan& pool = *wanted.pool;
    if (pool.workers == 0) return true;
    std::string& known = memory.accepted_specs[pool.name];
    if (known == wanted.hash) return true;
    const bool runs = std::any_of(active.begin(), active.end(), [&](const Worker* worker) { return wanted.is(*worker); });
    if (!runs) {
      if (memory.backoffs.holds(pool.name, now_s()) || !may_write()) {
        applied_.waiting = true;
        return false;
      }
      const auto checked = context_.runtime.check(wanted.spec);
      // A quota is no word on what the worker is; creating it will meet it again, where that matters.
      if (!checked.ok() && checked.error().code != ErrorCode::kResourceExhausted) {
        const bool refused =
            checked.error().code == ErrorCode::kInvalidArgument || checked.error().code == ErrorCode::kPermissionDenied;
        const bool of_template = refused && !wanted.spec.pod_template_json.empty();
        back_off(service, memory, {pool.name, kWholePool, refused ? FailureKind::kTemplate : FailureKind::kCreate},
                 wanted.spec.name, checked.error(), of_template ? "PodTemplateInvalid" : "CreateFailed");
        return false;
      }
      memory.backoffs.accepted(pool.name, kWholePool);
    }
    known = wanted.hash;
    return true;
  }

  // Its node does not answer: it is told to end, and goes when the node comes back or is removed. Unless most nodes seem lost,
  // or its pod says that it is ready: Kubernetes takes that back from the pods of a lost node, so we know of one of them late.
  void give_up(const api::ModelService& service, const Worker& worker) {
    if (mass_loss_ || worker.says_ready || !may_write()) return;
    const auto ended = context_.runtime.terminate(worker, std::nullopt);
    note(ended, "giving up " + chain_id(worker));
    if (ended.ok()) {
      applied_.happenings.push_back(
          {&service, true, "WorkerLost", fmt::format("gave up worker {}: {}", worker.name, worker.message)});
    }
  }

  // A worker that fails where it is (crash loop, out of memory, image) is made anew after a back-off of its own, for another
  // node may do better. The kubelet goes on trying meanwhile.
  void replace_if_failing(const api::ModelService& service, ServiceMemory& memory, const Worker& worker) {
    if (!worker.failed) {
      state_.failing.erase(worker.uid);
      return;
    }
    const Backoffs::Place place{worker.pool, worker.slot, FailureKind::kFailing};
    const std::string code = planner::to_string(worker.trouble);
    const Backoff* running = memory.backoffs.find(place);
    if (state_.failing.insert(worker.uid).second || running == nullptr) {
      (void)memory.backoffs.failed(place, now_s(), code, worker.message);
      applied_.happenings.push_back({&service, true, code, fmt::format("worker {}: {}", worker.name, worker.message)});
      return;
    }
    if (now_s() < running->until_s || !may_write()) return;
    const auto ended = context_.runtime.terminate(worker, kQuietGraceS);
    note(ended, "replacing " + chain_id(worker));
    if (ended.ok()) {
      state_.failing.erase(worker.uid);
      applied_.happenings.push_back({&service, false, "WorkerReplaced",
                                     fmt::format("replacing worker {}, which failed for {:.0f} s: {}", worker.name,
                                                 now_s() - running->failed_s, worker.message)});
    }
  }

  // As many ready workers as the plan wants may not be evicted at once, but one always may where there are several: a node must
  // be able to be emptied. The only one stays until its successor, which is started as soon as its node is cordoned, is ready.
  // Workers that drain are ready for Kubernetes, so they come on top, and end by themselves.
  [[nodiscard]] DisruptionBudget budget(const api::ModelService& service, const planner::ServicePlan& plan,
                                        const std::vector<Worker>& workers) const {
    int ready = 0, leaving = 0, alive = 0;
    for (const Worker& worker : workers) {
      if (worker.finished || worker.terminating) continue;
      ++alive;
      if (worker.ready) ++(worker.draining_since_s ? leaving : ready);
    }
    const int keep = std::min(plan.desired_workers(), std::max(1, ready - 1));
    return {service.metadata.name_space, service.metadata.name, service.metadata.uid,
            alive == 0 ? 0 : std::max(1, keep + leaving)};
  }

  void look_for_lost_nodes() {
    std::set<std::string> lost;
    int placed = 0;
    for (const auto& [uid, workers] : context_.observation.workers) {
      for (const Worker& worker : workers) {
        if (worker.node.empty() || worker.finished) continue;
        ++placed;
        if (worker.trouble != planner::WorkerTrouble::kNodeLost) continue;
        lost.insert(worker.uid);
        state_.lost_since_s.try_emplace(worker.uid, now_s());
      }
    }
    std::erase_if(state_.lost_since_s, [&](const auto& one) { return !lost.contains(one.first); });
    const int count = static_cast<int>(lost.size());
    mass_loss_ = count >= kMassLossWorkers && count > kMassLoss * placed;
  }

  // Whether so many new workers beside those that are there would stay inside the service's money and its shares of classes.
  bool inside_budget(int more, const api::ModelService& service, const planner::PoolPlan& pool,
                     const std::vector<const Worker*>& active, const std::vector<const Worker*>& lost) const {
    const auto price = [&](const std::string& name) {
      const auto found = context_.observation.classes.find(name);
      return found == context_.observation.classes.end() ? 0.0 : found->second->spec.price_per_hour.value_or(0);
    };
    double cost = more * pool.gpus_per_worker * price(pool.accelerator);
    std::int64_t of_service = std::int64_t{more} * pool.gpus_per_worker;
    for (const std::vector<const Worker*>* those : {&active, &lost}) {
      for (const Worker* worker : *those) {
        cost += worker->gpus * price(worker->accelerator);
        if (worker->accelerator == pool.accelerator) of_service += worker->gpus;
      }
    }
    for (const AskedFor& worker : asked_for_) {
      cost += worker.gpus * price(worker.accelerator);
      if (worker.accelerator == pool.accelerator) of_service += worker.gpus;
    }
    constexpr double kRounding = 1e-9;
    const auto& most = service.spec.scaling.max_cost_per_hour;
    if (most && cost > *most + kRounding) return false;
    return std::none_of(service.spec.accelerators.begin(), service.spec.accelerators.end(), [&](const auto& choice) {
      return choice.accelerator_class == pool.accelerator && choice.max_gpus && of_service > *choice.max_gpus;
    });
  }

  // Whether so many new workers beside those that are there would stay inside the service's limits and what the class has free.
  bool room_for(int more, const api::ModelService& service, const planner::PoolPlan& pool,
                const api::AcceleratorClass& accelerator, const std::vector<const Worker*>& active,
                const std::vector<const Worker*>& lost) const {
    const auto& most = service.spec.scaling.max_workers;
    if (most && static_cast<std::int64_t>(active.size() + lost.size() + asked_for_.size()) + more > *most) return false;
    if (!inside_budget(more, service, pool, active, lost)) return false;
    const bool elastic = accelerator.spec.capacity.mode == api::CapacityMode::kElastic;
    std::int64_t held = std::int64_t{more} * pool.gpus_per_worker;
    for (const AskedFor& worker : asked_for_) held += worker.accelerator == pool.accelerator ? worker.gpus : 0;
    const auto add = [&](const Worker& worker) {
      // What the nodes offer does not count nodes that are lost or being emptied, nor then what is held on them.
      const bool counted = elastic || (worker.trouble != planner::WorkerTrouble::kNodeLost && !worker.node_leaving);
      if (worker.accelerator == pool.accelerator && !worker.finished && counted) held += worker.gpus;
    };
    for (const auto& [uid, workers] : context_.observation.workers) std::for_each(workers.begin(), workers.end(), add);
    std::for_each(context_.observation.orphans.begin(), context_.observation.orphans.end(), add);
    std::for_each(context_.observation.strays.begin(), context_.observation.strays.end(), add);
    const auto capacity = context_.observation.capacity.find(pool.accelerator);
    if (capacity == context_.observation.capacity.end()) return false;
    const std::int64_t limit = elastic ? accelerator.spec.capacity.max_gpus.value_or(0) : capacity->second.allocatable;
    return held + capacity->second.used_by_others <= limit;
  }

  // Those that give least go first: in trouble, not ready, then fewest requests, then the highest slot.
  void drain_some(const api::ModelService& service, std::vector<const Worker*> candidates, int count) {
    const auto running = [&](const Worker* worker) {
      const WorkerLoad* load = context_.signals.worker_load(worker->uid);
      const auto inside = load == nullptr ? std::nullopt : load->requests();
      return inside ? inside->value : 0.0;
    };
    std::sort(candidates.begin(), candidates.end(), [&](const Worker* a, const Worker* b) {
      const bool trouble_a = a->trouble != planner::WorkerTrouble::kNone,
                 trouble_b = b->trouble != planner::WorkerTrouble::kNone;
      if (trouble_a != trouble_b) return trouble_a;
      if (a->ready != b->ready) return !a->ready;
      const double load_a = running(a), load_b = running(b);
      if (load_a != load_b) return load_a < load_b;
      return a->slot > b->slot;
    });
    for (int i = 0; i < count && i < static_cast<int>(candidates.size()); ++i)
      drain(service, *candidates[static_cast<std::size_t>(i)]);
  }

  void drain(const api::ModelService& service, const Worker& worker) {
    if (!may_write()) return;
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
    if (memory.backoffs.holds(pool.name, now_s())) {
      applied_.waiting = true;
      return;
    }
    std::set<int> held = memory.backoffs.held_slots(pool.name, now_s());
    std::set<int> taken;  // slots whose names are in use, by workers that are going too
    for (const Worker& worker : workers) {
      if (worker.pool != pool.name) continue;
      // One that failed is followed in its own slot, where its failures are counted; the others need not wait for it.
      const bool failed_here = (worker.finished || worker.terminating) && worker.trouble != planner::WorkerTrouble::kNodeLost &&
                               (memory.backoffs.find({pool.name, worker.slot, FailureKind::kEnded}) != nullptr ||
                                memory.backoffs.find({pool.name, worker.slot, FailureKind::kFailing}) != nullptr);
      (failed_here ? held : taken).insert(worker.slot);
    }
    for (const std::vector<Worker>* former : {&context_.observation.orphans, &context_.observation.strays}) {
      for (const Worker& worker : *former) {  // of an earlier service of this name
        const bool same_name = worker.name_space == service.metadata.name_space && worker.service == service.metadata.name;
        if (same_name && worker.pool == pool.name) taken.insert(worker.slot);
      }
    }
    for (int slot = 0; count > 0; ++slot) {
      if (taken.contains(slot)) continue;
      const WorkerSpec spec = worker_spec(service, pool, slot, accelerator);
      if (context_.runtime.name_taken(spec.name_space, spec.name)) continue;  // somebody else's
      if (!may_write()) return;
      --count;
      if (held.contains(slot)) {  // its turn, but not yet; the others need not wait for it
        applied_.waiting = true;
        continue;
      }
      asked_for_.push_back({spec.accelerator, spec.gpus});
      const auto created = context_.runtime.create(spec);
      if (!created.ok()) {
        const ErrorCode code = created.error().code;
        // The name is there although we do not see it yet: a matter of this slot alone. It counts, so that a cache which lags
        // behind makes no worker too many.
        const bool of_slot = code == ErrorCode::kAlreadyExists;
        const FailureKind kind = code == ErrorCode::kResourceExhausted ? FailureKind::kQuota : FailureKind::kCreate;
        back_off(service, memory, {pool.name, of_slot ? slot : kWholePool, kind}, spec.name, created.error(),
                 kind == FailureKind::kQuota ? "QuotaExceeded" : "CreateFailed");
        if (of_slot && !memory.backoffs.holds(pool.name, now_s())) continue;
        return;
      }
      memory.backoffs.accepted(pool.name, slot);
      applied_.changed = true;
      applied_.happenings.push_back({&service, false, "WorkerCreated",
                                     fmt::format("created worker {} on {} x {}", spec.name, spec.gpus, spec.accelerator)});
    }
  }

  void back_off(const api::ModelService& service, ServiceMemory& memory, const Backoffs::Place& place,
                const std::string& worker, const Error& error, const char* code) {
    applied_.errors.push_back(error.within("creating worker " + worker).message);
    applied_.waiting = true;
    const Backoff* before = memory.backoffs.find(place);
    const bool news = before == nullptr || before->message != error.message;
    (void)memory.backoffs.failed(place, now_s(), code, error.message, context_.runtime.not_before_s() - now_s());
    if (news) applied_.happenings.push_back({&service, true, code, error.message});
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
    if (const int count = not_ready + spare; count > 0) {
      drain_some(service, outdated, count);
    } else if (make_room) {
      // On a node that is being emptied nobody finds room.
      std::erase_if(outdated, [](const Worker* worker) { return worker->node_leaving; });
      drain_some(service, outdated, 1);
    }
  }

  void forget_the_gone() {
    std::set<std::string> there;
    for (const auto& [uid, workers] : context_.observation.workers) {
      for (const Worker& worker : workers) there.insert(worker.uid);
    }
    std::erase_if(state_.drains, [&](const auto& one) { return !there.contains(one.first); });
    std::erase_if(state_.failing, [&](const std::string& uid) { return !there.contains(uid); });
  }

  const ApplyContext& context_;
  ControllerState& state_;
  Applied applied_;
  std::vector<DisruptionBudget> budgets_;
  struct AskedFor {
    std::string accelerator;
    int gpus = 0;
  };
  std::vector<AskedFor> asked_for_;  // workers of the service at hand, in this step: they stand in no observation yet
  bool mass_loss_ = false;           // most workers' nodes seem lost at once
};

}  // namespace

Applied apply(const ApplyContext& context, ControllerState& state) { return Applier(context, state).run(); }

}  // namespace windlass::controller
