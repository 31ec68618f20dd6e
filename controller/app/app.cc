// See app.h.
#include "controller/app/app.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "controller/app/answers.h"
#include "controller/app/gateway_transport.h"
#include "controller/app/http_server.h"
#include "controller/app/lease_thread.h"
#include "controller/app/side_thread.h"
#include "controller/kube/cluster.h"
#include "controller/kube/curl_transport.h"
#include "controller/reconcile/controller.h"
#include "controller/runtime/attached_runtime.h"
#include "controller/runtime/chain_runtime.h"
#include "controller/runtime/kubernetes_runtime.h"
#include "controller/runtime/local_runtime.h"
#include "controller/store/directory_store.h"
#include "controller/store/kubernetes_store.h"
#include "metrics/host/clock.h"
#include "metrics/security/reloaded.h"
#include "metrics/security/secrets.h"
#include "metrics/security/tls.h"

namespace windlass::controller {
namespace fs = std::filesystem;
namespace {

constexpr double kLeastStepGapS = 0.02;
constexpr double kSecretsPeriodS = 2;
constexpr double kApiTimeoutS = 4;  // one hung request must not outlast the lease's renew deadline (10 s)

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string host_name() {
  char name[256] = {};
  return ::gethostname(name, sizeof name - 1) == 0 ? name : "windlass-controller";
}

// The parts of the controller that both the cluster and the local mode provide.
struct Parts {
  virtual ~Parts() = default;
  virtual ObjectStore& store() = 0;
  virtual WorkerRuntime& runtime() = 0;
  virtual Leadership& leadership() = 0;
  virtual void stop() {}
};

struct KubernetesParts final : Parts {
  std::unique_ptr<kube::Cluster> cluster;
  std::unique_ptr<kube::Cluster> lease_cluster;  // separate, so that a slow answer to another request cannot delay the lease
  std::unique_ptr<Leadership> leader;
  LeaseThread* lease = nullptr;
  std::unique_ptr<KubernetesStore> store_;
  std::unique_ptr<ChainRuntime> runtime_;

