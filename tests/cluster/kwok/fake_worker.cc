// windlass-fake-worker: every worker of a simulated cluster in one process. It watches the pods that windlass-controller
// created. For each pod with an address in 127.0.0.0/8 it listens there (see fake_pod.h), with the latencies that the planner
// predicts for this model on that many GPUs of that class. All of 127.0.0.0/8 is this machine, so no address has to be
// configured.
//
// A pod that is being deleted drains. A pod whose object is gone, or whose containers KWOK has ended, is killed: its requests
// in flight break and are counted. While the API server is away nothing changes. On every second with a change, prints one line
// of JSON to stdout: pods, requests in flight, broken requests.
#include <chrono>
#include <csignal>
#include <map>
#include <memory>
#include <set>
#include <string>

#include <CLI/CLI.hpp>
#include <boost/asio/signal_set.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <sys/resource.h>

#include "controller/api/json.h"
#include "controller/kube/cluster.h"
#include "controller/kube/parsed_objects.h"
#include "controller/kube/reflector.h"
#include "controller/reconcile/spec.h"
#include "controller/runtime/pod.h"
#include "tests/cluster/kwok/fake_pod.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
constexpr auto kLookEvery = std::chrono::milliseconds(20);

kube::ReflectorOptions reflect(const kube::Resource& resource, const std::string& selector = "") {
  kube::ReflectorOptions options = kube::options_of(resource, 1);
  options.label_selector = selector;
  options.backoff_min_s = 0.2;
  options.backoff_max_s = 1;
  return options;
}

class FakeWorkers {
 public:
  FakeWorkers(boost::asio::io_context& io, kube::KubeClient& client)
      : io_(io),
        pods_(client, reflect(kube::resources::kPods, "app.kubernetes.io/component=worker")),
        services_(client, reflect(kube::resources::kModelServices)),
        classes_(client, reflect(kube::resources::kAcceleratorClasses)) {}

  void look(double now_s) {
    services_.step(now_s);
    classes_.step(now_s);
    pods_.step(now_s);
    if (!pods_.synced()) return;
    const bool changed = workers_.update(pods_, controller::worker_of);
    if (!changed && waiting_.empty()) return;
    std::set<std::string> before;
    before.swap(waiting_);
    // Both are in key order: what exists and what runs.
    auto running = running_.begin();
    const auto end_it = [&] {
      FakePod& pod = *running->second.pod;
      if (pod.in_flight() > 0) {
        fmt::print(stderr, "pod {} ended with {} requests in flight\n", pod.options().name, pod.in_flight());
      }
      pod.kill();
      running = running_.erase(running);
    };
    for (const auto& [key, one] : workers_.all()) {
      const std::optional<controller::Worker>& worker = one.value;
      if (!worker || worker->address.empty() || worker->finished) continue;
      while (running != running_.end() && running->first < key) end_it();
      // KWOK may see an old version of a pod and give it a second address: the last one counts, as it does for the controller.
      if (running != running_.end() && running->first == key &&
          (running->second.uid != worker->uid || running->second.address != worker->address)) {
        end_it();
      }
      if (running == running_.end() || running->first != key) {
        start(key, *worker, before.contains(worker->uid));
      } else {
        if (worker->terminating) running->second.pod->drain();
        ++running;
      }
    }
    while (running != running_.end()) end_it();
  }

  [[nodiscard]] json counts() const {
    std::int64_t in_flight = 0;
    for (const auto& [key, one] : running_) in_flight += one.pod->in_flight();
    return {{"pods", running_.size()}, {"in_flight", in_flight}, {"broken", FakePod::broken()}, {"waiting", waiting_.size()}};
  }

 private:
  // Its service or class may appear later than the pod, and its address may be in use for a moment: such a start is retried.
  void start(const std::string& key, const controller::Worker& worker, bool tried) {
    const auto options = options_of(worker);
    Result<void> opened = options.ok() ? Result<void>() : Result<void>(options.error());
    if (opened.ok()) {
      auto pod = std::make_shared<FakePod>(io_, *options);
      opened = pod->open();
      if (opened.ok()) {
        running_.emplace(key, Running{worker.uid, worker.address, std::move(pod)});
        return;
      }
    }
    if (!tried) fmt::print(stderr, "{}/{}: {}\n", worker.name_space, worker.name, opened.error().message);
    waiting_.insert(worker.uid);
  }

