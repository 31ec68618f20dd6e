// Reads a pod as a worker: its identity from the metadata, and its state and message from the status. See pod.h.
//
// Reasons come from the kubelet (pkg/kubelet/images/types.go, pkg/kubelet/container/sync_result.go), the scheduler and the node
// lifecycle controller.
#include <algorithm>
#include <array>
#include <cstdlib>
#include <ctime>
#include <string_view>

#include <fmt/format.h>

#include "controller/runtime/pod.h"
#include "controller/runtime/pod_json.h"
#include "controller/runtime/pod_template.h"
#include "metrics/net/host_port.h"
#include "planner/deployment/pool_name.h"

namespace windlass::controller {
namespace {

using nlohmann::json;
using planner::WorkerTrouble;

// A container that has ended this often without becoming ready is in a crash loop, even while it runs again.
constexpr int kCrashLoopRestarts = 3;

constexpr std::array<std::string_view, 7> kImageReasons = {
    "ErrImagePull",      "ImagePullBackOff",    "InvalidImageName",         "ErrImageNeverPull",
    "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed"};

struct Finding {
  WorkerTrouble trouble = WorkerTrouble::kNone;
  bool failed = false;  // unlikely to become ready by itself soon
  std::string message;
};

std::string with_message(std::string text, const std::string& message) {
  return message.empty() ? text : text + ": " + message;
}

std::string times(int count) { return count == 1 ? "once" : fmt::format("{} times", count); }

// What keeps this container from running. The message is empty if nothing does.
Finding finding_of(const json& status) {
  const std::string name = text_at(status, {"name"});
  const json* now_ended = at(status, {"state", "terminated"});
  const json* ended = now_ended != nullptr ? now_ended : at(status, {"lastState", "terminated"});
  if (true_at(status, {"ready"})) return {};
  if (now_ended != nullptr && integer_at(*now_ended, {"exitCode"}, -1) == 0 && integer_at(status, {"restartCount"}) == 0) {
    return {};  // an init container that completed
  }
  const std::string waiting = text_at(status, {"state", "waiting", "reason"});
  const std::string waiting_message = text_at(status, {"state", "waiting", "message"});
  const int restarts = integer_at(status, {"restartCount"});
  const bool again_and_again = waiting == "CrashLoopBackOff" || restarts >= kCrashLoopRestarts;
  if (std::find(kImageReasons.begin(), kImageReasons.end(), waiting) != kImageReasons.end()) {
    const std::string what = fmt::format("container {}: {} for image {}", name, waiting, text_at(status, {"image"}));
    return {WorkerTrouble::kImagePull, true, with_message(what, waiting_message)};
  }
  if (ended != nullptr && text_at(*ended, {"reason"}) == "OOMKilled") {
    return {WorkerTrouble::kOutOfMemory, again_and_again,
            fmt::format("container {} ran out of memory (OOMKilled, exit code {}), restarted {}; its memory limit is set in "
                        "spec.engine.podTemplate",
                        name, integer_at(*ended, {"exitCode"}, 137), times(restarts))};
  }
  std::string how;
  if (ended != nullptr) {
    how = fmt::format("last with exit code {}", integer_at(*ended, {"exitCode"}, -1));
    const std::string reason = text_at(*ended, {"reason"});
    if (!reason.empty() && reason != "Error") how += " (" + reason + ")";
    std::string last_words = text_at(*ended, {"message"});
    while (!last_words.empty() && (last_words.back() == '\n' || last_words.back() == ' ')) last_words.pop_back();
    how = with_message(how, last_words);
  }
  if (again_and_again) {
    std::string what = fmt::format("container {} keeps crashing: restarted {}", name, times(restarts));
    if (!how.empty()) what += ", " + how;
    return {WorkerTrouble::kCrashLoop, true, how.empty() ? with_message(what, waiting_message) : what};
  }
  if (!waiting.empty() && waiting != "ContainerCreating" && waiting != "PodInitializing") {
    return {WorkerTrouble::kFailed, true, with_message(fmt::format("container {}: {}", name, waiting), waiting_message)};
  }
  if (!how.empty() && (restarts > 0 || now_ended != nullptr)) {
    return {WorkerTrouble::kNone, false, fmt::format("container {} was restarted {}, {}", name, times(restarts), how)};
  }
  return {};
}

// The most severe finding of all containers. Init containers come first, because nothing after a failing one runs.
Finding finding_of_containers(const json& pod) {
  Finding first;
  for (const char* kind : {"initContainerStatuses", "containerStatuses"}) {
    for (const json& status : list_at(pod, {"status", kind})) {
      Finding found = finding_of(status);
      if (found.trouble != WorkerTrouble::kNone) return found;
      if (first.message.empty()) first = std::move(found);
    }
  }
  return first;
}

// Whether the node lifecycle controller has marked the pod's node as unreachable.
bool lost_its_node(const json& pod) {
  if (text_at(pod, {"status", "reason"}) == "NodeLost" || text_at(pod, {"status", "phase"}) == "Unknown") return true;
  const json* target = condition_of(pod, "DisruptionTarget");
  return target != nullptr && text_at(*target, {"status"}) == "True" &&
         text_at(*target, {"reason"}) == "DeletionByTaintManager";
}

// A pod that has ended for good: evicted, rejected by its node, or its node was shut down.
Finding finding_of_failed(const json& pod, Finding containers) {
  const std::string reason = text_at(pod, {"status", "reason"});
  const std::string message = text_at(pod, {"status", "message"});
  Finding out{WorkerTrouble::kFailed, true, with_message(reason.empty() ? "Failed" : reason, message)};
  if (reason == "NodeLost" || reason == "NodeShutdown" || reason == "Terminated") {
    out.trouble = WorkerTrouble::kNodeLost;
  } else if (reason == "Evicted" && message.find("low on resource: memory") != std::string::npos) {
    out.trouble = WorkerTrouble::kOutOfMemory;
  } else if (reason.empty() && !containers.message.empty()) {
    out.message = std::move(containers.message);
  }
  if (containers.trouble == WorkerTrouble::kOutOfMemory) out.trouble = WorkerTrouble::kOutOfMemory;
  return out;
}

int container_units(const json& container, const std::string& resource) {
  for (const char* kind : {"requests", "limits"}) {
    const json* found = at(container, {"resources", kind, resource.c_str()});
    if (found == nullptr) continue;
    if (found->is_number_integer()) return found->get<int>();
    if (found->is_string()) return number(found->get<std::string>(), 0);
  }
  return 0;
}

// Copies the pod's status to the worker.
void read_status(const json& pod, Worker& worker) {
  const std::string phase = text_at(pod, {"status", "phase"});
  const json* ready = condition_of(pod, "Ready");
  worker.ready = ready != nullptr && text_at(*ready, {"status"}) == "True" && !worker.terminating;
  if (worker.ready) worker.ready_s = unix_seconds(text_at(*ready, {"lastTransitionTime"}));
  const json* scheduled = condition_of(pod, "PodScheduled");
  if (scheduled != nullptr && text_at(*scheduled, {"status"}) == "True") {
    worker.scheduled_s = unix_seconds(text_at(*scheduled, {"lastTransitionTime"}));
  }
  const json& containers = list_at(pod, {"status", "containerStatuses"});
  for (const json& one : containers) {
    // This incarnation has been started, so it may have requests in flight even while a probe fails.
    if (!worker.ready_s && true_at(one, {"started"})) worker.ready_s = worker.created_s;
  }
  const bool all_ended = !containers.empty() && std::all_of(containers.begin(), containers.end(), [](const json& one) {
    return at(one, {"state", "terminated"}) != nullptr;
  });
  const bool ended_phase = phase == "Succeeded" || phase == "Failed";
  const bool never_bound = worker.terminating && worker.node.empty();
  worker.finished = ended_phase || never_bound || (worker.terminating && all_ended);

  const bool waits = scheduled != nullptr && text_at(*scheduled, {"status"}) == "False" && worker.node.empty();
  worker.gated = waits && text_at(*scheduled, {"reason"}) == "SchedulingGated";
  worker.unschedulable = waits && !worker.gated;
  Finding found;
  if (worker.gated) {
    found = {WorkerTrouble::kNone, false, with_message("SchedulingGated", text_at(*scheduled, {"message"}))};
  } else if (worker.unschedulable) {
    const std::string reason = text_at(*scheduled, {"reason"});
    found = {WorkerTrouble::kUnschedulable, false,
             with_message(reason.empty() ? "Unschedulable" : reason, text_at(*scheduled, {"message"}))};
  } else if (phase == "Failed") {
    found = finding_of_failed(pod, finding_of_containers(pod));
  } else if (lost_its_node(pod)) {
    found = {WorkerTrouble::kNodeLost, true,
             with_message(fmt::format("node {} does not answer", worker.node), text_at(pod, {"status", "message"}))};
  } else if (phase == "Succeeded" && !worker.terminating) {
    found = {WorkerTrouble::kFailed, true, "it exited without being asked to"};
  } else if (!worker.ready && !worker.terminating) {
    found = finding_of_containers(pod);
  }
  worker.trouble = found.trouble;
  worker.failed = found.failed;
  worker.message = std::move(found.message);
}

// The value of a variable of the worker's container.
std::string variable_of(const json& pod, const char* name) {
  for (const json& container : list_at(pod, {"spec", "containers"})) {
    if (text_at(container, {"name"}) != kWorkerContainer) continue;
    for (const json& variable : list_at(container, {"env"})) {
      if (text_at(variable, {"name"}) == name) return text_at(variable, {"value"});
    }
  }
  return {};
}

}  // namespace

double unix_seconds(const std::string& rfc3339) {
  std::tm parts{};
  const char* end = ::strptime(rfc3339.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  return end == nullptr ? 0 : static_cast<double>(::timegm(&parts));
}

const json* owner_of_worker(const json& pod) {
  const json& owners = list_at(pod, {"metadata", "ownerReferences"});
  const auto owner = std::find_if(owners.begin(), owners.end(), [](const json& one) {
    return true_at(one, {"controller"}) && text_at(one, {"kind"}) == "ModelService" &&
           text_at(one, {"apiVersion"}).rfind("windlass.dev/", 0) == 0;
  });
  const bool worker = text_at(pod, {"metadata", "labels", "app.kubernetes.io/component"}) == "worker";
  return worker && owner != owners.end() ? &*owner : nullptr;
}

std::optional<Worker> worker_of(const json& pod) {
  const json* owner = owner_of_worker(pod);
  if (owner == nullptr) return std::nullopt;
  const json* labels = at(pod, {"metadata", "labels"});
  Worker worker;
  worker.name = text_at(pod, {"metadata", "name"});
  worker.name_space = text_at(pod, {"metadata", "namespace"});
  worker.service = text_at(*owner, {"name"});
  worker.service_uid = text_at(*owner, {"uid"});
  worker.instance = kube::instance_of(pod);
  worker.slot = number(text_at(*labels, {"windlass.dev/slot"}), 0);
  worker.role = text_at(*labels, {kRoleLabel});
  worker.accelerator = text_at(pod, {"metadata", "annotations", "windlass.dev/accelerator"});
  worker.gpus = number(text_at(pod, {"metadata", "annotations", "windlass.dev/gpus"}), 1);
  worker.pool = planner::pool_of_name(text_at(*labels, {"windlass.dev/pool"}), worker.accelerator, worker.gpus).name;
  worker.stages = std::max(1, number(text_at(pod, {"metadata", "annotations", kStages}), 1));
  worker.stage = std::clamp(number(text_at(pod, {"metadata", "annotations", kStage}), 0), 0, worker.stages - 1);
  worker.max_concurrency = number(text_at(pod, {"metadata", "annotations", "windlass.dev/max-concurrency"}), 1);
  worker.spec_hash = text_at(pod, {"metadata", "annotations", "windlass.dev/spec-hash"});
  worker.token = variable_of(pod, kWorkerToken);
  worker.duty_token = variable_of(pod, kDutyToken);
  worker.node = text_at(pod, {"spec", "nodeName"});
  worker.uid = text_at(pod, {"metadata", "uid"});
  worker.resource_version = text_at(pod, {"metadata", "resourceVersion"});
  worker.created_s = unix_seconds(text_at(pod, {"metadata", "creationTimestamp"}));
  worker.terminating = !text_at(pod, {"metadata", "deletionTimestamp"}).empty();
  const auto seconds_at = [&](const char* annotation) -> std::optional<double> {
    const std::string text = text_at(pod, {"metadata", "annotations", annotation});
    return text.empty() ? std::nullopt : std::optional(std::strtod(text.c_str(), nullptr));
  };
  worker.draining_since_s = seconds_at(kDrainingSince);
  worker.changing_role_since_s = seconds_at(kChangingRoleSince);
  const std::string ip = text_at(pod, {"status", "podIP"});
  if (!ip.empty()) worker.address = net::to_string({ip, std::to_string(kWorkerPort)});
  read_status(pod, worker);
  return worker;
}

bool out_of_service(const json& node) {
  const json& taints = list_at(node, {"spec", "taints"});
  return std::any_of(taints.begin(), taints.end(),
                     [](const json& one) { return text_at(one, {"key"}) == "node.kubernetes.io/out-of-service"; });
}

bool being_emptied(const json& node) {
  if (true_at(node, {"spec", "unschedulable"})) return true;
  const json& taints = list_at(node, {"spec", "taints"});
  return std::any_of(taints.begin(), taints.end(), [](const json& one) {
    const std::string key = text_at(one, {"key"});
    return key == "ToBeDeletedByClusterAutoscaler" || key == "karpenter.sh/disrupted" || key == "karpenter.sh/disruption";
  });
}

void judge_node(const json* node, bool missing_for_long, Worker& worker) {
  if (worker.node.empty() || worker.finished) return;
  std::string what;
  if (node == nullptr) {
    if (!missing_for_long) return;
    what = fmt::format("node {} is gone", worker.node);
    worker.node_gone = true;
  } else {
    worker.node_gone = out_of_service(*node);
    worker.node_leaving = being_emptied(*node);
    const json* ready = condition_of(*node, "Ready");
    if (worker.node_gone) {
      what = fmt::format("node {} is out of service", worker.node);
    } else if (ready != nullptr && text_at(*ready, {"status"}) != "True") {
      what = with_message(fmt::format("node {} does not answer (Ready={})", worker.node, text_at(*ready, {"status"})),
                          text_at(*ready, {"message"}));
    } else {
      return;
    }
  }
  worker.trouble = WorkerTrouble::kNodeLost;
  worker.message = std::move(what);
  worker.failed = true;
  worker.says_ready = worker.ready;
  worker.ready = false;
  worker.finished = worker.node_gone;  // nobody is left to report its end
}

int requested(const json& pod, const std::string& resource) {
  int sum = 0;
  int largest_init = 0;
  for (const json& one : list_at(pod, {"spec", "containers"})) sum += container_units(one, resource);
  for (const json& one : list_at(pod, {"spec", "initContainers"})) {
    largest_init = std::max(largest_init, container_units(one, resource));
  }
  return std::max(sum, largest_init);
}

bool holds_resources(const json& pod) {
  const std::string phase = text_at(pod, {"status", "phase"});
  return !text_at(pod, {"spec", "nodeName"}).empty() && phase != "Succeeded" && phase != "Failed";
}

}  // namespace windlass::controller