  ~KubernetesParts() override {
    // Destroy the watches before the transport that carries them.
    runtime_.reset();
    store_.reset();
    leader.reset();
  }
  ObjectStore& store() override { return *store_; }
  WorkerRuntime& runtime() override { return *runtime_; }
  Leadership& leadership() override { return *leader; }
  void stop() override {
    if (lease == nullptr) return;
    // Best effort: a lease that is not released expires.
    if (const auto released = lease->release(now()); !released.ok())
      spdlog::info("could not release the lease: {}", released.error().message);
  }
};

Result<kube::ClusterConfig> find_cluster(const AppOptions& options) {
  const std::string host = environment("KUBERNETES_SERVICE_HOST");
  if (options.kubeconfig.empty() && environment("KUBECONFIG").empty() && !host.empty()) {
    kube::InClusterOptions in_cluster;
    in_cluster.host = host;
    in_cluster.port = environment("KUBERNETES_SERVICE_PORT");
    return kube::load_in_cluster(in_cluster);
  }
  kube::KubeconfigOptions files;
  files.context = options.context;
  files.files = options.kubeconfig.empty() ? kube::kubeconfig_paths(environment("KUBECONFIG"), environment("HOME"))
                                           : std::vector<fs::path>{options.kubeconfig};
  return kube::load_kubeconfig(files);
}

Result<std::unique_ptr<Parts>> kubernetes_parts(const AppOptions& options, Waker& waker,
                                                const metrics::ControllerMetrics& bundle, std::function<std::string()> token) {
  WINDLASS_ASSIGN_OR_RETURN(kube::ClusterConfig config, find_cluster(options));
  const std::string identity =
      fmt::format("{}_{:08x}", options.identity.empty() ? host_name() : options.identity, std::random_device{}());
  kube::ClusterOptions cluster_options;
  cluster_options.client.user_agent = "windlass-controller/" + identity;
  cluster_options.client.field_manager = "windlass-controller";
  cluster_options.client.timeout_s = kApiTimeoutS;
  const kube::ClusterOptions lease_options = cluster_options;
  cluster_options.on_activity = [&waker] { waker.wake(); };
  auto parts = std::make_unique<KubernetesParts>();
  WINDLASS_ASSIGN_OR_RETURN(parts->cluster, kube::Cluster::connect(std::move(config), std::move(cluster_options)));
  kube::KubeClient& client = parts->cluster->client();
  const auto observer = [&bundle](const std::string& verb, const std::string& resource, int status) {
    const std::string code = status > 0 ? std::to_string(status) : verb == "watch" ? "opened" : "error";
    bundle.api_requests.with({{"verb", verb}, {"resource", resource}, {"code", code}}).add();
  };
  client.set_observer(observer);
  const std::uint64_t seed = std::random_device{}();
  if (options.leader_elect) {
    kube::LeaseOptions lease;
    lease.name_space = options.name_space.empty() ? parts->cluster->name_space() : options.name_space;
    lease.name = kube::lease_name(options.instance);
    lease.identity = identity;
    lease.seed = seed;
    WINDLASS_ASSIGN_OR_RETURN(kube::ClusterConfig again, find_cluster(options));
    WINDLASS_ASSIGN_OR_RETURN(parts->lease_cluster, kube::Cluster::connect(std::move(again), lease_options));
    parts->lease_cluster->client().set_observer(observer);
    auto leadership = std::make_unique<LeaseThread>(parts->lease_cluster->client(), lease, [&waker] { waker.wake(); });
    // The fence: nothing is written after the renew deadline or for an earlier term, whatever else goes wrong.
    client.set_write_gate([leader = leadership.get()] { return leader->may_write(now().monotonic_s); });
    parts->lease = leadership.get();
    parts->leader = std::move(leadership);
    spdlog::info("competing for lease {}/{} as {}", lease.name_space, lease.name, identity);
  } else {
    parts->leader = std::make_unique<SoleLeader>(static_cast<std::int64_t>(now().wall_s));
  }
  const std::set<std::string> namespaces(options.watch_namespaces.begin(), options.watch_namespaces.end());
  parts->store_ = std::make_unique<KubernetesStore>(
      client, identity, seed + 1,
      StoreScope{options.instance, namespaces, {options.plain_names.begin(), options.plain_names.end()}});
  PodDefaults pods{options.worker_image, options.fetch_image, options.instance, options.any_pod_template, std::move(token)};
  pods.pull_secrets = options.worker_pull_secrets;
  pods.user = options.worker_user == "none" ? std::nullopt : std::optional<std::int64_t>(std::stoll(options.worker_user));
  parts->runtime_ =
      std::make_unique<ChainRuntime>(std::make_unique<KubernetesRuntime>(client, std::move(pods), seed + 3, namespaces));
  return std::unique_ptr<Parts>(std::move(parts));
}

// A folder has one controller at a time. The open file holds the lock, which ends with the process.
class DirectoryLock {
 public:
  // Waits up to `patience` for a controller that is just ending.
  static Result<std::unique_ptr<DirectoryLock>> take(const fs::path& directory, std::chrono::milliseconds patience) {
    const fs::path path = directory / "controller.lock";
    const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    if (fd < 0) return Error{ErrorCode::kPermissionDenied, fmt::format("{}: {}", path.string(), std::strerror(errno))};
    auto lock = std::unique_ptr<DirectoryLock>(new DirectoryLock(fd));
    const auto deadline = std::chrono::steady_clock::now() + patience;
    while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      if (std::chrono::steady_clock::now() < deadline) continue;
      return Error{ErrorCode::kFailedPrecondition, fmt::format("--store: another controller runs on {}", directory.string())};
    }
    return lock;
  }
  ~DirectoryLock() { ::close(fd_); }
  DirectoryLock(const DirectoryLock&) = delete;
  DirectoryLock& operator=(const DirectoryLock&) = delete;

