// Implements kwok_cluster.h.
#include "tests/cluster/kwok/kwok_cluster.h"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <sstream>

#include <fmt/format.h>

#include "tests/cluster/harness/network.h"
#include "tests/cluster/harness/wait.h"
#include "tests/free_port.h"
#include "tests/paths.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr const char* kSystemNamespace = "windlass-system";

struct SimulatedClass {
  const char* memory;
  double flops;      // of one GPU
  double bandwidth;  // bytes per second
  const char* price;
};

// A twentieth of the data sheets' figures for an H100, an A100 and an L40S: the trace has five requests per second. Spread over
// fifty services, they would leave one real GPU for each of them idle.
constexpr double kShare = 1.0 / 20;
constexpr std::array<SimulatedClass, 3> kFigures = {{{"80Gi", 989e12 * kShare, 3350e9 * kShare, "3.69"},
                                                     {"80Gi", 312e12 * kShare, 2039e9 * kShare, "1.79"},
                                                     {"48Gi", 362e12 * kShare, 864e9 * kShare, "0.86"}}};

void replace_all(std::string& text, const std::string& from, const std::string& to) {
  for (auto at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size()))
    text.replace(at, from.size(), to);
}

std::string services_path(const std::string& name_space) {
  return fmt::format("/apis/windlass.dev/v1alpha1/namespaces/{}/modelservices", name_space);
}

std::string quantity(double value) { return fmt::format("{:.3f}G", value / 1e9); }

Result<void> succeeded(const CommandResult& result) {
  return result.ok() ? Result<void>() : Result<void>(Error{ErrorCode::kUnavailable, result.describe()});
}

Result<void> created(const HttpAnswer& answer, const std::string& what) {
  if (answer.status == 201) return {};
  return Error{ErrorCode::kUnavailable, fmt::format("creating {}: {}", what, answer.describe())};
}

}  // namespace

bool Program::leads() const {
  const Sample leader = sample(http_get(url + "/metrics").body, "windlass_controller_leader");
  return leader.found && leader.value == 1;
}

Result<void> KwokCluster::available() {
  WINDLASS_ASSIGN_OR_RETURN(const std::string tools, find_cluster_tools());
  if (!std::filesystem::exists(tools + "/kwok")) {
    return Error{ErrorCode::kNotFound,
                 fmt::format("{} has no kwok: run tests/cluster/tools/build without KUBEBUILDER_ASSETS", tools)};
  }
  return {};
}

Result<std::unique_ptr<KwokCluster>> KwokCluster::start(const KwokOptions& options) {
  WINDLASS_RETURN_IF_ERROR(available());
  std::unique_ptr<KwokCluster> cluster(new KwokCluster(options));
  WINDLASS_ASSIGN_OR_RETURN(cluster->plane_, ControlPlane::start());
  ControlPlane& plane = *cluster->plane_;
  WINDLASS_RETURN_IF_ERROR(cluster->install());
  std::string stages = read_text_file(source_path("/tests/cluster/kwok/stages.yaml"));
  replace_all(stages, "@START_MIN_MS@", fmt::format("{:.0f}", options.start_min_s * 1e3));
  replace_all(stages, "@START_SPREAD_MS@", fmt::format("{:.0f}", std::max(1.0, options.start_spread_s * 1e3)));
  replace_all(stages, "@END_MS@", fmt::format("{:.0f}", 6e3 / options.acceleration));
  replace_all(stages, "@SEED@", std::to_string(options.seed));
  write_text_file(plane.folder() + "/stages.yaml", stages);
  WINDLASS_ASSIGN_OR_RETURN(const std::string tools, find_cluster_tools());
  WINDLASS_ASSIGN_OR_RETURN(cluster->kwok_,
                            cluster->launch("kwok", {tools + "/kwok", "--kubeconfig=" + plane.kubeconfig(),
                                                     "--config=" + plane.folder() + "/stages.yaml", "--manage-all-nodes=true",
                                                     "--node-lease-duration-seconds=40", "--node-ip=127.0.0.1",
                                                     "--cidr=127.127.0.0/16", "--v=WARN"}));
  WINDLASS_RETURN_IF_ERROR(cluster->create_classes());
  WINDLASS_RETURN_IF_ERROR(cluster->create_nodes());
  if (options.answer) {
    WINDLASS_ASSIGN_OR_RETURN(
        cluster->fake_worker_,
        cluster->launch("fake-worker", {build_path("/windlass-fake-worker"), "--kubeconfig=" + plane.kubeconfig()},
                        plane.folder() + "/fake-worker.jsonl"));
  }
  return cluster;
}

