// How Windlass' own work grows with the cluster: one global decision (make_plan), the controller's whole step and parts of it,
// and a gateway's handling of the routing table, at up to 1,000 ModelServices and 10,000 pods.
//
// The real controller (store, runtime, reconcile, planner) runs in this process against the fake API server, with metrics pages
// like those of a gateway and workers. So the figures are the controller's CPU time without network, except for read_workers,
// which asks a server on this machine. `scripts/bench scale` measures the same size on a real API server with KWOK.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <boost/asio.hpp>
#include <fmt/format.h>
#include <nlohmann/json.hpp>
#include <spdlog/spdlog.h>

#include "controller/kube/credentials.h"
#include "controller/kube/curl_transport.h"
#include "controller/reconcile/controller.h"
#include "controller/runtime/kubernetes_runtime.h"
#include "controller/store/kubernetes_store.h"
#include "gateway/router.h"
#include "metrics/bundles.h"
#include "metrics/latency_bins.h"
#include "planner/dispatch/routing_table.h"
#include "planner/policy/make_plan.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::bench {
namespace {

using nlohmann::json;

constexpr const char* kNamespace = "default";
constexpr const char* kGatewayAdmin = "gateway.fake:9402";
constexpr int kGpusPerNode = 8;

struct Class {
  const char* name;
  const char* memory;
  const char* flops;
  const char* bandwidth;
  const char* price;
};
constexpr Class kClasses[] = {{"h100", "80Gi", "989T", "3350G", "3.69"},
                              {"a100", "80Gi", "312T", "2039G", "1.79"},
                              {"l40s", "48Gi", "362T", "864G", "0.86"}};

// No link between GPUs: a worker is one GPU, so that the arguments determine the number of pods.
json class_object(const Class& one) {
  return {{"apiVersion", "windlass.dev/v1alpha1"},
          {"kind", "AcceleratorClass"},
          {"metadata", {{"name", one.name}}},
          {"spec",
           {{"nodeSelector", {{"accelerator", one.name}}},
            {"resourceName", "nvidia.com/gpu"},
            {"memory", one.memory},
            {"peakFlopsPerSecond", {{"bf16", one.flops}}},
            {"memoryBandwidthBytesPerSecond", one.bandwidth},
            {"gpusPerNode", kGpusPerNode},
            {"pricePerHour", one.price},
            {"capacity", {{"mode", "Observed"}}}}}};
}

json node_object(const std::string& name, const std::string& accelerator) {
  return {{"apiVersion", "v1"},
          {"kind", "Node"},
          {"metadata", {{"name", name}, {"labels", {{"accelerator", accelerator}}}}},
          {"status",
           {{"allocatable", {{"nvidia.com/gpu", std::to_string(kGpusPerNode)}}},
            {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
}

json service_object(int index, int workers) {
  const std::string name = fmt::format("svc-{:04}", index);
  return {{"apiVersion", "windlass.dev/v1alpha1"},
          {"kind", "ModelService"},
          {"metadata", {{"name", name}, {"namespace", kNamespace}}},
          {"spec",
           {{"model", {{"servedName", name}, {"uri", "pvc://models/llama"}, {"architecture", "llama3-8b"}}},
            {"slo", {{"timeToFirstToken", "2s"}, {"timePerOutputToken", "80ms"}, {"percentile", 95}, {"window", "2m"}}},
            {"workload", {{"requestsPerSecond", 1}, {"inputTokens", 1000}, {"outputTokens", 200}}},
            {"accelerators", {{{"class", kClasses[index % 3].name}}, {{"class", kClasses[(index + 1) % 3].name}}}},
            {"scaling", {{"strategy", "Replicated"}, {"minWorkers", workers}, {"maxWorkers", 2 * workers}}}}}};
}

// Metrics pages, printed by the same registries as in the gateway and the workers.
class Pages final : public kube::HttpTransport {
 public:
  std::string gateway, latencies, worker;

  Result<kube::HttpResponse> send(const kube::HttpRequest& request) override {
    if (request.url.find(kGatewayAdmin) == std::string::npos) return kube::HttpResponse{200, {}, worker};
    return kube::HttpResponse{200, {}, request.url.ends_with("/latencies") ? latencies : gateway};
  }
  Result<std::unique_ptr<kube::HttpStream>> stream(const kube::HttpRequest&) override {
    return Error{ErrorCode::kUnavailable, "pages are no streams"};
  }
};

class World {
 public:
  World(int services, int workers_each) : services_(services), workers_each_(workers_each), wire_(api_.connect("controller")) {
    spdlog::set_level(spdlog::level::err);
    for (const Class& one : kClasses) api_.seed_object(class_object(one));
    // Each class has room for all services: the planner chooses the class of each service.
    const int nodes = 3 * (services * workers_each / kGpusPerNode + 2);
    for (int i = 0; i < nodes; ++i) api_.seed_object(node_object(fmt::format("node-{:05}", i), kClasses[i % 3].name));
    for (int i = 0; i < services; ++i) api_.seed_object(service_object(i, workers_each));
    credentials_ = kube::no_credentials();
    kube::KubeClientOptions client;
    client.wall_clock = [this] { return api_.wall_now(); };
    client_ = std::make_unique<kube::KubeClient>(*wire_, api_.url(), *credentials_, client);
    store_ = std::make_unique<controller::KubernetesStore>(*client_, "bench", 1);
    runtime_ =
        std::make_unique<controller::KubernetesRuntime>(*client_, controller::PodDefaults{"windlass-worker:bench", ""}, 2);
    metrics_ = std::make_unique<metrics::ControllerMetrics>(registry_);
    fill_pages();
    controller::ControllerOptions options;
    options.scrape_period_s = 0;  // every step reads all pages
    core_ = std::make_unique<controller::Controller>(*store_, *runtime_, leader_, pages_, publisher_, *metrics_, options);
    settle();
  }

  void step() {
    now_s_ += 1;
    api_.set_now(now_s_);
    wire_->clear_log();
    (void)publisher_.ask("gateway-0", kGatewayAdmin, version_, now_s_);
    (void)core_->step({api_.wall_now(), now_s_});
  }

  // Binds all pods and makes them ready until the wanted number runs.
  void settle() {
    for (int round = 0; round < 100; ++round) {
      step();
      int running = 0, made = 0;
      for (const json& pod : api_.pods()) {
        const std::string name = pod["metadata"]["name"];
        if (pod.contains("status") && pod["status"].value("phase", "") == "Running") {
          ++running;
          continue;
        }
        const std::string accelerator = pod["spec"]["nodeSelector"].value("accelerator", kClasses[0].name);
        const auto wanted =
            std::find_if(std::begin(kClasses), std::end(kClasses), [&](const Class& c) { return accelerator == c.name; });
        const int residue = static_cast<int>(wanted - std::begin(kClasses));
        const int node = used_[accelerator]++ / kGpusPerNode * 3 + residue;
        api_.kubelet_set(kNamespace, name,
                         {.phase = "Running",
                          .ready = true,
                          .pod_ip = fmt::format("10.{}.{}.{}", next_ip_ / 65536, next_ip_ / 256 % 256, next_ip_ % 256),
                          .node = fmt::format("node-{:05}", node)});
        ++next_ip_;
        ++made;
      }
      if (made == 0 && running >= services_ * workers_each_) break;
    }
    if (static_cast<int>(runtime_->workers().size()) < services_ * workers_each_) {
      fmt::print(stderr, "scale_benchmark: got {} of {} workers\n", runtime_->workers().size(), services_ * workers_each_);
      for (const planner::Denied& one : core_->last_plan()->denied) fmt::print(stderr, "{}: {}\n", one.id.name, one.message);
      std::exit(1);
    }
    // Statuses are written and their watch events read.
    for (int i = 0; i < 5; ++i) step();
  }

  [[nodiscard]] const planner::Snapshot& snapshot() const { return *core_->last_snapshot(); }
  [[nodiscard]] std::vector<controller::Worker> workers() const { return runtime_->workers(); }
  [[nodiscard]] std::map<std::string, controller::GpuCapacity> capacity() const {
    std::vector<controller::ClassSelector> selectors;
    for (const api::AcceleratorClass& one : store_->accelerator_classes()) {
      selectors.push_back({one.metadata.name, one.spec.resource_name, one.spec.node_selector});
    }
    return runtime_->capacity(selectors);
  }

 private:
  void fill_pages() {
    metrics::Registry gateway;
    metrics::GatewayMetrics of_gateway(gateway);
    metrics::LatencyBins bins;  // as many bins as latencies from 50 ms to 1 s fill
    for (double seconds = 0.05; seconds < 1; seconds *= 1.04) bins.observe(seconds);
    for (int i = 0; i < services_; ++i) {
      const std::string model = fmt::format("svc-{:04}", i);
      const metrics::Labels label = {{"model", model}};
      of_gateway.requests_started.with(label).add(100);
      of_gateway.requests_finished.with({{"model", model}, {"code", "200"}}).add(100);
      of_gateway.requests_attained.with(label).add(99);
      of_gateway.requests_judged.with(label).add(100);
      of_gateway.queue_length.with(label).set(0);
      of_gateway.queue_wait.with(label).observe(0.01);
      of_gateway.time_to_first_token.with(label).observe(0.2);
      of_gateway.time_per_output_token.with(label).observe(0.03);
      for (const auto& latency : {metrics::kGatewayTtft, metrics::kGatewayTpot}) bins.write(pages_.latencies, latency, model);
      of_gateway.request_prompt_tokens.with(label).add(100000);
      of_gateway.request_generation_tokens.with(label).add(20000);
      of_gateway.requests_measured.with(label).add(100);
      for (int k = 0; k < workers_each_; ++k) {
        of_gateway.requests_in_flight.with({{"model", model}, {"chain", fmt::format("{}/{}-{}", kNamespace, model, k)}}).set(1);
      }
    }
    pages_.gateway = gateway.exposition();
    metrics::Registry worker;
    metrics::WorkerMetrics of_worker(worker, "llama");
    of_worker.requests_running.set(1);
    of_worker.time_to_first_token.observe(0.2);
    of_worker.time_per_output_token.observe(0.03);
    of_worker.e2e_request_latency.observe(1);
    pages_.worker = worker.exposition();
  }

  int services_;
  int workers_each_;
  fakes::FakeApiServer api_{{.seed = 1, .history = 1'000'000}};
  std::unique_ptr<fakes::FakeConnection> wire_;
  std::unique_ptr<kube::CredentialSource> credentials_;
  std::unique_ptr<kube::KubeClient> client_;
  std::unique_ptr<controller::KubernetesStore> store_;
  std::unique_ptr<controller::KubernetesRuntime> runtime_;
  metrics::Registry registry_;
  std::unique_ptr<metrics::ControllerMetrics> metrics_;
  controller::SoleLeader leader_{1};
  controller::RoutingPublisher publisher_;
  Pages pages_;
  std::unique_ptr<controller::Controller> core_;
  dispatch::TableVersion version_;
  std::map<std::string, int> used_;
  double now_s_ = 0;
  int next_ip_ = 1;
};

// One world at a time: the largest takes hundreds of megabytes.
World& world(const benchmark::State& state) {
  static std::unique_ptr<World> current;
  static std::pair<int, int> size;
  const std::pair<int, int> wanted{static_cast<int>(state.range(0)), static_cast<int>(state.range(1))};
  if (!current || size != wanted) {
    current.reset();
    current = std::make_unique<World>(wanted.first, wanted.second);
    size = wanted;
  }
  return *current;
}

void make_plan(benchmark::State& state) {
  const World& one = world(state);
  for (auto _ : state) benchmark::DoNotOptimize(planner::make_plan(one.snapshot()));
}

// Copies of everything in the snapshot, each under its own name and with its own GPUs.
planner::Snapshot times_as_large(const planner::Snapshot& one, int times) {
  planner::Snapshot all = one;
  all.nodes.clear();
  all.services.clear();
  for (planner::AcceleratorState& state : all.accelerators) state.allocatable_gpus *= times;
  for (int i = 0; i < times; ++i) {
    const std::string suffix = fmt::format("-{}", i);
    for (planner::NodeState node : one.nodes) {
      node.name += suffix;
      all.nodes.push_back(std::move(node));
    }
    for (planner::Service service : one.services) {
      for (std::string* name : {&service.id.name, &service.id.uid, &service.served_name}) *name += suffix;
      for (planner::Worker& worker : service.workers) {
        worker.name += suffix;
        worker.node += suffix;
      }
      all.services.push_back(std::move(service));
    }
  }
  return all;
}
void make_large_plan(benchmark::State& state) {
  constexpr int kTimes = 10;
  const planner::Snapshot snapshot = times_as_large(world(state).snapshot(), kTimes);
  state.SetLabel(fmt::format("{} services, {} workers", snapshot.services.size(), kTimes * world(state).workers().size()));
  for (auto _ : state) benchmark::DoNotOptimize(planner::make_plan(snapshot));
}
void step(benchmark::State& state) {
  World& one = world(state);
  for (auto _ : state) one.step();
}
void workers(benchmark::State& state) {
  const World& one = world(state);
  for (auto _ : state) benchmark::DoNotOptimize(one.workers());
}
void capacity(benchmark::State& state) {
  const World& one = world(state);
  for (auto _ : state) benchmark::DoNotOptimize(one.capacity());
}
// A gateway's work with a table of this many chains: parsing its text on a separate thread, and applying it between two pieces
// of its streams.
dispatch::RoutingTable table_of(int services, int workers_each) {
  dispatch::RoutingTable table;
  for (int i = 0; i < services; ++i) {
    dispatch::ModelRoute route;
    route.name_space = kNamespace;
    route.served_name = route.service = fmt::format("svc-{:04}", i);
    route.ttft_slo_s = 2;
    route.tpot_slo_s = 0.08;
    route.max_queued = 1024;
    for (int k = 0; k < workers_each; ++k) {
      route.chains.push_back({fmt::format("{}/{}-h100-1-{:05}", kNamespace, route.service, k),
                              {fmt::format("10.{}.{}.{}:8000", i / 256, i % 256, k)},
                              dispatch::Role::kUnified,
                              0.5,
                              16,
                              false});
    }
    table.models.push_back(std::move(route));
  }
  return table;
}
void read_table(benchmark::State& state) {
  const std::string text = dispatch::to_json(table_of(static_cast<int>(state.range(0)), static_cast<int>(state.range(1))));
  for (auto _ : state) benchmark::DoNotOptimize(dispatch::routing_table_from_json(text));
}
void obey_table(benchmark::State& state) {
  dispatch::RoutingTable table = table_of(static_cast<int>(state.range(0)), static_cast<int>(state.range(1)));
  gateway::Router router({});
  for (auto _ : state) {
    state.PauseTiming();
    ++table.version.counter;
    dispatch::RoutingTable next = table;
    state.ResumeTiming();
    benchmark::DoNotOptimize(router.table_changed(static_cast<double>(table.version.counter), std::move(next)));
  }
}

// Serves the same page on every address of this machine, on its own thread.
class PageServer {
 public:
  PageServer() : acceptor_(io_, {boost::asio::ip::address_v4::any(), 0}) {
    boost::asio::co_spawn(io_, accept(), boost::asio::detached);
    thread_ = std::thread([this] { io_.run(); });
  }
  ~PageServer() {
    io_.stop();
    thread_.join();
  }
  [[nodiscard]] int port() const { return acceptor_.local_endpoint().port(); }

 private:
  using Socket = boost::asio::ip::tcp::socket;

  boost::asio::awaitable<void> accept() {
    while (true) {
      Socket socket = co_await acceptor_.async_accept(boost::asio::use_awaitable);
      boost::asio::co_spawn(io_, serve(std::move(socket)), boost::asio::detached);
    }
  }
  static boost::asio::awaitable<void> serve(Socket socket) {
    const std::string page(3000, '#');
    const std::string answer = fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", page.size(), page);
    std::string asked;
    boost::system::error_code gone;
    const auto to = [&gone] { return boost::asio::redirect_error(boost::asio::use_awaitable, gone); };
    while (!gone) {
      const auto n = co_await boost::asio::async_read_until(socket, boost::asio::dynamic_buffer(asked), "\r\n\r\n", to());
      asked.erase(0, n);
      if (!gone) co_await boost::asio::async_write(socket, boost::asio::buffer(answer), to());
    }
  }

  boost::asio::io_context io_;
  boost::asio::ip::tcp::acceptor acceptor_;
  std::thread thread_;
};

// The controller's side of reading the pages of 1,000 workers, in turn.
void read_workers(benchmark::State& state) {
  constexpr int kAtOnce = 1000;
  PageServer server;
  kube::CurlTransport transport{kube::CurlOptions{}};
  int next = 0;
  for (auto _ : state) {
    std::vector<kube::HttpRequest> requests(kAtOnce);
    for (kube::HttpRequest& request : requests) {
      request.url = fmt::format("http://127.64.{}.{}:{}/metrics", next / 250, next % 250 + 1, server.port());
      next = (next + 1) % static_cast<int>(state.range(0));
    }
    for (const auto& answer : transport.send_all(requests)) {
      if (!answer.ok()) state.SkipWithError(answer.error().message.c_str());
    }
  }
}

void register_all() {
  const std::pair<const char*, void (*)(benchmark::State&)> all[] = {
      {"make_plan", make_plan}, {"step", step}, {"workers", workers}, {"capacity", capacity}};
  // Ordered by size, so that each world is built once.
  for (const auto& [services, workers_each] : {std::pair{10, 10}, {100, 10}, {300, 10}, {1000, 10}}) {
    for (const auto& [name, function] : all) {
      benchmark::RegisterBenchmark(name, function)
          ->ArgNames({"services", "workersEach"})
          ->Args({services, workers_each})
          ->Unit(benchmark::kMillisecond);
    }
  }
  // The fake API server would take gigabytes for 50,000 pods, so only the plan has that size.
  benchmark::RegisterBenchmark("make_plan_ten_times", make_large_plan)
      ->ArgNames({"services", "workersEach"})
      ->Args({1000, 5})
      ->Unit(benchmark::kMillisecond);
  for (const int workers : {1000, 10'000}) {
    benchmark::RegisterBenchmark("read_workers", read_workers)->ArgName("workers")->Arg(workers)->Unit(benchmark::kMillisecond);
  }
  const std::pair<const char*, void (*)(benchmark::State&)> of_tables[] = {{"read_table", read_table},
                                                                           {"obey_table", obey_table}};
  for (const auto& [services, workers_each] : {std::pair{1000, 10}, {1, 10'000}}) {
    for (const auto& [name, function] : of_tables) {
      benchmark::RegisterBenchmark(name, function)
          ->ArgNames({"services", "workersEach"})
          ->Args({services, workers_each})
          ->Unit(benchmark::kMillisecond);
    }
  }
}

}  // namespace
}  // namespace windlass::bench

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  windlass::bench::register_all();
  benchmark::RunSpecifiedBenchmarks();
  return 0;
}