 private:
  explicit DirectoryLock(int fd) : fd_(fd) {}
  int fd_;
};

// Counts the terms of a folder, so that gateways never prefer an earlier term's table.
Result<std::int64_t> next_term(const fs::path& directory) {
  const fs::path path = directory / "term";
  std::int64_t term = 0;
  if (std::ifstream old(path); old) old >> term;
  ++term;
  std::ofstream file(path, std::ios::trunc);
  file << term << '\n';
  if (!file.flush()) return Error{ErrorCode::kPermissionDenied, fmt::format("{}: cannot be written", path.string())};
  return term;
}

struct LocalParts final : Parts {
  std::unique_ptr<DirectoryLock> lock;
  std::unique_ptr<kube::CurlTransport> transport;
  std::unique_ptr<DirectoryStore> store_;
  std::unique_ptr<WorkerRuntime> runtime_;
  std::unique_ptr<SoleLeader> leader;

  ObjectStore& store() override { return *store_; }
  WorkerRuntime& runtime() override { return *runtime_; }
  Leadership& leadership() override { return *leader; }
};

Result<std::vector<AttachedServer>> read_servers(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{ErrorCode::kNotFound, fmt::format("--servers: {}: cannot be read", path)};
  auto servers = attached_servers_from_json({std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()});
  if (!servers.ok()) return servers.error().within("--servers: " + path);
  return servers;
}

Result<std::unique_ptr<Parts>> local_parts(const AppOptions& options) {
  const fs::path directory = options.store_directory();
  ::umask(077);  // only our user may read what this process writes
  auto parts = std::make_unique<LocalParts>();
  WINDLASS_ASSIGN_OR_RETURN(DirectoryStore store, DirectoryStore::open(directory));
  // After a killed `windlass up`, its controller may still be ending its workers.
  const std::chrono::seconds patience(options.keep_workers ? 10 : 0);
  WINDLASS_ASSIGN_OR_RETURN(parts->lock, DirectoryLock::take(directory, patience));
  WINDLASS_ASSIGN_OR_RETURN(const std::int64_t term, next_term(directory));
  parts->store_ = std::make_unique<DirectoryStore>(std::move(store));
  parts->leader = std::make_unique<SoleLeader>(term);
  parts->transport = std::make_unique<kube::CurlTransport>(kube::CurlOptions{});

  if (options.runtime == "attached") {
    WINDLASS_ASSIGN_OR_RETURN(std::vector<AttachedServer> servers, read_servers(options.servers));
    const auto uid_of = [store = parts->store_.get()](const std::string& name) {
      for (const api::ModelService& service : store->model_services()) {
        if (service.metadata.name_space == "default" && service.metadata.name == name) return service.metadata.uid;
      }
      return std::string();
    };
    parts->runtime_ = std::make_unique<AttachedRuntime>(std::move(servers), uid_of, *parts->transport);
    return std::unique_ptr<Parts>(std::move(parts));
  }

  const int gpus =
      options.local_gpus > 0 ? options.local_gpus : static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  LocalRuntimeOptions runtime;
  std::error_code failed;
  runtime.worker_binary = options.worker_binary.empty()
                              ? (fs::read_symlink("/proc/self/exe", failed).parent_path() / "windlass-worker").string()
                              : options.worker_binary;
  if (::access(runtime.worker_binary.c_str(), X_OK) != 0) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("--worker-binary: must be an executable program (got '{}')", runtime.worker_binary)};
  }
  runtime.log_directory = (directory / "logs").string();
  fs::create_directories(runtime.log_directory, failed);
  if (failed) return Error{ErrorCode::kPermissionDenied, fmt::format("{}: {}", runtime.log_directory, failed.message())};
  runtime.model_root = options.model_root;
  runtime.gpus = gpus;
  std::optional<WorkerRecords> records;
  if (options.keep_workers) {
    WINDLASS_ASSIGN_OR_RETURN(records, WorkerRecords::open(directory / "workers"));
  }
  parts->runtime_ =
      std::make_unique<ChainRuntime>(std::make_unique<LocalRuntime>(runtime, *parts->transport, std::move(records)));
  return std::unique_ptr<Parts>(std::move(parts));
}