KwokCluster::~KwokCluster() {
  fake_worker_.reset();
  if (kwok_) kwok_->signal(SIGKILL);
  kwok_.reset();
}

Result<std::unique_ptr<Process>> KwokCluster::launch(const std::string& name, std::vector<std::string> argv,
                                                     const std::string& stdout_path) {
  ProcessOptions options;
  options.argv = std::move(argv);
  options.log_path = log_of(name);
  options.stdout_path = stdout_path;
  if (std::find(logs_.begin(), logs_.end(), name) == logs_.end()) logs_.push_back(name);
  return Process::start(options);
}

// Installs the CRDs and charts/windlass without its Deployments: its programs run as processes of this machine.
Result<void> KwokCluster::install() {
  const CommandResult crds = plane_->helm({"template", "windlass-crds", source_path("/charts/windlass-crds")});
  WINDLASS_RETURN_IF_ERROR(succeeded(crds));
  WINDLASS_RETURN_IF_ERROR(succeeded(plane_->kubectl({"apply", "--server-side", "-f", "-"}, crds.out)));
  WINDLASS_RETURN_IF_ERROR(
      succeeded(plane_->kubectl({"wait", "--for=condition=Established", "--timeout=240s", "crd", "--all"})));
  WINDLASS_RETURN_IF_ERROR(succeeded(plane_->kubectl({"create", "namespace", kSystemNamespace})));
  const CommandResult chart =
      plane_->helm({"template", "--kube-version=1.34", "windlass", source_path("/charts/windlass"), "--namespace",
                    kSystemNamespace, "--set", "image.registry=registry.example,security.create=always"});
  WINDLASS_RETURN_IF_ERROR(succeeded(chart));
  std::string wanted, document;
  std::stringstream lines(chart.out + "\n---\n");
  for (std::string line; std::getline(lines, line);) {
    if (line != "---") {
      document += line + "\n";
      continue;
    }
    // Only the controller's account and rights: the tests bring their own classes.
    for (const char* kind : {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "Secret"}) {
      if (document.find(fmt::format("\nkind: {}\n", kind)) != std::string::npos) wanted += "---\n" + document;
    }
    document.clear();
  }
  WINDLASS_RETURN_IF_ERROR(succeeded(plane_->kubectl({"apply", "--server-side", "-n", kSystemNamespace, "-f", "-"}, wanted)));
  for (const json& account : plane_->list(fmt::format("/api/v1/namespaces/{}/serviceaccounts", kSystemNamespace))) {
    const std::string name = account["metadata"].value("name", "");
    if (name.find("controller") != std::string::npos) account_ = name;
  }
  if (account_.empty()) return Error{ErrorCode::kNotFound, "charts/windlass has no ServiceAccount for the controller"};
  return {};
}

