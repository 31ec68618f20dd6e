// Implements pod.h.
#include "tests/cluster/kubelet/pod.h"

#include <algorithm>
#include <csignal>
#include <filesystem>

#include <fmt/format.h>

namespace windlass::testing {
namespace {

using nlohmann::json;

const char* const kProbeNames[] = {"startupProbe", "readinessProbe", "livenessProbe"};

}  // namespace

Pod::Pod(json object, PodOptions options) : object_(std::move(object)), options_(std::move(options)) {
  uid_ = object_["metadata"].value("uid", "");
  const json& spec = object_["spec"];
  for (const char* kind : {"initContainers", "containers"}) {
    for (const json& container : spec.value(kind, json::array())) {
      Container entry;
      entry.spec = container;
      entry.init = kind[0] == 'i';
      containers_.push_back(std::move(entry));
    }
  }
  std::filesystem::create_directories(options_.folder);
}

bool Pod::initialised() const {
  return std::all_of(containers_.begin(), containers_.end(), [](const Container& container) {
    return !container.init || (container.state == State::kTerminated && container.exit_status == 0);
  });
}

bool Pod::all_ended() const {
  return std::none_of(containers_.begin(), containers_.end(),
                      [](const Container& container) { return container.state == State::kRunning; });
}

bool Pod::restarts_after(int exit_status) const {
  const std::string policy = object_["spec"].value("restartPolicy", "Always");
  return policy == "Always" || (policy == "OnFailure" && exit_status != 0);
}

double Pod::grace_s() const {
  const json& metadata = object_["metadata"];
  if (metadata.contains("deletionGracePeriodSeconds")) return metadata["deletionGracePeriodSeconds"].get<double>();
  return object_["spec"].value("terminationGracePeriodSeconds", 30.0);
}

void Pod::tick(double now_s, const std::string& wall) {
  if (started_at_.empty()) started_at_ = wall;
  for (Container& container : containers_) reap(container, now_s, wall);
  if (forgotten_ || object_["metadata"].contains("deletionTimestamp")) {
    end(now_s);
    return;
  }
  bool inits_done = true;
  for (Container& container : containers_) {
    if (container.init && !inits_done) break;
    if (!container.init && !initialised()) break;
    if (container.state == State::kWaiting && now_s >= container.next_start_s) start(container, now_s, wall);
    if (container.init) inits_done = container.state == State::kTerminated && container.exit_status == 0;
    if (container.kill_at_s > 0 && now_s >= container.kill_at_s && container.process) container.process->signal(SIGKILL);
  }
}

void Pod::end(double now_s) {
  if (!ending_) {
    ending_ = true;
    kill_at_s_ = now_s + grace_s();
    for (Container& container : containers_) {
      if (container.process) container.process->signal(SIGTERM);
    }
  }
  kill_at_s_ = std::min(kill_at_s_, now_s + grace_s());  // a second deletion may shorten the grace period
  if (now_s < kill_at_s_) return;
  for (Container& container : containers_) {
    if (container.process) container.process->signal(SIGKILL);
  }
}

void Pod::start(Container& container, double now_s, const std::string& wall) {
  const auto wait = [&](const char* reason, const std::string& message) {
    container.state = State::kWaiting;
    container.reason = reason;
    container.message = message;
    container.next_start_s = now_s + 1;
  };
  auto around = surroundings();
  if (!around.ok()) return wait("ContainerCreating", around.error().message);
  auto command = container_command(object_, container.spec, *around);
  if (!command.ok()) {
    return wait(command.error().code == ErrorCode::kNotFound ? "ErrImagePull" : "CreateContainerConfigError",
                command.error().message);
  }
  for (int kind = 0; kind < 3; ++kind) {
    ProbeState state;
    if (container.spec.contains(kProbeNames[kind])) {
      auto probe = parse_probe(container.spec, container.spec[kProbeNames[kind]]);
      if (!probe.ok()) return wait("CreateContainerConfigError", probe.error().message);
      state.probe = *probe;
      state.next_at_s = now_s + probe->initial_delay_s;
    }
    container.probes[kind] = state;
  }
  ProcessOptions options;
  options.argv = command->argv;
  options.env = command->env;
  options.clean_env = true;
  options.log_path = fmt::format("{}/{}.log", options_.folder, container.spec.value("name", "container"));
  options.working_dir = options_.folder;
  auto process = Process::start(options);
  if (!process.ok()) return wait("CreateContainerError", process.error().message);
  fmt::print(stderr, "kubelet: {}/{}: started container {} as process {}: {}\n", name_space(), name(),
             container.spec.value("name", ""), (*process)->pid(), fmt::join(command->argv, " "));
  if (!container.last_state.is_null()) ++container.restarts;
  container.process = std::move(process).value();
  container.state = State::kRunning;
  container.started_at = wall;
  container.message.clear();
  container.kill_at_s = 0;
  container.started = !container.probes[kStartup].probe;
  container.ready = container.started && !container.probes[kReadiness].probe;
}

void Pod::reap(Container& container, double now_s, const std::string& wall) {
  if (!container.process) return;
  const std::optional<int> status = container.process->poll();
  if (!status) return;
  fmt::print(stderr, "kubelet: {}/{}: container {} ended with status {}\n", name_space(), name(),
             container.spec.value("name", ""), *status);
  container.process.reset();
  container.exit_status = *status;
  container.finished_at = wall;
  container.started = container.ready = false;
  const json terminated = {{"exitCode", *status},
                           {"reason", *status == 0 ? "Completed" : "Error"},
                           {"startedAt", container.started_at},
                           {"finishedAt", wall}};
  const bool deleted = forgotten_ || object_["metadata"].contains("deletionTimestamp");
  if (deleted || !restarts_after(*status) || (container.init && *status == 0)) {
    container.state = State::kTerminated;
    return;
  }
  container.last_state = {{"terminated", terminated}};
  container.state = State::kWaiting;
  container.reason = "CrashLoopBackOff";
  container.message = fmt::format("back-off restarting failed container {}", container.spec.value("name", ""));
  container.backoff_s =
      container.backoff_s == 0 ? options_.crash_backoff_s : std::min(container.backoff_s * 2, options_.crash_backoff_max_s);
  container.next_start_s = now_s + container.backoff_s;
}

std::vector<Pod::ProbeCall> Pod::due_probes(double now_s) const {
  std::vector<ProbeCall> calls;
  for (std::size_t i = 0; i < containers_.size(); ++i) {
    const Container& container = containers_[i];
    if (container.state != State::kRunning || container.init) continue;
    for (const int kind : {kStartup, kReadiness, kLiveness}) {
      const ProbeState& state = container.probes[kind];
      const bool wanted =
          kind == kStartup ? !container.started && !ending_ : container.started && (kind == kReadiness || !ending_);
      if (!state.probe || !wanted || now_s < state.next_at_s) continue;
      calls.push_back(
          {i, kind, fmt::format("http://{}:{}{}", options_.ip, state.probe->port, state.probe->path), state.probe->timeout_s});
    }
  }
  return calls;
}

void Pod::take_probe(const ProbeCall& call, bool success, double now_s) {
  Container& container = containers_[call.container];
  ProbeState& state = container.probes[call.kind];
  if (!state.probe || container.state != State::kRunning) return;
  const double asked_s = state.probe->period_s;
  const double period_s = call.kind == kStartup ? std::min(asked_s, options_.startup_probe_period_s) : asked_s;
  state.next_at_s = now_s + period_s;
  state.successes = success ? state.successes + 1 : 0;
  state.failures = success ? 0 : state.failures + 1;
  const bool passed = state.successes >= state.probe->success_threshold;
  // A container probed more often still has as long to start as its spec says.
  const bool failed = state.failures * period_s >= state.probe->failure_threshold * asked_s;
  if (call.kind == kReadiness) {
    if (passed) container.ready = true;
    if (failed) container.ready = false;
    return;
  }
  if (call.kind == kStartup && passed) {
    container.started = true;
    container.ready = !container.probes[kReadiness].probe;
    for (const int kind : {kReadiness, kLiveness}) container.probes[kind].next_at_s = now_s;
  }
  if (failed && container.kill_at_s == 0) {
    fmt::print(stderr, "kubelet: {}/{}: {} failed, restarting the container\n", name_space(), name(), kProbeNames[call.kind]);
    container.process->signal(SIGTERM);
    container.kill_at_s = now_s + grace_s();
  }
}

Result<ContainerSurroundings> Pod::surroundings() {
  ContainerSurroundings result;
  result.pod_ip = options_.ip;
  result.host_ip = options_.host_ip;
  result.program_by_image = options_.program_by_image;
  for (const json& volume : object_["spec"].value("volumes", json::array())) {
    WINDLASS_ASSIGN_OR_RETURN(result.host_by_volume[volume.value("name", "")], volume_folder(volume));
  }
  for (const Container& container : containers_) {
    for (const json& variable : container.spec.value("env", json::array())) {
      if (!variable.contains("valueFrom")) continue;
      if (!variable["valueFrom"].contains("configMapKeyRef")) continue;
      const std::string name = variable["valueFrom"]["configMapKeyRef"].value("name", "");
      auto object = options_.fetch("ConfigMap", name);
      if (object.ok()) result.config_maps[name] = *object;
    }
  }
  return result;
}

Result<std::string> Pod::volume_folder(const json& volume) {
  const std::string own = fmt::format("{}/volumes/{}", options_.folder, volume.value("name", ""));
  if (volume.contains("hostPath")) return volume["hostPath"].value("path", "");
  if (volume.contains("persistentVolumeClaim")) {
    const std::string claim_name = volume["persistentVolumeClaim"].value("claimName", "");
    WINDLASS_ASSIGN_OR_RETURN(const json claim, options_.fetch("PersistentVolumeClaim", claim_name));
    WINDLASS_ASSIGN_OR_RETURN(const json bound, options_.fetch("PersistentVolume", claim["spec"].value("volumeName", "")));
    const std::string path = bound["spec"].value("hostPath", json::object()).value("path", "");
    if (path.empty()) return Error{ErrorCode::kInvalidArgument, "claim " + claim_name + ": its volume is not a hostPath"};
    return path;
  }
  std::filesystem::create_directories(own);
  if (volume.contains("configMap")) {
    WINDLASS_ASSIGN_OR_RETURN(const json map, options_.fetch("ConfigMap", volume["configMap"].value("name", "")));
    const json data = map.value("data", json::object());
    for (const auto& [key, text] : data.items()) write_text_file(own + "/" + key, text.get<std::string>());
  } else if (!volume.contains("emptyDir") && !volume.contains("projected")) {
    return Error{ErrorCode::kInvalidArgument, "the test kubelet does not know the volume " + volume.dump()};
  }
  return own;
}

json Pod::container_status(const Container& container) {
  json state;
  if (container.state == State::kWaiting) {
    state = {{"waiting", {{"reason", container.reason}, {"message", container.message}}}};
  } else if (container.state == State::kRunning) {
    state = {{"running", {{"startedAt", container.started_at}}}};
  } else {
    state = {{"terminated",
              {{"exitCode", container.exit_status},
               {"reason", container.exit_status == 0 ? "Completed" : "Error"},
               {"startedAt", container.started_at},
               {"finishedAt", container.finished_at}}}};
  }
  json status = {
      {"name", container.spec.value("name", "")},
      {"image", container.spec.value("image", "")},
      {"imageID", ""},
      {"ready", container.init ? container.state == State::kTerminated && container.exit_status == 0 : container.ready},
      {"started", container.started},
      {"restartCount", container.restarts},
      {"state", state}};
  if (!container.last_state.is_null()) status["lastState"] = container.last_state;
  return status;
}

std::string Pod::phase() const {
  bool any_started = false;
  bool all_terminated = true;
  bool any_failed = false;
  for (const Container& container : containers_) {
    if (container.init) continue;
    any_started = any_started || container.state != State::kWaiting || !container.last_state.is_null();
    all_terminated = all_terminated && container.state == State::kTerminated;
    any_failed = any_failed || (container.state == State::kTerminated && container.exit_status != 0);
  }
  if (all_terminated) return any_failed ? "Failed" : "Succeeded";
  return any_started ? "Running" : "Pending";
}

json Pod::condition(const char* type, bool holds, const char* reason, const std::string& wall) {
  auto [known, first] = conditions_.try_emplace(type, Condition{holds, wall});
  if (!first && known->second.holds != holds) known->second = {holds, wall};
  json result = {{"type", type}, {"status", holds ? "True" : "False"}, {"lastTransitionTime", known->second.since}};
  if (!holds) result["reason"] = reason;
  return result;
}

json Pod::status(const std::string& wall) {
  const std::string phase_now = phase();
  const bool ready =
      phase_now == "Running" && std::all_of(containers_.begin(), containers_.end(),
                                            [](const Container& container) { return container.init || container.ready; });
  json inits = json::array();
  json mains = json::array();
  for (const Container& container : containers_) (container.init ? inits : mains).push_back(container_status(container));
  json status = {{"phase", phase_now},
                 {"hostIP", options_.host_ip},
                 {"hostIPs", json::array({{{"ip", options_.host_ip}}})},
                 {"podIP", options_.ip},
                 {"podIPs", json::array({{{"ip", options_.ip}}})},
                 {"startTime", started_at_},
                 {"conditions", json::array({condition("Initialized", initialised(), "ContainersNotInitialized", wall),
                                             condition("ContainersReady", ready, "ContainersNotReady", wall),
                                             condition("Ready", ready, "ContainersNotReady", wall)})},
                 {"containerStatuses", mains}};
  if (!inits.empty()) status["initContainerStatuses"] = inits;
  return status;
}

}  // namespace windlass::testing