// The security files (docs/security.md), and whether they have changed.
struct Secrets {
  std::shared_ptr<security::Reloaded<security::Certificate>> certificate;
  std::shared_ptr<security::Reloaded<std::string>> token;
  std::shared_ptr<security::Reloaded<std::string>> gateway_ca;
  double looked_s = 0;

  static Result<Secrets> load(const AppOptions& options) {
    Secrets secrets;
    const auto flag = [](const char* name, const auto& result) { return result.error().within(name); };
    if (!options.tls_cert.empty()) {
      auto loaded = security::Reloaded<security::Certificate>::load({options.tls_cert, options.tls_key}, [](const auto& texts) {
        return security::check_certificate(texts[0], texts[1]);
      });
      if (!loaded.ok()) return flag("--tls-cert, --tls-key", loaded);
      secrets.certificate = *loaded;
    }
    if (!options.token_file.empty()) {
      auto loaded = security::Reloaded<std::string>::load({options.token_file},
                                                          [](const auto& texts) { return security::parse_token(texts[0]); });
      if (!loaded.ok()) return flag("--token-file", loaded);
      secrets.token = *loaded;
    }
    if (!options.gateway_ca.empty()) {
      auto loaded = security::Reloaded<std::string>::load({options.gateway_ca},
                                                          [](const auto& texts) { return security::check_ca(texts[0]); });
      if (!loaded.ok()) return flag("--gateway-ca", loaded);
      secrets.gateway_ca = *loaded;
    }
    for (const std::string& path : {options.tls_key, options.token_file}) {
      if (path.empty()) continue;
      if (const std::string warning = security::permission_warning(path); !warning.empty()) spdlog::warn("{}", warning);
    }
    return secrets;
  }

  void follow(double now_s) {
    if (now_s - looked_s < kSecretsPeriodS) return;
    looked_s = now_s;
    const auto look = [](const char* what, const auto& file) {
      if (file == nullptr) return;
      const auto changed = file->refresh();
      if (!changed.has_value()) return;
      if (changed->ok()) {
        spdlog::info("{}: reloaded", what);
      } else {
        spdlog::warn("{}: {}; the last good version stays in use", what, changed->error().message);
      }
    };
    look("--tls-cert, --tls-key", certificate);
    look("--token-file", token);
    look("--gateway-ca", gateway_ca);
  }
};

ControllerOptions options_of_controller(const AppOptions& options) {
  ControllerOptions controller;
  controller.load_status_period_s = options.load_status_period_s;
  controller.max_queued = options.max_queued;
  controller.scrape_period_s = std::min(1.0, options.tick_s);
  controller.stopwatch = [] { return now().monotonic_s; };
  if (!options.prometheus_url.empty()) {
    PromqlOptions promql;
    promql.server = options.prometheus_url;
    // the gateways' CA does not apply to Prometheus
    promql.transport = std::make_shared<kube::CurlTransport>(kube::CurlOptions{});
    promql.selector = options.prometheus_selector;
    promql.period_s = options.prometheus_period_s;
    if (!options.prometheus_token_file.empty()) promql.credentials = kube::token_file(options.prometheus_token_file);
    controller.signals.promql = std::move(promql);
    spdlog::info("reading demand from Prometheus at {}", options.prometheus_url);
  }
  return controller;
}

// What the loop has logged, so that it logs only changes.
struct Shown {
  std::uint64_t plans = 0;
  std::string retry;
};