Result<void> KwokCluster::create_classes() {
  for (std::size_t i = 0; i < kSimulatedClasses.size(); ++i) {
    const SimulatedClass& figures = kFigures[i];
    json spec = {{"nodeSelector", {{"windlass.dev/accelerator", kSimulatedClasses[i]}}},
                 {"resourceName", kSimulatedGpu},
                 {"memory", figures.memory},
                 {"peakFlopsPerSecond", {{"bf16", quantity(figures.flops * options_.acceleration)}}},
                 {"memoryBandwidthBytesPerSecond", quantity(figures.bandwidth * options_.acceleration)},
                 {"gpusPerNode", options_.gpus_per_node},
                 {"pricePerHour", figures.price}};
    if (options_.links) {
      spec["intraNodeLink"] = {{"bandwidthBytesPerSecond", quantity(300e9 * kShare * options_.acceleration)},
                               {"latencyMicroseconds", 5}};
    }
    const json object = {{"apiVersion", "windlass.dev/v1alpha1"},
                         {"kind", "AcceleratorClass"},
                         {"metadata", {{"name", kSimulatedClasses[i]}}},
                         {"spec", spec}};
    WINDLASS_RETURN_IF_ERROR(created(plane_->send("POST", "/apis/windlass.dev/v1alpha1/acceleratorclasses", object),
                                     fmt::format("AcceleratorClass {}", kSimulatedClasses[i])));
  }
  return {};
}

Result<void> KwokCluster::create_nodes() {
  const int network = claim_networks((options_.nodes + 255) / 256);
  json list = {{"apiVersion", "v1"}, {"kind", "List"}, {"items", json::array()}};
  for (int i = 0; i < options_.nodes; ++i) {
    const std::string name = fmt::format("node-{:04}", i);
    const json resources = {{"cpu", "256"},
                            {"memory", "2Ti"},
                            {"ephemeral-storage", "8Ti"},
                            {"pods", std::to_string(options_.pods_per_node)},
                            {kSimulatedGpu, std::to_string(options_.gpus_per_node)}};
    list["items"].push_back({{"apiVersion", "v1"},
                             {"kind", "Node"},
                             {"metadata",
                              {{"name", name},
                               {"annotations", {{"kwok.x-k8s.io/node", "fake"}}},
                               {"labels",
                                {{"windlass.dev/accelerator", kSimulatedClasses[static_cast<std::size_t>(i) % 3]},
                                 {"kubernetes.io/hostname", name},
                                 {"kubernetes.io/os", "linux"}}}}},
                             {"spec", {{"podCIDR", fmt::format("127.{}.{}.0/24", network + i / 256, i % 256)}}},
                             {"status", {{"allocatable", resources}, {"capacity", resources}}}});
  }
  WINDLASS_RETURN_IF_ERROR(succeeded(plane_->kubectl({"create", "-f", "-"}, list.dump())));
  const bool ready = eventually(kPatience, [&] {
    const auto nodes = plane_->list("/api/v1/nodes");
    return static_cast<int>(nodes.size()) == options_.nodes && std::all_of(nodes.begin(), nodes.end(), [](const json& node) {
             for (const json& condition : node["status"].value("conditions", json::array())) {
               if (condition.value("type", "") == "Ready") return condition.value("status", "") == "True";
             }
             return false;
           });
  });
  if (!ready) return Error{ErrorCode::kUnavailable, "KWOK's nodes did not become ready\n" + tails()};
  return {};
}

