// Implements local_system.h.
#include "tests/cluster/harness/local_system.h"

#include <filesystem>

#include <fmt/format.h>

#include "tests/cluster/harness/http.h"
#include "tests/cluster/harness/wait.h"
#include "tests/free_port.h"

namespace windlass::testing {
namespace {

using nlohmann::json;
using std::chrono::seconds;

constexpr const char* kAcceleratorClass = R"yaml(
apiVersion: windlass.dev/v1alpha1
kind: AcceleratorClass
metadata: {name: local-cpu}
spec:
  resourceName: windlass.dev/cpu
  memory: 1Gi
  memoryBandwidthBytesPerSecond: 10G
  peakFlopsPerSecond: {fp32: 20G}
  gpusPerNode: 1
)yaml";

std::string free_address() { return fmt::format("127.0.0.1:{}", free_port()); }

}  // namespace

LocalSystem::LocalSystem(std::string programs)
    : folder_("windlass-local-"),
      programs_(std::move(programs)),
      controller_(free_address()),
      gateway_(free_address()),
      gateway_admin_(free_address()) {}

Result<std::unique_ptr<LocalSystem>> LocalSystem::make(const std::string& programs) {
  std::unique_ptr<LocalSystem> system(new LocalSystem(programs));
  const CommandResult made = run_command({programs + "/windlass-worker", "model", "init", "--layers", "2", "--hidden", "64",
                                          "--heads", "4", "--kv-heads", "2", "--intermediate", "128", system->file("tiny")});
  if (!made.ok()) return Error{ErrorCode::kInternal, "windlass-worker model init: " + made.describe()};
  std::filesystem::create_directories(system->file("store/objects"));
  write_text_file(system->file("store/objects/class.yaml"), kAcceleratorClass);
  return system;
}

json LocalSystem::model_service(int min_workers, int max_workers) const {
  return {{"apiVersion", "windlass.dev/v1alpha1"},
          {"kind", "ModelService"},
          {"metadata", {{"name", "tiny"}, {"namespace", "default"}}},
          {"spec",
           {{"model",
             {{"servedName", "tiny"},
              {"uri", "file://" + file("tiny")},
              {"config", {{"inline", json::parse(read_text_file(file("tiny/config.json")))}}},
              {"maxContextTokens", 256},
              {"dtype", "FP32"}}},
            {"slo", {{"timeToFirstToken", "5s"}, {"timePerOutputToken", "500ms"}}},
            {"workload", {{"inputTokens", 32}, {"outputTokens", 16}}},
            {"scaling",
             {{"minWorkers", min_workers},
              {"maxWorkers", max_workers},
              {"drainTimeout", "1m"},
              {"behavior", {{"scaleDown", {{"stabilizationWindow", "1s"}}}}}}}}}};
}

// Write a temporary file and rename it, so that the controller never reads half of it.
void LocalSystem::write_service(const json& object) const {
  write_text_file(file("tiny.yaml.new"), object.dump(2));
  std::filesystem::rename(file("tiny.yaml.new"), file("store/objects/tiny.yaml"));
}

Result<void> LocalSystem::start_program(const std::string& name, const std::vector<std::string>& argv) {
  ProcessOptions options;
  options.argv = argv;
  options.log_path = file(name + ".log");
  WINDLASS_ASSIGN_OR_RETURN(processes_[name], Process::start(options));
  return {};
}

Result<void> LocalSystem::start(int local_gpus, const std::vector<std::string>& controller_flags) {
  std::vector<std::string> controller = {programs_ + "/windlass-controller",
                                         "--store=dir:" + file("store"),
                                         "--runtime=local",
                                         "--listen=" + controller_,
                                         "--worker-binary=" + programs_ + "/windlass-worker",
                                         fmt::format("--local-gpus={}", local_gpus)};
  controller.insert(controller.end(), controller_flags.begin(), controller_flags.end());
  WINDLASS_RETURN_IF_ERROR(start_program("controller", controller));
  WINDLASS_RETURN_IF_ERROR(
      start_program("gateway", {programs_ + "/windlass-gateway", "--listen=" + gateway_, "--admin-listen=" + gateway_admin_,
                                "--controller=http://" + controller_, "--id=gw"}));
  for (const std::string& url : {"http://" + controller_ + "/healthz", "http://" + gateway_admin_ + "/ready"}) {
    if (!eventually(kPatience, [&] { return http_get(url).status == 200; })) {
      return Error{ErrorCode::kUnavailable, url + " did not answer 200" + logs()};
    }
  }
  return {};
}

json LocalSystem::routing_table() const {
  const HttpAnswer answer =
      http_get(fmt::format("http://{}/v1/routing-table?gateway=gw&admin={}&wait=0s", controller_, gateway_admin_));
  return answer.status == 200 ? answer.json() : json();
}

std::vector<std::string> LocalSystem::serving() const {
  std::vector<std::string> addresses;
  const json table = routing_table();
  if (!table.is_object()) return addresses;
  for (const json& model : table.value("models", json::array())) {
    for (const json& chain : model.value("chains", json::array())) {
      if (!chain.value("draining", false)) addresses.push_back(chain["hops"][0].get<std::string>());
    }
  }
  return addresses;
}

std::string LocalSystem::logs(int lines) const {
  std::string text;
  for (const auto& [name, process] : processes_) {
    text += fmt::format("\n--- {}\n{}", name, tail_of_file(file(name + ".log"), lines));
  }
  return text;
}

}  // namespace windlass::testing
