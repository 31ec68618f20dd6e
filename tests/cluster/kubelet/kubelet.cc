// Implements kubelet.h.
#include "tests/cluster/kubelet/kubelet.h"

#include <chrono>
#include <ctime>
#include <set>

#include <fmt/format.h>

namespace windlass::testing {
namespace {

using nlohmann::json;
namespace resources = kube::resources;

constexpr double kLeaseDurationS = 40;
constexpr double kLeaseRenewS = 10;
constexpr double kTickS = 0.1;
constexpr double kRetryS = 0.5;

const kube::Resource kPersistentVolumes{"", "v1", "persistentvolumes", "PersistentVolume", false};

double monotonic_now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// RFC 3339 in UTC; with microseconds for a Lease's renewTime.
std::string wall_now(bool micro) {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now).count();
  const auto micros = std::chrono::duration_cast<std::chrono::microseconds>(now).count() % 1000000;
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%S", &parts);
  return micro ? fmt::format("{}.{:06}Z", text, micros) : fmt::format("{}Z", text);
}

}  // namespace

Kubelet::Kubelet(KubeletOptions options) : options_(std::move(options)) {}
Kubelet::~Kubelet() = default;

void Kubelet::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  woken_.notify_all();
}

Result<void> Kubelet::run() {
  kube::KubeconfigOptions where;
  where.files = {options_.kubeconfig};
  WINDLASS_ASSIGN_OR_RETURN(kube::ClusterConfig config, kube::load_kubeconfig(where));
  kube::ClusterOptions cluster_options;
  cluster_options.client.user_agent = "windlass-test-kubelet/" + options_.node;
  cluster_options.client.field_manager = "windlass-test-kubelet";
  cluster_options.client.timeout_s = 5;
  cluster_options.on_activity = [this] {
    const std::lock_guard lock(mutex_);
    activity_ = true;
    woken_.notify_all();
  };
  WINDLASS_ASSIGN_OR_RETURN(cluster_, kube::Cluster::connect(std::move(config), std::move(cluster_options)));
  probe_transport_ = std::make_unique<kube::CurlTransport>(kube::CurlOptions{});
  kube::ReflectorOptions reflector;
  reflector.resource = resources::kPods;
  reflector.field_selector = "spec.nodeName=" + options_.node;
  reflector.backoff_min_s = 0.2;
  reflector.backoff_max_s = 1;
  reflector_ = std::make_unique<kube::Reflector>(cluster_->client(), reflector);
  while (true) {
    step(monotonic_now(), wall_now(false));
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, std::chrono::duration<double>(kTickS), [this] { return activity_ || stopping_; });
    activity_ = false;
    if (stopping_) break;
  }
  pods_.clear();
  reflector_.reset();
  return {};
}

void Kubelet::step(double now_s, const std::string& wall) {
  if (!registered_ && now_s >= next_registration_s_) register_node(now_s, wall);
  if (registered_ && now_s >= next_lease_s_) renew_lease(now_s);
  reflector_->step(now_s);  // cheap: it only takes what its watch has received
  follow_pods();
  for (auto& [uid, pod] : pods_) pod->tick(now_s, wall);
  ask_probes(now_s);
  for (auto it = pods_.begin(); it != pods_.end();) {
    Pod& pod = *it->second;
    report(pod, now_s, wall);
    if (pod.forgotten() && pod.ended()) {
      fmt::print(stderr, "kubelet: {}/{}: gone\n", pod.name_space(), pod.name());
      reported_.erase(it->first);
      it = pods_.erase(it);
    } else {
      ++it;
    }
  }
}

void Kubelet::register_node(double now_s, const std::string& wall) {
  next_registration_s_ = now_s + kRetryS;
  json resources_of_node = {{"cpu", "64"}, {"memory", "256Gi"}, {"pods", "110"}, {"ephemeral-storage", "1Ti"}};
  for (const auto& [name, count] : options_.allocatable) resources_of_node[name] = count;
  json labels = {{"kubernetes.io/hostname", options_.node}, {"kubernetes.io/os", "linux"}, {"kubernetes.io/arch", "amd64"}};
  for (const auto& [name, value] : options_.labels) labels[name] = value;
  const json node = {{"metadata", {{"name", options_.node}, {"labels", labels}}},
                     {"spec", {{"unschedulable", options_.cordoned}}}};
  const auto created = cluster_->client().create(resources::kNodes, node);
  if (!created.ok() && created.error().code != ErrorCode::kAlreadyExists) {
    fmt::print(stderr, "kubelet: registering node {}: {}\n", options_.node, created.error().message);
    return;
  }
  const json status = {{"status",
                        {{"capacity", resources_of_node},
                         {"allocatable", resources_of_node},
                         {"addresses", json::array({{{"type", "InternalIP"}, {"address", "127.0.0.1"}},
                                                    {{"type", "Hostname"}, {"address", options_.node}}})},
                         {"nodeInfo",
                          {{"kubeletVersion", "v1.34.0-windlass-test"},
                           {"operatingSystem", "linux"},
                           {"architecture", "amd64"},
                           {"containerRuntimeVersion", "process://1"},
                           {"kernelVersion", ""},
                           {"osImage", ""},
                           {"machineID", options_.node},
                           {"systemUUID", options_.node},
                           {"bootID", options_.node},
                           {"kubeProxyVersion", ""}}},
                         {"conditions", json::array({{{"type", "Ready"},
                                                      {"status", "True"},
                                                      {"reason", "KubeletReady"},
                                                      {"message", "the test kubelet is running"},
                                                      {"lastHeartbeatTime", wall},
                                                      {"lastTransitionTime", wall}}})}}}};
  kube::WriteOptions options;
  options.subresource = "status";
  const auto patched =
      cluster_->client().patch(resources::kNodes, "", options_.node, kube::PatchType::kStrategic, status, options);
  if (!patched.ok()) {
    fmt::print(stderr, "kubelet: status of node {}: {}\n", options_.node, patched.error().message);
    return;
  }
  registered_ = true;
}