// Seconds until the next step. Error: the loop must end.
Result<double> wait_s(const Outcome& outcome, double tick_s, Shown& shown) {
  if (const auto* terminal = std::get_if<Terminal>(&outcome)) return Error{ErrorCode::kInternal, terminal->reason};
  if (const auto* retry = std::get_if<Retry>(&outcome); retry != nullptr && retry->reason != shown.retry) {
    spdlog::warn("will retry: {}", retry->reason);
    shown.retry = retry->reason;
  }
  if (std::holds_alternative<Done>(outcome)) shown.retry.clear();
  const auto* requeue = std::get_if<RequeueAfter>(&outcome);
  return requeue == nullptr ? tick_s : std::min(tick_s, requeue->seconds);
}

// The main loop. Error: it cannot go on.
Result<void> decide_until_stopped(Controller& controller, Parts& parts, HttpServer& server, metrics::ControllerMetrics& bundle,
                                  Secrets& secrets, Waker& waker, double tick_s) {
  Shown shown;
  while (!waker.stopped()) {
    const Instant begin = now();
    secrets.follow(begin.monotonic_s);
    const Outcome outcome = controller.step(begin);
    bundle.reconcile_duration.observe(now().monotonic_s - begin.monotonic_s);
    if (controller.plans_made() != shown.plans) {
      shown.plans = controller.plans_made();
      server.show(controller.last_decision());
    }
    server.set_ready(parts.store().synced() && parts.runtime().synced());
    server.flush();

    WINDLASS_ASSIGN_OR_RETURN(const double max_s, wait_s(outcome, tick_s, shown));
    const double renew_s = parts.leadership().next_step_at() - now().monotonic_s;
    waker.wait(kLeastStepGapS, std::clamp(renew_s, 0.0, max_s));
  }
  return {};
}

}  // namespace

Result<void> run(const AppOptions& options, Waker& waker) {
  metrics::Registry registry;
  metrics::ControllerMetrics bundle(registry);
  WINDLASS_ASSIGN_OR_RETURN(Secrets secrets, Secrets::load(options));
  std::function<std::string()> token;
  if (secrets.token != nullptr) token = [token = secrets.token] { return *token->current(); };
  WINDLASS_ASSIGN_OR_RETURN(
      const std::unique_ptr<Parts> parts,
      options.store_is_directory() ? local_parts(options) : kubernetes_parts(options, waker, bundle, std::move(token)));
  RoutingPublisher publisher;
  HttpServer server(publisher, registry, {secrets.certificate, secrets.token, options.open_metrics},
                    [&waker] { waker.wake(); });
  WINDLASS_RETURN_IF_ERROR(server.open(options.listen));
  spdlog::info("listening on {}", options.listen);

  GatewayTransport scraper(publisher, {secrets.token, secrets.gateway_ca, options.gateway_server_name});
  ControllerOptions controller_options = options_of_controller(options);
  OfferQuestions offers;
  ProbeQuestions probes;
  kube::CurlTransport to_workers(kube::CurlOptions{});
  // A finished piece of work wakes the loop.
  const auto done = [&waker](bool any) {
    if (any) waker.wake();
    return any;
  };
  // On a laptop it must not compete with the workers.
  SideThread search_thread([&](const SideThread::Stop& stop) { return done(answer_offers(offers, stop)); },
                           SideThread::Priority::kLowest);
  SideThread probe_thread([&](const SideThread::Stop& stop) { return done(answer_probe(probes, to_workers, stop)); });
  controller_options.offers = &offers;
  controller_options.probes = &probes;
  controller_options.on_question = [&] {
    search_thread.wake();
    probe_thread.wake();
  };
  Controller controller(parts->store(), parts->runtime(), parts->leadership(), scraper, publisher, bundle, controller_options);

  WINDLASS_RETURN_IF_ERROR(decide_until_stopped(controller, *parts, server, bundle, secrets, waker, options.tick_s));
  spdlog::info("ending");
  publisher.withdraw();
  server.flush();
  parts->stop();
  server.close();
  return {};
}

}  // namespace windlass::controller
