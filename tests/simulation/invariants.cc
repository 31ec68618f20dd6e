// Implements invariants.h.
#include "tests/simulation/invariants.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "controller/kube/json_path.h"
#include "controller/runtime/pod.h"
#include "controller/store/kubernetes_store.h"
#include "planner/base/duration.h"

namespace windlass::simulation {
namespace {

using nlohmann::json;

constexpr double kFreshS = 33;       // the policy's 30 s plus one or two scrapes
constexpr double kMaxAgeS = 86'400;  // of a signal; longer than any simulation
constexpr double kArrivalsKeptS = 130;
constexpr int kMaxRefusedAMinute = 14;  // creates per service, with a back-off that starts at 1 s and doubles

double seconds(const json& spec, const char* key, double fallback) {
  const auto found = spec.find(key);
  if (found == spec.end() || !found->is_string()) return fallback;
  const auto parsed = parse_duration_s(found->get<std::string>());
  return parsed.ok() ? *parsed : fallback;
}

bool draining(const json& pod) {
  const auto annotations = pod.at("metadata").find("annotations");
  return annotations != pod.at("metadata").end() && annotations->contains(controller::kDrainingSince);
}

bool deleting(const json& pod) { return pod.at("metadata").contains("deletionTimestamp"); }

bool ended(const json& pod) {
  const std::string phase = kube::text_at(pod, {"status", "phase"});
  return phase == "Succeeded" || phase == "Failed";
}

const SimController* find_writer(const std::string& client, const std::vector<SimController*>& controllers) {
  for (const SimController* one : controllers) {
    if (one->name() == client) return one;
  }
  return nullptr;
}

bool is_fresh(const planner::ServicePlan& one) { return one.metrics_fresh.status == planner::Truth::kTrue; }

}  // namespace

Invariants::Invariants(const Timeline& timeline, fakes::FakeApiServer& api, Journal& journal)
    : timeline_(timeline), api_(api), journal_(journal) {}

void Invariants::spec_changed(const json& service) {
  const std::string uid = service.at("metadata").at("uid");
  ServiceTrack& track = services_[uid];
  track.name = service.at("metadata").at("name");
  const json& spec = service.at("spec");
  const json scaling = spec.value("scaling", json::object());
  Limits limits;
  limits.generation = service.at("metadata").value("generation", std::int64_t{1});
  limits.mode = scaling.value("mode", "Apply");
  if (scaling.contains("maxWorkers")) limits.max_workers = scaling["maxWorkers"].get<int>();
  if (scaling.contains("maxCostPerHour")) {
    const json& cost = scaling["maxCostPerHour"];
    limits.max_cost = cost.is_string() ? std::stod(cost.get<std::string>()) : cost.get<double>();
  }
  for (const json& choice : spec.value("accelerators", json::array())) {
    if (choice.contains("maxGPUs")) limits.max_gpus[choice["class"]] = choice["maxGPUs"].get<int>();
  }
  limits.drain_timeout_s = seconds(scaling, "drainTimeout", 1800);
  if (track.limits.empty() || track.limits.back().generation != limits.generation) track.limits.push_back(limits);
}

void Invariants::service_deleted(const std::string& uid) { services_[uid].deleted_s = timeline_.now_s(); }

void Invariants::person_deleted_pod(const std::string& uid, double grace_s) {
  pods_ended_by_people_[uid] = timeline_.now_s() + grace_s;
}

std::vector<const Invariants::Limits*> Invariants::possible(const std::string& uid, const SimController& writer) const {
  std::vector<const Limits*> out;
  const auto track = services_.find(uid);
  if (track == services_.end()) return out;
  std::int64_t known = 0;
  for (const auto& service : writer.store().model_services()) {
    if (service.metadata.uid == uid) known = service.metadata.generation;
  }
  for (const Limits& limits : track->second.limits) {
    if (limits.generation >= known) out.push_back(&limits);
  }
  // A test's own edit is not reported here: the last limits hold.
  if (out.empty() && !track->second.limits.empty()) out.push_back(&track->second.limits.back());
  return out;
}

void Invariants::wrote(const fakes::WriteAttempt& write, const std::vector<SimController*>& controllers) {
  const SimController* writer = find_writer(write.client, controllers);
  if (writer != nullptr && write.resource.plural == "leases" &&
      kube::text_at(write.object, {"spec", "holderIdentity"}) != kube::text_at(write.before, {"spec", "holderIdentity"})) {
    journal_.note(timeline_.now_s(), "{} takes the lease", writer->identity());
    refused_.clear();  // a new leader knows only its own refusals
  }
  if (writer == nullptr || write.resource.plural == "leases") return;
  if (write.resource.plural != "events") {
    const bool status = write.subresource == "status";
    if (status) ++status_writes_;
    if (!status) ++writes_;
    last_write_ = fmt::format("{} {} {}/{} {}", writer->identity(), write.verb, write.resource.plural,
                              kube::text_at(write.object, {"metadata", "name"}), write.subresource);
    journal_.note(timeline_.now_s(), "{}", last_write_);
  }
  check_fence(write, *writer);
  if (write.resource.plural == "pods") {
    if (write.verb == "create") {
      check_create(write, *writer);
      made_[kube::text_at(write.object, {"metadata", "name"})] = {writer->identity(), timeline_.now_s()};
    } else {
      check_end(write, *writer);
    }
  }
  if (write.resource.plural == "modelservices" && write.subresource == "status") check_status(write);
  if (write.resource.plural == "poddisruptionbudgets" && write.verb != "delete") {
    const json spec = write.object.value("spec", json::object());
    const json least = spec.value("minAvailable", json());
    if (!least.is_number_integer() || least.get<int>() < 0)
      violate("disruption-budget", "minAvailable must be an integer (got " + least.dump() + ")");
  }
}

void Invariants::check_fence(const fakes::WriteAttempt& write, const SimController& writer) {
  const json* lease = api_.peek(kube::resources::kLeases, SimController::kLeaseNamespace, "windlass-controller");
  const std::string holder = lease == nullptr ? "" : kube::text_at(*lease, {"spec", "holderIdentity"});
  if (holder == writer.identity()) return;
  // A write that was in flight when the lease changed hands. Kubernetes cannot prevent it: no server checks who leads, and a
  // process that pauses between its last look at the clock and the wire cannot check either. A client can only bind the write
  // to the version of the object that it was based on. Such a write succeeds only if nobody, the successor included, has
  // changed the object since. It then has the same effect as if it had arrived in time, and the new leader sees it before it
  // can write the object itself. Any other late write would undo a successor's change and is a violation. A create is named by
  // its slot; an event is only for people.
  const bool under_way = writer.sent_while_leading();
  if (under_way && (write.verb == "create" || write.resource.plural == "events" || write.versioned)) return;
  violate(under_way ? "deposed-write" : "lease-fence",
          fmt::format("{} wrote {} {} {} while the lease was {}'s", writer.identity(), write.verb, write.resource.plural,
                      kube::text_at(write.object, {"metadata", "name"}), holder));
}

void Invariants::check_create(const fakes::WriteAttempt& write, const SimController& writer) {
  const auto created = controller::worker_of(write.object);
  if (!created) {
    violate("pod-owned", "no ModelService owns this new pod: " + kube::text_at(write.object, {"metadata", "name"}));
    return;
  }
  const auto all = possible(created->service_uid, writer);
  if (all.empty()) {
    violate("pod-owned",
            fmt::format("worker {} was created for a service that never existed: {}", created->name, created->service_uid));
    return;
  }
  const bool may_apply = std::any_of(all.begin(), all.end(), [](const Limits* one) { return one->mode == "Apply"; });
  if (!may_apply) violate("mode", fmt::format("worker {} was created in mode {}", created->name, all.back()->mode));

  std::map<std::string, double> prices;
  api_.visit(kube::resources::kAcceleratorClasses, [&](const json& one) {
    prices[one["metadata"]["name"]] = std::stod(one["spec"].value("pricePerHour", std::string("0")));
  });
  int workers = 0;
  double cost = 0;
  std::map<std::string, int> gpus_of_service;
  api_.visit(kube::resources::kPods, [&](const json& pod) {
    const auto worker = controller::worker_of(pod);
    if (!worker || ended(pod)) return;
    if (worker->service_uid != created->service_uid || draining(pod) || deleting(pod)) return;
    // Another controller created it after this create was sent: this one could not know.
    const auto made = made_.find(worker->name);
    if (made != made_.end() && made->second.first != writer.identity() && made->second.second > writer.sent_s()) return;
    // Only workers of this configuration count: those of a former one stay until it is ready (see docs/simulation-tests.md).
    workers += worker->pool == created->pool && worker->role == created->role ? 1 : 0;
    cost += worker->gpus * prices[worker->accelerator];
    gpus_of_service[worker->accelerator] += worker->gpus;
  });
  const auto any = [&](auto inside) {
    return std::any_of(all.begin(), all.end(), [&](const Limits* one) { return inside(*one); });
  };
  if (!any([&](const Limits& one) { return !one.max_workers || workers <= *one.max_workers; })) {
    violate("max-workers",
            fmt::format("{} is worker {} of its service; maxWorkers is {}", created->name, workers, *all.back()->max_workers));
  }
  if (!any([&](const Limits& one) { return !one.max_cost || cost <= *one.max_cost + 1e-6; })) {
    violate("max-cost", fmt::format("with {} the service costs {:.2f} an hour, maxCostPerHour is {:.2f}", created->name, cost,
                                    *all.back()->max_cost));
  }
  for (const auto& [name, gpus] : gpus_of_service) {
    if (name != created->accelerator) continue;
    if (!any([&](const Limits& one) { return !one.max_gpus.contains(name) || gpus <= one.max_gpus.at(name); })) {
      violate("max-gpus", fmt::format("with {} the service holds {} GPUs of {}, maxGPUs is {}", created->name, gpus, name,
                                      all.back()->max_gpus.at(name)));
    }
  }
}

void Invariants::check_end(const fakes::WriteAttempt& write, const SimController& writer) {
  const json& before = write.before.is_null() ? write.object : write.before;
  const auto worker = controller::worker_of(before);
  if (!worker) {
    violate("pod-owned", fmt::format("{} {} a pod that is no worker", writer.identity(), write.verb));
    return;
  }
  const bool begins_drain = write.verb != "delete" && !draining(before) && draining(write.object);
  if (begins_drain) marked_.emplace(worker->uid, api_.wall_now());
  const auto track = services_.find(worker->service_uid);
  const bool owner_gone = track == services_.end() || track->second.deleted_s;
  if (write.verb == "delete" && worker->ready && !draining(write.object) && !owner_gone) {
    violate("drain-first", fmt::format("the ready worker {} was deleted without being drained", worker->name));
  }
  if (owner_gone || (!begins_drain && write.verb != "delete")) return;
  const bool healthy = !worker->failed && !worker->finished && !worker->terminating;
  if (!healthy || (write.verb == "delete" && draining(write.object))) return;
  const auto all = possible(worker->service_uid, writer);
  if (std::none_of(all.begin(), all.end(), [](const Limits* one) { return one->mode == "Apply"; })) {
    violate("mode", fmt::format("worker {} was ended in mode {}", worker->name, all.empty() ? "?" : all.back()->mode));
  }
}

void Invariants::check_status(const fakes::WriteAttempt& write) {
  const json status = write.object.value("status", json::object());
  if (journal_.verbose()) {
    const json old = write.before.is_object() ? write.before.value("status", json::object()) : json::object();
    std::string differs;
    for (const json& step : json::diff(old, status)) differs += step.value("path", "") + " ";
    journal_.note(timeline_.now_s(), "    in {}", differs.empty() ? "nothing: " + status.dump() : differs.substr(0, 300));
    for (const json& condition : status.value("conditions", json::array())) {
      if (condition.value("status", "") == "True") continue;
      journal_.note(timeline_.now_s(), "    {} is {}: {}: {}", condition.value("type", ""), condition.value("status", ""),
                    condition.value("reason", ""), condition.value("message", ""));
    }
  }
  const std::string uid = kube::text_at(write.object, {"metadata", "uid"});
  ServiceTrack& track = services_[uid];
  const auto observed = status.value("observedGeneration", std::int64_t{0});
  const auto generation = write.object["metadata"].value("generation", std::int64_t{0});
  if (observed > generation)
    violate("status-truth", fmt::format("observedGeneration {} of generation {}", observed, generation));
  if (observed < track.observed_generation) {
    violate("status-truth", fmt::format("observedGeneration fell from {} to {}", track.observed_generation, observed));
  }
  track.observed_generation = std::max(track.observed_generation, observed);
  const json workers = status.value("workers", json::object());
  const int current = workers.value("current", 0);
  const int parts = workers.value("ready", 0) + workers.value("starting", 0) + workers.value("draining", 0);
  if (parts > current) violate("status-truth", fmt::format("workers: {}", workers.dump()));
  for (const json& condition : status.value("conditions", json::array())) {
    if (condition.value("status", "") != "True" && condition.value("message", "").empty()) {
      violate("reasons",
              fmt::format("condition {} is {} and says nothing", condition.value("type", ""), condition.value("status", "")));
    }
  }
}

void Invariants::refused_create(const controller::Worker& worker) {
  auto& times = refused_[worker.service_uid];  // a new service with the same name is another one
  const double now_s = timeline_.now_s();
  std::erase_if(times, [&](double at_s) { return at_s < now_s - 60; });
  times.push_back(now_s);
  if (times.size() > kMaxRefusedAMinute) {
    violate("quota-backoff", fmt::format("{} creates for {} were refused within one minute", times.size(), worker.service));
  }
}

void Invariants::stepped(const SimController& controller, const std::vector<SimController*>& controllers) {
  const auto leaders =
      std::count_if(controllers.begin(), controllers.end(), [](const SimController* one) { return one->leading(); });
  if (leaders > 1) violate("one-leader", "two controllers lead at the same time");
  if (controller.leading()) {
    check_plan(controller);
  } else {  // a paused step may end much later: its plan does not belong to the next tenure
    plans_seen_[controller.identity()] = controller.core().plans_made();
  }
}

void Invariants::check_plan(const SimController& controller) {
  const auto& plan = controller.core().last_plan();
  const auto& snapshot = controller.core().last_snapshot();
  if (!plan || !snapshot || plans_seen_[controller.identity()] == controller.core().plans_made()) return;
  plans_seen_[controller.identity()] = controller.core().plans_made();
  const std::map<std::string, int> room = check_gpu_budgets(*plan, *snapshot);
  for (std::size_t i = 0; i < plan->services.size(); ++i) {
    const planner::ServicePlan& one = plan->services[i];
    const planner::Service& seen = snapshot->services[i];
    check_clock(one, seen.demand, snapshot->now_s);
    const bool denied = std::any_of(plan->denied.begin(), plan->denied.end(), [&](const auto& no) { return no.id == one.id; });
    check_change(controller, one, seen, denied, room);
    if (is_fresh(one)) check_pages(controller, one);
    check_demand(one, seen);
  }
}

// Checks that no plan asks for more GPUs of a class than the class has or its present workers hold. Returns the GPUs of each
// class that the plan leaves free.
std::map<std::string, int> Invariants::check_gpu_budgets(const planner::Plan& plan, const planner::Snapshot& snapshot) {
  std::map<std::string, int> room;
  for (const planner::AcceleratorState& accelerator : snapshot.accelerators) {
    const bool elastic = accelerator.mode == planner::CapacityMode::kElastic;
    const int has = elastic ? accelerator.max_gpus.value_or(0) : accelerator.allocatable_gpus;
    int planned = 0, held = 0;
    for (const planner::ServicePlan& one : plan.services) {
      for (const planner::Pool& pool : one.pools)
        planned += pool.spec.accelerator == accelerator.spec.name ? pool.workers * pool.spec.gpus() : 0;
    }
    for (const planner::Service& service : snapshot.services) {
      for (const planner::Worker& worker : service.workers) {
        const bool stays = worker.accelerator == accelerator.spec.name && worker.state != planner::WorkerState::kDraining;
        held += stays ? worker.gpus : 0;
      }
    }
    room[accelerator.spec.name] = has - planned;
    if (planned > std::max(has, held)) {
      violate("gpu-budget", fmt::format("{} GPUs of {} are planned; the class has {} and workers hold {}", planned,
                                        accelerator.spec.name, has, held));
    }
  }
  return room;
}

void Invariants::check_clock(const planner::ServicePlan& one, planner::Demand demand, double now_s) {
  // A signal's time is on the plan's clock, close to the wall clock and far from the monotonic clock it was read by.
  for (const std::optional<planner::Reading>* reading : demand.readings()) {
    if (*reading && std::abs((*reading)->at_s - now_s) > kMaxAgeS) {
      violate("clock", fmt::format("a signal of {} was read {:.0f} s ago", one.id.name, now_s - (*reading)->at_s));
    }
  }
}

// Compares the plan with the last one of the same tenure. Without fresh signals nothing may be scaled down.
void Invariants::check_change(const SimController& controller, const planner::ServicePlan& one, const planner::Service& seen,
                              bool denied, const std::map<std::string, int>& room) {
  const double now_s = timeline_.now_s();
  const int desired = one.desired_workers();
  LastPlan now{desired, one.memory.desired.value_or(desired), {}, {}, one.generation, denied, now_s};
  for (const planner::Pool& pool : one.pools) now.by_class[pool.spec.accelerator] += pool.workers;
  for (const planner::Worker& worker : seen.workers) {
    if (worker.state == planner::WorkerState::kDraining) now.draining.insert(worker.name);
  }
  const auto key = std::pair(controller.identity(), one.id.uid);
  if (const auto last = plans_.find(key); last != plans_.end() && now_s - last->second.at_s < 3) {
    const LastPlan& before = last->second;
    if (before.desired != desired) {
      ++changes_[one.id.uid];
      journal_.note(now_s, "{} plans {} workers for {}, {} before: {}", controller.identity(), desired, one.id.name,
                    before.desired, one.reasons.empty() ? "" : one.reasons.back().message);
    }
    // A drain mark sent by its predecessor may arrive late: a worker that drains already when the plan leaves it out was not
    // this controller's choice.
    const auto drain_since = std::count_if(now.draining.begin(), now.draining.end(),
                                           [&](const std::string& name) { return !before.draining.contains(name); });
    const bool same_spec = before.generation == one.generation && seen.scaling.mode == planner::Mode::kApply;
    if (!is_fresh(one) && same_spec && !denied && desired + drain_since < before.desired && one.recommended_pools.empty() &&
        one.feasible.status == planner::Truth::kTrue && !before.denied && !place_lost(before, now, seen, room)) {
      std::string why;
      for (const auto& reason : one.reasons) why += reason.code + " ";
      violate("hold-on-missing-signals", fmt::format("{}: {} workers after {} while {} ({})", one.id.name, desired,
                                                     before.desired, one.metrics_fresh.message, why));
    }
  }
  plans_[key] = std::move(now);
}

// The wanted count is unchanged. The only workers that go are those whose accelerator a person removed from the spec, once
// their successors serve, or whose accelerator lost its nodes. That moves workers and is no scaling down.
bool Invariants::place_lost(const LastPlan& before, const LastPlan& now, const planner::Service& seen,
                            const std::map<std::string, int>& room) {
  if (now.wanted < before.wanted) return false;
  return std::all_of(before.by_class.begin(), before.by_class.end(), [&](const auto& had) {
    const auto& [name, workers] = had;
    const auto has = now.by_class.find(name);
    const int gone = workers - (has == now.by_class.end() ? 0 : has->second);
    const auto left = room.find(name);
    if (gone <= 0 || (left == room.end() ? 0 : left->second) < gone) return true;
    const auto is_it = [&name = name](const auto& choice) { return choice.accelerator == name; };
    return !seen.accelerators.empty() && std::none_of(seen.accelerators.begin(), seen.accelerators.end(), is_it);
  });
}

// Signals count as fresh only if a metrics page of every gateway was read recently.
void Invariants::check_pages(const SimController& controller, const planner::ServicePlan& one) {
  const double now_s = timeline_.now_s();
  const std::vector<controller::GatewayPeer> peers = controller.gateways();
  std::erase_if(peers_, [&](const auto& entry) {  // a gateway that was silent for too long starts again when it returns
    return entry.first.first == controller.identity() &&
           std::none_of(peers.begin(), peers.end(), [&](const auto& peer) { return peer.id == entry.first.second; });
  });
  for (const controller::GatewayPeer& peer : peers) {
    // A gateway that registered after the plan was made does not count.
    const auto known = peers_.try_emplace({controller.identity(), peer.id}, now_s).first;
    if (now_s - known->second < 2) continue;
    const auto read = pages_.find({controller.identity(), peer.id});
    // The age at the time of the decision: the process may have paused since.
    const double age_s = controller.step_began_s() - (read == pages_.end() ? controller.started_s() : read->second);
    if (age_s > kFreshS) {
      violate("fresh-means-read", fmt::format("{}: the signals of {} count as fresh, but {} was last read {:.0f} s ago",
                                              controller.identity(), one.id.name, peer.id, age_s));
    }
  }
}

// Demand is what arrived: never more than that, however counters are reset.
void Invariants::check_demand(const planner::ServicePlan& one, const planner::Service& seen) {
  if (const auto& rate = seen.demand.arrivals_per_s; rate && std::isfinite(rate->value)) {
    const auto& times = arrivals_[seen.served_name];
    // A reader that has just started divides by a short time: use the busiest second as the bound.
    std::size_t most = 0;
    std::size_t begin = 0;
    for (std::size_t end = 0; end < times.size(); ++end) {
      while (times[end] - times[begin] > 1) ++begin;
      most = std::max(most, end - begin + 1);
    }
    if (rate->value > 1.2 * static_cast<double>(most) + 1) {
      violate("demand-is-arrivals", fmt::format("{}: the plan sees {:.2f} requests/s, but at most {} arrived within a second",
                                                one.id.name, rate->value, most));
    }
  }
}

int Invariants::changes_of_desired(const std::string& uid) const {
  const auto found = changes_.find(uid);
  return found == changes_.end() ? 0 : found->second;
}

void Invariants::killed_by_deletion(const json& pod, std::size_t calls) {
  const auto worker = controller::worker_of(pod);
  if (!worker) return;
  const auto track = services_.find(worker->service_uid);
  const std::string uid = kube::text_at(pod, {"metadata", "uid"});
  if (const auto by = pods_ended_by_people_.find(uid); by != pods_ended_by_people_.end() && timeline_.now_s() >= by->second - 1)
    return;
  double shortest_s = 1800;
  if (track != services_.end()) {
    for (const Limits& limits : track->second.limits) shortest_s = std::min(shortest_s, limits.drain_timeout_s);
  }
  // From the drain mark, or from the deletion if there was no mark.
  const double wall_s = api_.wall_now();
  const double grace_s = pod["metadata"].value("deletionGracePeriodSeconds", 0.0);
  double since_s = controller::unix_seconds(kube::text_at(pod, {"metadata", "deletionTimestamp"})) - grace_s;
  if (const auto marked = marked_.find(uid); marked != marked_.end()) since_s = std::min(since_s, marked->second);
  if (wall_s - since_s < shortest_s - 2) {
    violate("finish-in-flight",
            fmt::format("worker {} was killed with {} requests {:.0f} s after its drain began; drainTimeout is {:.0f} s",
                        worker->name, calls, wall_s - since_s, shortest_s));
  }
}

void Invariants::request_began(const std::string& model) {
  Tally& tally = tallies_[model];
  ++tally.arrived;
  ++tally.open;
  auto& times = arrivals_[model];
  times.push_back(timeline_.now_s());
  if (times.size() > 4096) {
    const double old_s = timeline_.now_s() - kArrivalsKeptS;
    times.erase(times.begin(), std::lower_bound(times.begin(), times.end(), old_s));
  }
}

void Invariants::request_ended(const std::string& model, int code, double arrived_s) {
  Tally& tally = tallies_[model];
  --tally.open;
  ++tally.ended[code];
  if (tally.open < 0)
    violate("request-once", fmt::format("a request for {} that arrived at {:.2f} ended twice", model, arrived_s));
  if (code == 200 || code == 499 || code == 0 || code == 429 || code == 502 || code == 503 || code == 504 || code == 404)
    return;
  violate("request-once", fmt::format("a request for {} ended with status {}", model, code));
}

void Invariants::gateways_hold(const std::vector<const dispatch::RoutingTable*>& tables) {
  // Gateways with the same table share every chain's slots: together no more than the chain has.
  for (std::size_t a = 0; a < tables.size(); ++a) {
    for (std::size_t b = a + 1; b < tables.size(); ++b) {
      if (tables[a] == nullptr || tables[b] == nullptr || tables[a]->version != tables[b]->version) continue;
      if (tables[a]->models.size() != tables[b]->models.size())
        violate("one-table", "two gateways hold different tables of one version");
      for (std::size_t m = 0; m < std::min(tables[a]->models.size(), tables[b]->models.size()); ++m) {
        const auto& left = tables[a]->models[m].chains;
        const auto& right = tables[b]->models[m].chains;
        if (left.size() != right.size()) violate("one-table", "two gateways hold different chains of one version");
        for (std::size_t k = 0; k < std::min(left.size(), right.size()); ++k) {
          if (left[k].id != right[k].id || left[k].draining != right[k].draining || left[k].hops != right[k].hops)
            violate("one-table", "two gateways hold different chains of one version: " + left[k].id);
        }
      }
    }
  }
}

void Invariants::page_read(const std::string& controller, const std::string& gateway) {
  pages_[{controller, gateway}] = timeline_.now_s();
}

}  // namespace windlass::simulation