Result<void> KwokCluster::create_namespaces(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const json object = {{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", name}}}};
    WINDLASS_RETURN_IF_ERROR(created(plane_->send("POST", "/api/v1/namespaces", object), "namespace " + name));
  }
  // The controller manager creates each namespace's ServiceAccount; pods are refused without it.
  for (const std::string& name : names) {
    const std::string account = fmt::format("/api/v1/namespaces/{}/serviceaccounts/default", name);
    if (!eventually(kPatience, [&] { return plane_->get(account).status == 200; })) {
      return Error{ErrorCode::kUnavailable, fmt::format("namespace {} got no service account\n{}", name, tails())};
    }
  }
  return {};
}

Result<void> KwokCluster::create_service(const std::string& name, const json& spec, const std::string& name_space) {
  json whole = {{"model", {{"servedName", name}, {"uri", "hf://simulated/" + name}, {"architecture", "llama3-8b"}}}};
  whole.merge_patch(spec);
  const json object = {{"apiVersion", "windlass.dev/v1alpha1"},
                       {"kind", "ModelService"},
                       {"metadata", {{"name", name}, {"namespace", name_space}}},
                       {"spec", whole}};
  return created(plane_->send("POST", services_path(name_space), object), "ModelService " + name);
}

std::vector<json> KwokCluster::services() const { return plane_->list(services_path("default")); }

std::vector<json> KwokCluster::workers() const {
  std::vector<json> all = plane_->list("/api/v1/namespaces/default/pods?labelSelector=app.kubernetes.io%2Fcomponent%3Dworker");
  std::erase_if(all, [](const json& pod) { return pod["metadata"].contains("deletionTimestamp"); });
  return all;
}

Result<Program> KwokCluster::start_controller(const std::string& name, const std::vector<std::string>& more) {
  WINDLASS_ASSIGN_OR_RETURN(const std::string token, plane_->token(kSystemNamespace, account_));
  const int port = free_port();
  Program program;
  program.name = name;
  program.url = fmt::format("http://127.0.0.1:{}", port);
  program.credential = credential_of(token);
  std::vector<std::string> argv = {build_path("/windlass-controller"),
                                   "--store=kubernetes",
                                   "--runtime=kubernetes",
                                   fmt::format("--listen=127.0.0.1:{}", port),
                                   "--kubeconfig=" + plane_->write_kubeconfig(name, token),
                                   fmt::format("--namespace={}", kSystemNamespace),
                                   "--identity=" + name,
                                   "--plain-names=*",
                                   "--worker-image=windlass-worker:simulated",
                                   "--fetch-image=fetch:simulated"};
  argv.insert(argv.end(), more.begin(), more.end());
  WINDLASS_ASSIGN_OR_RETURN(program.process, launch(name, std::move(argv)));
  if (!eventually(kPatience, [&] { return http_get(program.url + "/healthz").status == 200; })) {
    return Error{ErrorCode::kUnavailable, name + " does not answer\n" + tail_of_file(log_of(name), 20)};
  }
  return program;
}

Result<Program> KwokCluster::start_gateway(const std::string& name, const std::vector<const Program*>& controllers,
                                           const std::vector<std::string>& more) {
  const int port = free_port();
  const int admin_port = free_port();
  Program program;
  program.name = name;
  program.url = fmt::format("http://127.0.0.1:{}", port);
  program.admin_url = fmt::format("http://127.0.0.1:{}", admin_port);
  std::vector<std::string> argv = {build_path("/windlass-gateway"), fmt::format("--listen=127.0.0.1:{}", port),
                                   fmt::format("--admin-listen=127.0.0.1:{}", admin_port), "--id=" + name};
  for (const Program* controller : controllers) argv.push_back("--controller=" + controller->url);
  argv.insert(argv.end(), more.begin(), more.end());
  WINDLASS_ASSIGN_OR_RETURN(program.process, launch(name, std::move(argv)));
  if (!eventually(kPatience, [&] { return http_get(program.admin_url + "/health").status == 200; })) {
    return Error{ErrorCode::kUnavailable, name + " does not answer\n" + tail_of_file(log_of(name), 20)};
  }
  return program;
}

std::int64_t KwokCluster::of_fake_workers(const char* count) const {
  const json last = json::parse(tail_of_file(plane_->folder() + "/fake-worker.jsonl", 1), nullptr, false);
  return last.is_object() ? last.value(count, std::int64_t{0}) : 0;
}

std::string KwokCluster::tails() const {
  std::string text = plane_->tails();
  for (const std::string& name : logs_) text += fmt::format("--- {}\n{}\n", name, tail_of_file(log_of(name), 25));
  return text;
}

}  // namespace windlass::testing