  [[nodiscard]] Result<FakePodOptions> options_of(const controller::Worker& worker) const {
    const json* service = services_.find(worker.name_space, worker.service);
    const json* accelerator = classes_.find("", worker.accelerator);
    if (service == nullptr || accelerator == nullptr) return Error{ErrorCode::kNotFound, "its service or class is unknown"};
    WINDLASS_ASSIGN_OR_RETURN(const api::ModelService parsed, api::model_service_from_json(*service));
    WINDLASS_ASSIGN_OR_RETURN(const api::AcceleratorClass of_class, api::accelerator_class_from_json(*accelerator));
    WINDLASS_ASSIGN_OR_RETURN(const planner::ModelShape shape, controller::model_shape_of(parsed.spec));
    FakePodOptions options;
    options.name = worker.name;
    options.served_name = parsed.served_name();
    const std::size_t colon = worker.address.rfind(':');
    options.address = worker.address.substr(0, colon);
    options.port = std::stoi(worker.address.substr(colon + 1));
    if (options.address.rfind("127.", 0) != 0) {
      return Error{ErrorCode::kInvalidArgument, fmt::format("its address must be in 127.0.0.0/8 (got {})", options.address)};
    }
    options.engine.times = planner::linear_coefficients(shape, controller::to_planner(of_class, {}).spec, worker.gpus,
                                                        planner::EngineType::kWindlass);
    options.engine.max_concurrency = worker.max_concurrency;
    return options;
  }

  boost::asio::io_context& io_;
  kube::Reflector pods_;
  kube::Reflector services_;
  kube::Reflector classes_;
  struct Running {
    std::string uid;
    std::string address;
    std::shared_ptr<FakePod> pod;
  };
  kube::ParsedObjects<std::optional<controller::Worker>> workers_;
  std::map<std::string, Running> running_;  // by the pod's namespace and name
  std::set<std::string> waiting_;           // UIDs of pods with an address that do not answer there yet
};

Result<void> run(const std::string& kubeconfig) {
  kube::KubeconfigOptions where;
  where.files = {kubeconfig};
  WINDLASS_ASSIGN_OR_RETURN(kube::ClusterConfig config, kube::load_kubeconfig(where));
  kube::ClusterOptions options;
  options.client.user_agent = "windlass-fake-worker";
  WINDLASS_ASSIGN_OR_RETURN(const auto cluster, kube::Cluster::connect(std::move(config), std::move(options)));
  boost::asio::io_context io(1);
  FakeWorkers workers(io, cluster->client());
  boost::asio::signal_set signals(io, SIGTERM, SIGINT);
  signals.async_wait([&](const boost::system::error_code&, int) { io.stop(); });
  boost::asio::steady_timer timer(io);
  std::string told;
  int looks = 0;
  std::function<void()> look = [&] {
    workers.look(std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count());
    if (++looks % 50 == 0) {
      if (std::string text = workers.counts().dump(); text != told) {
        fmt::print("{}\n", text);
        std::fflush(stdout);
        told = std::move(text);
      }
    }
    timer.expires_after(kLookEvery);
    timer.async_wait([&](const boost::system::error_code& error) {
      if (!error) look();
    });
  };
  look();
  io.run();
  return {};
}

}  // namespace
}  // namespace windlass::testing

int main(int argc, char** argv) {
  std::string kubeconfig;
  CLI::App app{"Answers for every worker pod of a cluster that KWOK simulates"};
  app.add_option("--kubeconfig", kubeconfig, "kubeconfig with the API server and the credentials")->required();
  CLI11_PARSE(app, argc, argv);
  // One listening socket per pod and one connection per request.
  rlimit files{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  ::setrlimit(RLIMIT_NOFILE, &files);
  const auto result = windlass::testing::run(kubeconfig);
  if (!result.ok()) fmt::print(stderr, "windlass-fake-worker: {}\n", result.error().message);
  return result.ok() ? 0 : 1;
}
