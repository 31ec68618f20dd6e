// Implements vopr.h: what a world must look like once its faults have stopped. What must hold all the time is in invariants.h.
#include "tests/simulation/vopr.h"

#include <algorithm>

#include <fmt/format.h>
#include <malloc.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/disruption_budget.h"
#include "controller/runtime/pod.h"
#include "tests/simulation/sim_world.h"

namespace windlass::simulation {
namespace {

using nlohmann::json;

constexpr double kSettleS = 260;  // longer than a half-open watch can stay unnoticed (180 s) plus a pod's last back-off
constexpr double kServedS = 60;   // then every request must be answered for this long
constexpr double kToRestS = 200;  // without load: until writes stop
constexpr double kRestS = 40;
constexpr int kMaxChanges = 4;         // of configurations, before the system must come to rest
constexpr double kDeletedS = 150;      // from deleting the services until nothing is left
constexpr double kCalmRatePerS = 0.3;  // one worker serves it easily

void violate(SimWorld& world, const std::string& check, const std::string& what) {
  world.journal().violate(world.now_s(), check, what);
}

// Given no faults: every request of a service that can have a worker is answered.
void check_served(SimWorld& world) {
  std::map<std::string, Tally> before = world.invariants().tallies();
  world.run(kServedS);
  for (const ServiceScenario& service : world.scenario().services) {
    if (service.broken_image) continue;
    const planner::ServicePlan* plan = world.plan(service.name);
    if (plan == nullptr) {
      violate(world, "serves-again", fmt::format("no controller plans for {}", service.name));
      continue;
    }
    // Too few GPUs for all services: those of lower priority may have none, and must say so.
    if (plan->desired_workers() == 0) {
      if (plan->able_to_scale.status != planner::Truth::kFalse && plan->feasible.status != planner::Truth::kFalse)
        violate(world, "reasons", fmt::format("{} has no workers and no condition says why", service.name));
      continue;
    }
    if (world.ready_workers(service.name) == 0) {
      violate(world, "serves-again",
              fmt::format("{} has load and a plan of {} workers, but none is ready: {}", service.name, plan->desired_workers(),
                          world.status(service.name).value("conditions", json::array()).dump()));
      continue;
    }
    const Tally now = world.tally(service.name);
    Tally& old = before[service.name];
    for (const auto& [code, count] : now.ended) {
      if (code != 200 && count > old.with(code)) {
        violate(world, "serves-again",
                fmt::format("{}: {} requests ended with {} although there are no faults", service.name, count - old.with(code),
                            code));
      }
    }
    if (now.with(200) == old.with(200) && now.arrived - old.arrived > 10)
      violate(world, "serves-again", fmt::format("{}: nothing was served in {:.0f} s", service.name, kServedS));
  }
}

// At rest the PodDisruptionBudget matches the live plan, whoever wrote it last. With several workers one may go; a single
// worker may not; without workers there is no budget.
void check_budget(SimWorld& world, const std::string& service, const planner::ServicePlan& plan) {
  const json* budget = world.api().peek(kube::resources::kPodDisruptionBudgets, kNamespace, controller::budget_name(service));
  const int alive = world.active_workers(service);
  const int wanted = alive == 0 ? 0 : std::max(1, std::min(plan.desired_workers(), world.ready_workers(service) - 1));
  const int found = budget == nullptr ? 0 : (*budget)["spec"].value("minAvailable", -1);
  if (found != wanted) {
    violate(world, "disruption-budget",
            fmt::format("{}: minAvailable is {} at rest, {} workers are planned and {} ready", service, found,
                        plan.desired_workers(), world.ready_workers(service)));
  }
}

bool every_image_pulls(SimWorld& world) {
  return std::none_of(world.scenario().services.begin(), world.scenario().services.end(),
                      [](const auto& one) { return one.broken_image; });
}

// The pools of each service. A service with several is in the middle of a change of configuration.
std::map<std::string, std::vector<std::string>> pools_of(SimWorld& world) {
  std::map<std::string, std::vector<std::string>> pools;
  for (const ServiceScenario& service : world.scenario().services) {
    const planner::ServicePlan* plan = world.plan(service.name);
    if (plan == nullptr) continue;
    for (const planner::Pool& pool : plan->pools) pools[service.name].push_back(pool.name);
  }
  return pools;
}

// Nothing is written for kRestS. A change of configuration that saves little pays off only after some quiet minutes. If one
// falls into this time, the check starts again after it.
void check_quiet(SimWorld& world) {
  const bool all_pull = every_image_pulls(world);
  for (int round = 0;; ++round) {
    const auto pools = pools_of(world);
    const bool changing = std::any_of(pools.begin(), pools.end(), [](const auto& one) { return one.second.size() > 1; });
    const long writes = world.invariants().writes_besides_leases();
    const long statuses = world.invariants().status_writes();
    world.run(kRestS);
    if (round < kMaxChanges && (changing || pools_of(world) != pools)) continue;
    // Moving figures are written every 30 s at most: twice per service, profile and class, plus a change or two.
    if (const long count = world.invariants().status_writes() - statuses; all_pull && count > 30)
      violate(world, "quiet-status", fmt::format("{} status writes within {:.0f} s without load", count, kRestS));
    if (all_pull && world.invariants().writes_besides_leases() > writes) {
      violate(world, "comes-to-rest",
              fmt::format("{} writes within {:.0f} s without load, the last one: {}",
                          world.invariants().writes_besides_leases() - writes, kRestS, world.invariants().last_write()));
    }
    return;
  }
}

// Given no load: nothing moves, and workers, plan and status agree.
void check_rest(SimWorld& world) {
  for (const ServiceScenario& service : world.scenario().services) world.set_load(service.name, 0);
  world.run(kToRestS);
  check_quiet(world);
  if (world.leader() == nullptr) {
    violate(world, "comes-to-rest", "no controller leads");
    return;
  }
  const bool all_pull = every_image_pulls(world);
  for (const ServiceScenario& service : world.scenario().services) {
    const planner::ServicePlan* plan = world.plan(service.name);
    if (plan == nullptr) {
      violate(world, "comes-to-rest", fmt::format("no controller plans for {}", service.name));
      continue;
    }
    const int active = world.active_workers(service.name);
    if (active != plan->desired_workers())
      violate(world, "comes-to-rest",
              fmt::format("{}: {} workers exist, {} are planned", service.name, active, plan->desired_workers()));
    const json status = world.status(service.name);
    const json workers = status.value("workers", json::object());
    if (workers.value("desired", -1) != plan->desired_workers())
      violate(world, "status-truth",
              fmt::format("{}: {} are planned, the status says {}", service.name, plan->desired_workers(), workers.dump()));
    check_budget(world, service.name, *plan);
    if (workers.value("ready", -1) != world.ready_workers(service.name))
      violate(
          world, "status-truth",
          fmt::format("{}: {} are ready, the status says {}", service.name, world.ready_workers(service.name), workers.dump()));
    const json* object = world.api().peek(kube::resources::kModelServices, kNamespace, service.name);
    const std::int64_t generation = (*object)["metadata"].value("generation", std::int64_t{0});
    if (status.value("observedGeneration", std::int64_t{0}) != generation)
      violate(world, "status-truth", fmt::format("{}: generation {} was not observed", service.name, generation));
    const json& scaling = (*object)["spec"]["scaling"];
    if (scaling.value("minWorkers", 1) == 0 && scaling.contains("idleToZeroAfter") && active > 0 && all_pull)
      violate(world, "scales-to-zero", fmt::format("{} keeps {} workers without load", service.name, active));
  }
  for (auto& gateway : world.gateways()) {
    if (gateway->open_requests() > 0)
      violate(
          world, "request-once",
          fmt::format("{} still holds {} requests: {}", gateway->name(), gateway->open_requests(), gateway->describe_open()));
  }
  for (const auto& [model, tally] : world.invariants().tallies()) {
    if (tally.open != 0) violate(world, "request-once", fmt::format("{} requests for {} never ended", tally.open, model));
  }
  world.api().visit(kube::resources::kPods, [&](const json& pod) {
    const auto worker = controller::worker_of(pod);
    if (worker && (worker->draining_since_s || worker->terminating))
      violate(world, "comes-to-rest", fmt::format("worker {} has not ended", worker->name));
  });
}

void check_deletion(SimWorld& world) {
  for (const ServiceScenario& service : world.scenario().services) {
    world.api().delete_object(kube::resources::kModelServices, kNamespace, service.name);
  }
  world.run(kDeletedS);
  world.api().visit(kube::resources::kPods, [&](const json& pod) {
    if (controller::worker_of(pod))
      violate(world, "deletion-leaves-nothing", "pod " + pod["metadata"].dump() + " is still there");
  });
}

}  // namespace

SeedResult run_seed(std::uint64_t seed, bool verbose, const std::string& notes_until,
                    const std::function<void(const planner::Plan&)>& on_plan) {
  // Keep freed memory: each seed needs about the same amount again.
  static const bool kept = ::mallopt(M_TRIM_THRESHOLD, 1 << 28) == 1 && ::mallopt(M_MMAP_THRESHOLD, 1 << 28) == 1 &&
                           ::mallopt(M_TOP_PAD, 1 << 24) == 1;
  static_cast<void>(kept);
  Scenario scenario = draw_scenario(seed);
  scenario.verbose = verbose;
  SimWorld world(std::move(scenario));
  world.journal().notes_until = notes_until;
  world.on_plan = on_plan;
  world.run(world.scenario().faults_until_s);
  world.stop_faults();
  for (const ServiceScenario& service : world.scenario().services) world.set_load(service.name, kCalmRatePerS);
  world.run(kSettleS);
  check_served(world);
  check_rest(world);
  check_deletion(world);

  SeedResult result;
  result.seed = seed;
  result.violations = world.journal().violations();
  result.notes.assign(world.journal().notes().begin(), world.journal().notes().end());
  result.simulated_s = world.now_s();
  result.writes = world.invariants().writes_besides_leases();
  for (const auto& [model, tally] : world.invariants().tallies()) {
    result.requests += tally.arrived;
    result.served += tally.with(200);
  }
  return result;
}

std::string describe(const SeedResult& result) {
  std::string out;
  for (const Violation& one : result.violations)
    out += fmt::format("seed {} at {:.2f} s: {}: {}\n", result.seed, one.at_s, one.check, one.what);
  if (!out.empty()) out += fmt::format("run it again with a trace: scripts/bench vopr --seed {}\n", result.seed);
  return out;
}

}  // namespace windlass::simulation
