// See sim_world.h.
#include "tests/simulation/sim_world.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "controller/runtime/pod.h"

namespace windlass::simulation {
namespace {

using nlohmann::json;

constexpr const char* kNamespace = "default";
constexpr const char* kService = "chat";
constexpr const char* kGateway = "gateway-0";
constexpr const char* kGatewayAdmin = "gateway.fake:9402";

json accelerator_class() {
  return json::parse(R"({"apiVersion": "windlass.dev/v1alpha1", "kind": "AcceleratorClass", "metadata": {"name": "h100"},
    "spec": {"resourceName": "nvidia.com/gpu", "memory": "80Gi", "peakFlopsPerSecond": {"bf16": "989T"},
             "memoryBandwidthBytesPerSecond": "3350G", "gpusPerNode": 4, "pricePerHour": "3.69", "capacity": {"mode": "Observed"}}})");
}

json node(int index, int gpus) {
  const std::string name = fmt::format("node-{}", index);
  return {{"apiVersion", "v1"},
          {"kind", "Node"},
          {"metadata", {{"name", name}}},
          {"status",
           {{"allocatable", {{"nvidia.com/gpu", std::to_string(gpus)}}},
            {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
}

bool is_active(const json& pod) {
  const json& meta = pod.at("metadata");
  if (meta.contains("deletionTimestamp")) return false;
  return !meta.contains("annotations") || !meta["annotations"].contains(controller::kDrainingSince);
}

std::string phase_of(const json& pod) { return pod.contains("status") ? pod["status"].value("phase", "") : ""; }

}  // namespace

SimWorld::SimWorld(WorldOptions options)
    : options_(options),
      api_({.seed = options.seed}),
      chaos_(options.seed, "chaos"),
      arrivals_(options.seed, "arrivals"),
      service_(options.seed, "service"),
      gateway_registry_(std::make_unique<metrics::Registry>()),
      gateway_metrics_(std::make_unique<metrics::GatewayMetrics>(*gateway_registry_)) {
  api_.seed_object(accelerator_class());
  for (int i = 0; i < options.nodes; ++i) api_.seed_object(node(i, options.gpus_per_node));
  api_.seed_object(json::parse(R"({"apiVersion": "windlass.dev/v1alpha1", "kind": "ModelService",
    "metadata": {"name": "chat", "namespace": "default"},
    "spec": {"model": {"servedName": "chat", "uri": "pvc://models/llama", "architecture": "llama3-8b"},
             "slo": {"timeToFirstToken": "1s", "timePerOutputToken": "40ms", "percentile": 95, "window": "2m"},
             "workload": {"requestsPerSecond": 1, "inputTokens": 1000, "outputTokens": 400},
             "accelerators": [{"class": "h100"}],
             "scaling": {"strategy": "Replicated", "minWorkers": 1, "maxWorkers": 6, "drainTimeout": "10m",
                         "behavior": {"scaleDown": {"stabilizationWindow": "1m"}}}}})"));
  api_.on_write = [this](const fakes::WriteAttempt& write) {
    const bool lease = write.resource.plural == "leases";
    const auto writer = std::find_if(controllers_.begin(), controllers_.end(),
                                     [&](const SimController& one) { return one.name == write.client; });
    if (!lease && writer != controllers_.end()) {
      const auto held = api_.object(kube::resources::kLeases, "windlass-system", "windlass-controller");
      const std::string holder = held ? (*held)["spec"].value("holderIdentity", "") : "";
      if (holder != writer->identity) {
        violate(fmt::format("{} wrote {} {} while the lease was {}'s", writer->identity, write.verb, write.resource.plural,
                            holder));
      }
    }
    if (write.verb == "delete" && write.resource.plural == "pods") {
      const auto worker = controller::worker_of(write.object);
      const bool drained = !is_active(write.object);
      if (worker && worker->ready && !drained) violate("a ready worker was deleted without being drained: " + worker->name);
    }
  };
  controllers_.resize(static_cast<std::size_t>(options.controllers));
  for (std::size_t i = 0; i < controllers_.size(); ++i) {
    controllers_[i].name = fmt::format("controller-{}", i);
    controllers_[i].clock_skew_s = 1000.0 * static_cast<double>(i);
    build(controllers_[i]);
  }
}

SimWorld::~SimWorld() = default;

void SimWorld::build(SimController& one) {
  one.core.reset();
  one.publisher.reset();
  one.metrics.reset();
  one.registry.reset();
  one.runtime.reset();
  one.store.reset();
  one.leadership.reset();
  one.client.reset();
  one.identity = fmt::format("{}_{:x}", one.name, chaos_.bits());
  one.wire = api_.connect(one.name);
  one.scraper = api_.connect(one.name + "-scraper");
  one.scraper->route("http://10.", [this](const kube::HttpRequest& request) { return answer_metrics(request.url); });
  one.scraper->route("http://gateway.fake", [this](const kube::HttpRequest& request) { return answer_metrics(request.url); });
  if (faults_on_) {
    one.wire->faults = options_.faults;
    one.scraper->faults.drop_before = options_.faults.drop_before;
  }
  one.credentials = kube::no_credentials();
  kube::KubeClientOptions client;
  client.wall_clock = [this] { return api_.wall_now(); };
  one.client = std::make_unique<kube::KubeClient>(*one.wire, api_.url(), *one.credentials, client);
  kube::LeaseOptions lease;
  lease.name_space = "windlass-system";
  lease.identity = one.identity;
  lease.seed = chaos_.bits();
  one.leadership = std::make_unique<controller::LeaseLeadership>(*one.client, lease);
  one.client->set_write_gate([this, &one] { return one.leadership->leading(now_ + one.clock_skew_s); });
  one.store = std::make_unique<controller::KubernetesStore>(*one.client, one.identity, chaos_.bits());
  one.runtime = std::make_unique<controller::KubernetesRuntime>(
      *one.client, controller::PodDefaults{"windlass-worker:test", ""}, chaos_.bits());
  one.registry = std::make_unique<metrics::Registry>();
  one.metrics = std::make_unique<metrics::ControllerMetrics>(*one.registry);
  one.publisher = std::make_unique<controller::RoutingPublisher>();
  one.core = std::make_unique<controller::Controller>(*one.store, *one.runtime, *one.leadership, *one.scraper, *one.publisher,
                                                      *one.metrics, controller::ControllerOptions{});
  one.next_step_s = now_;
}

void SimWorld::run(double seconds, double rate_per_s) {
  const double end_s = now_ + seconds;
  next_arrival_s_ = rate_per_s > 0 ? now_ + arrivals_.exponential(rate_per_s) : -1;
  while (now_ < end_s) {
    now_ += kTickS;
    api_.set_now(now_);
    step_kubelet();
    step_gateway(rate_per_s);
    step_controllers();
    api_.collect_garbage();
    check();
  }
}

void SimWorld::stop_faults() {
  faults_on_ = false;
  gateway_partitioned_ = false;
  for (SimController& one : controllers_) {
    one.wire->faults = {};
    one.scraper->faults = {};
    one.paused_until_s = 0;
  }
}

void SimWorld::step_controllers() {
  for (SimController& one : controllers_) {
    if (faults_on_ && chaos_.uniform() < options_.crash_per_s * kTickS) build(one);
    if (faults_on_ && chaos_.uniform() < options_.pause_per_s * kTickS) one.paused_until_s = now_ + chaos_.uniform(5, 40);
    if (now_ < one.paused_until_s || now_ < one.next_step_s) continue;
    const double monotonic_s = now_ + one.clock_skew_s;
    const controller::Outcome outcome = one.core->step({api_.wall_now(), monotonic_s});
    double wait_s = 1;
    if (const auto* requeue = std::get_if<controller::RequeueAfter>(&outcome)) wait_s = std::min(wait_s, requeue->seconds);
    if (const auto* terminal = std::get_if<controller::Terminal>(&outcome)) violate("terminal: " + terminal->reason);
    one.next_step_s = now_ + std::max(kTickS, wait_s);
  }
}

void SimWorld::step_kubelet() {
  // Scheduler: first node with room.
  std::map<std::string, int> used;
  for (const json& pod : api_.pods()) {
    if (controller::holds_resources(pod))
      used[pod["spec"].value("nodeName", "")] += controller::requested(pod, "nvidia.com/gpu");
  }
  for (int i = 0; i < options_.nodes; ++i) {
    const std::string name = fmt::format("node-{}", i);
    api_.schedule_pending(name, [&](const json& pod) {
      const int wanted = controller::requested(pod, "nvidia.com/gpu");
      if (used[name] + wanted > options_.gpus_per_node) return false;
      used[name] += wanted;
      return true;
    });
  }
  std::set<std::string> there;
  for (const json& pod : api_.pods()) {
    const std::string uid = pod["metadata"]["uid"];
    const std::string name = pod["metadata"]["name"];
    if (pod["spec"].value("nodeName", "").empty()) continue;
    there.insert(uid);
    const bool deleting = pod["metadata"].contains("deletionTimestamp");
    auto found = processes_.find(uid);
    if (found == processes_.end()) {
      if (deleting) {  // ended already, or never started
        api_.kubelet_finish_deletion(kNamespace, name);
        continue;
      }
      Process process;
      process.ip = fmt::format("10.0.{}.{}", next_ip_ / 250, next_ip_ % 250 + 1);
      ++next_ip_;
      process.ready_at_s = now_ + chaos_.uniform(options_.load_min_s, options_.load_max_s);
      found = processes_.emplace(uid, process).first;
      api_.kubelet_set(kNamespace, name, {.phase = "Running", .ready = false, .pod_ip = process.ip});
    }
    Process& process = found->second;
    if (deleting) {
      if (!process.stopping) {
        process.stopping = true;
        process.kill_at_s = now_ + static_cast<double>(pod["metadata"].value("deletionGracePeriodSeconds", 30));
      }
      if (process.running == 0 || now_ >= process.kill_at_s) {
        if (process.running > 0) tally_.lost += process.running;
        std::erase_if(running_, [&](const Request& request) {
          if (request.pod_uid == uid) --in_flight_[request.chain];
          return request.pod_uid == uid;
        });
        processes_.erase(found);
        api_.kubelet_set(kNamespace, name, {.phase = "Succeeded", .exit_code = 0});
        api_.kubelet_finish_deletion(kNamespace, name);
      }
    } else if (now_ >= process.ready_at_s && phase_of(pod) == "Running") {
      const auto worker = controller::worker_of(pod);
      if (worker && !worker->ready)
        api_.kubelet_set(kNamespace, name, {.phase = "Running", .ready = true, .pod_ip = process.ip});
    }
  }
  // A pod that vanished from the API takes its process with it.
  for (auto it = processes_.begin(); it != processes_.end();) {
    if (there.contains(it->first)) {
      ++it;
      continue;
    }
    if (it->second.running > 0) {
      tally_.lost += it->second.running;
      std::erase_if(running_, [&](const Request& request) {
        if (request.pod_uid == it->first) --in_flight_[request.chain];
        return request.pod_uid == it->first;
      });
    }
    it = processes_.erase(it);
  }
}

void SimWorld::step_gateway(double rate_per_s) {
  const metrics::Labels label = {{"model", kService}};
  // The long poll: any controller that serves.
  for (SimController& one : controllers_) {
    if (now_ < one.paused_until_s || !one.publisher->serving()) continue;
    if (const auto newer = one.publisher->ask(kGateway, kGatewayAdmin, table_.version, now_ + one.clock_skew_s)) {
      if (newer->version < table_.version) violate("an older table was served");
      table_ = *newer;
    }
  }
  std::erase_if(running_, [&](const Request& request) {
    if (request.finish_s > now_) return false;
    --in_flight_[request.chain];
    --processes_.at(request.pod_uid).running;
    ++tally_.finished;
    gateway_metrics_->requests_judged.with(label).add();
    gateway_metrics_->requests_attained.with(label).add();
    gateway_metrics_->request_prompt_tokens.with(label).add(1000);
    gateway_metrics_->request_generation_tokens.with(label).add(400);
    gateway_metrics_->requests_measured.with(label).add();
    return true;
  });
  while (next_arrival_s_ >= 0 && next_arrival_s_ <= now_) {
    queue_.push_back(next_arrival_s_);
    ++tally_.arrived;
    gateway_metrics_->requests_started.with(label).add();
    next_arrival_s_ += arrivals_.exponential(rate_per_s);
  }
  dispatch();
  gateway_metrics_->queue_length.with(label).set(static_cast<double>(queue_.size()));
  for (const auto& [chain, count] : in_flight_) {
    gateway_metrics_->requests_in_flight.with({{"model", kService}, {"chain", chain}}).set(count);
  }
}

void SimWorld::dispatch() {
  if (table_.models.empty()) return;
  std::vector<dispatch::Chain>& chains = table_.models.front().chains;
  std::vector<dispatch::ChainState> states;
  for (const dispatch::Chain& chain : chains) {
    states.push_back({chain.service_rate_per_s, chain.capacity, in_flight_[chain.id], chain.draining});
  }
  policy_.reset(states);
  while (!queue_.empty()) {
    const auto chosen = policy_.choose();
    if (!chosen) return;
    const dispatch::Chain& chain = chains[*chosen];
    const auto process = std::find_if(processes_.begin(), processes_.end(),
                                      [&](const auto& one) { return one.second.ip + ":8000" == chain.hops.front(); });
    if (process == processes_.end() || process->second.stopping || now_ < process->second.ready_at_s) {
      ++tally_.rejected_by_worker;  // refused before any work: another chain may take it
      states[*chosen].capacity = 0;
      policy_.update(*chosen, states[*chosen]);
      continue;
    }
    queue_.pop_front();
    ++in_flight_[chain.id];
    ++states[*chosen].in_flight;
    policy_.update(*chosen, states[*chosen]);
    ++process->second.running;
    const double mean_s = chain.service_rate_per_s > 0 ? 1 / chain.service_rate_per_s : 1;
    running_.push_back({now_ + mean_s * service_.uniform(0.5, 1.2), process->first, chain.id});
  }
}

Result<kube::HttpResponse> SimWorld::answer_metrics(const std::string& url) {
  if (url.find("gateway.fake") != std::string::npos) {
    if (gateway_partitioned_) return Error{ErrorCode::kUnavailable, "the gateway does not answer"};
    return kube::HttpResponse{200, {}, gateway_registry_->exposition()};
  }
  for (const auto& [uid, process] : processes_) {
    if (url.find("//" + process.ip + ":") == std::string::npos) continue;
    return kube::HttpResponse{
        200, {}, fmt::format("windlass_worker_requests_running {}\nwindlass_worker_requests_waiting 0\n", process.running)};
  }
  return Error{ErrorCode::kUnavailable, "connection refused"};
}

SimController* SimWorld::leader() {
  for (SimController& one : controllers_) {
    if (one.leadership->leading(now_ + one.clock_skew_s)) return &one;
  }
  return nullptr;
}

void SimWorld::check() {
  const auto leaders = std::count_if(controllers_.begin(), controllers_.end(), [&](const SimController& one) {
    return one.leadership->leading(now_ + one.clock_skew_s);
  });
  if (leaders > 1) violate("two controllers lead at once");
  const int active = active_workers();
  if (active > 6) violate(fmt::format("{} workers, maxWorkers is 6", active));
  if (active != last_active_) ++changes_of_active_;
  last_active_ = active;
  if (tally_.lost > 0) violate(fmt::format("{} requests lost", tally_.lost));
}

void SimWorld::violate(const std::string& what) {
  if (violations_.size() < 20) violations_.push_back(fmt::format("seed {} at {:.2f} s: {}", options_.seed, now_, what));
}

int SimWorld::active_workers() const {
  const auto pods = api_.pods(kNamespace);
  return static_cast<int>(std::count_if(pods.begin(), pods.end(), is_active));
}

int SimWorld::ready_workers() const {
  const auto pods = api_.pods(kNamespace);
  return static_cast<int>(std::count_if(pods.begin(), pods.end(), [](const json& pod) {
    const auto worker = controller::worker_of(pod);
    return worker && worker->ready && is_active(pod);
  }));
}

json SimWorld::service_status() const {
  const auto service = api_.object(kube::resources::kModelServices, kNamespace, kService);
  return service && service->contains("status") ? (*service)["status"] : json::object();
}

const planner::Plan* SimWorld::plan() const {
  for (const SimController& one : controllers_) {
    if (one.leadership->leading(now_ + one.clock_skew_s) && one.core->last_plan()) return &*one.core->last_plan();
  }
  return nullptr;
}

std::optional<double> SimWorld::worker_rate() const {
  const planner::Plan* now = plan();
  if (now == nullptr || now->services.empty() || now->services.front().desired_workers() == 0) return std::nullopt;
  return now->services.front().predicted.requests_per_s / now->services.front().desired_workers();
}

}  // namespace windlass::simulation