void Kubelet::renew_lease(double now_s) {
  next_lease_s_ = now_s + kRetryS;
  const json lease = {{"metadata", {{"name", options_.node}, {"namespace", "kube-node-lease"}}},
                      {"spec",
                       {{"holderIdentity", options_.node},
                        {"leaseDurationSeconds", static_cast<int>(kLeaseDurationS)},
                        {"renewTime", wall_now(true)}}}};
  kube::WriteOptions options;
  options.force = true;
  const auto applied = cluster_->client().apply(resources::kLeases, lease, options);
  if (applied.ok()) next_lease_s_ = now_s + kLeaseRenewS;
}

void Kubelet::follow_pods() {
  if (!reflector_->synced() || reflector_->generation() == seen_generation_) return;
  seen_generation_ = reflector_->generation();
  std::set<std::string> present;
  for (const auto& [key, object] : reflector_->objects()) {
    const std::string uid = object["metadata"].value("uid", "");
    present.insert(uid);
    const auto known = pods_.find(uid);
    if (known != pods_.end()) {
      known->second->update(object);
      continue;
    }
    const std::string phase = object.contains("status") ? object["status"].value("phase", "") : "";
    if (phase == "Succeeded" || phase == "Failed") continue;
    const std::string name_space = object["metadata"].value("namespace", "");
    PodOptions options;
    options.folder = fmt::format("{}/pods/{}_{}_{}", options_.folder, name_space, object["metadata"].value("name", ""), uid);
    options.ip = next_ip();
    options.host_ip = "127.0.0.1";
    options.program_by_image = options_.program_by_image;
    options.crash_backoff_s = options_.crash_backoff_s;
    options.fetch = [this, name_space](const std::string& kind, const std::string& name) {
      return fetch(name_space, kind, name);
    };
    pods_[uid] = std::make_unique<Pod>(object, std::move(options));
  }
  for (auto& [uid, pod] : pods_) {
    if (!present.contains(uid)) pod->forget();
  }
}

void Kubelet::ask_probes(double now_s) {
  std::vector<std::pair<Pod*, Pod::ProbeCall>> calls;
  std::vector<kube::HttpRequest> requests;
  for (auto& [uid, pod] : pods_) {
    for (const Pod::ProbeCall& call : pod->due_probes(now_s)) {
      calls.emplace_back(pod.get(), call);
      kube::HttpRequest request;
      request.url = call.url;
      request.timeout_s = call.timeout_s;
      // One connection per probe, like the real kubelet.
      request.headers = {{"Connection", "close"}, {"User-Agent", "windlass-test-kubelet"}};
      requests.push_back(std::move(request));
    }
  }
  if (requests.empty()) return;
  const auto answers = probe_transport_->send_all(requests);
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const bool success = answers[i].ok() && answers[i]->status >= 200 && answers[i]->status < 400;
    calls[i].first->take_probe(calls[i].second, success, monotonic_now());
  }
}

void Kubelet::report(Pod& pod, double now_s, const std::string& wall) {
  Reported& reported = reported_[pod.uid()];
  if (pod.forgotten() || now_s < reported.next_try_s) return;
  const json status = pod.status(wall);
  if (status != reported.status) {
    kube::WriteOptions options;
    options.subresource = "status";
    const json patch = {{"metadata", {{"uid", pod.uid()}}}, {"status", status}};
    const auto patched =
        cluster_->client().patch(resources::kPods, pod.name_space(), pod.name(), kube::PatchType::kStrategic, patch, options);
    if (patched.ok()) {
      reported.status = status;
    } else {
      reported.next_try_s = now_s + kRetryS;
      fmt::print(stderr, "kubelet: status of {}/{}: {}\n", pod.name_space(), pod.name(), patched.error().message);
      return;
    }
  }
  if (!pod.ended() || reported.confirmed) return;
  // Every process has ended: the API server may delete the object once its finalizers are gone.
  kube::DeleteOptions options;
  options.uid = pod.uid();
  options.grace_period_s = 0;
  const auto removed = cluster_->client().remove(resources::kPods, pod.name_space(), pod.name(), options);
  reported.confirmed =
      removed.ok() || removed.error().code == ErrorCode::kNotFound || removed.error().code == ErrorCode::kConflict;
  reported.next_try_s = now_s + kRetryS;
}

std::string Kubelet::next_ip() {
  const int number = ++ips_given_;
  return fmt::format("127.{}.{}.{}", options_.network, (number / 250) % 250, 1 + number % 250);
}

Result<json> Kubelet::fetch(const std::string& name_space, const std::string& kind, const std::string& name) {
  kube::KubeClient& client = cluster_->client();
  kube::Resource resource = resources::kConfigMaps;
  if (kind == "PersistentVolumeClaim") resource = resources::kPersistentVolumeClaims;
  if (kind == "PersistentVolume") resource = kPersistentVolumes;
  auto answer = client.get(resource, resource.namespaced ? name_space : "", name);
  if (!answer.ok()) return answer.error();
  return std::move(answer).value();
}

}  // namespace windlass::testing
