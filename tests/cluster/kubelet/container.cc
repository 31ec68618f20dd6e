// Implements container.h.
#include "tests/cluster/kubelet/container.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>
#include <unistd.h>

namespace windlass::testing {
namespace {

using nlohmann::json;

std::string text_or(const json& object, const char* key, const std::string& fallback) {
  return object.contains(key) && object[key].is_string() ? object[key].get<std::string>() : fallback;
}

double number_or(const json& object, const char* key, double fallback) {
  return object.contains(key) && object[key].is_number() ? object[key].get<double>() : fallback;
}

std::optional<std::string> field_of_pod(const json& pod, const std::string& path, const ContainerSurroundings& surroundings) {
  if (path == "status.podIP") return surroundings.pod_ip;
  if (path == "status.hostIP") return surroundings.host_ip;
  if (path == "metadata.name" || path == "metadata.namespace" || path == "metadata.uid") {
    return pod["metadata"].value(path.substr(9), "");
  }
  if (path == "spec.nodeName" || path == "spec.serviceAccountName") return pod["spec"].value(path.substr(5), "");
  for (const char* kind : {"labels", "annotations"}) {
    const std::string prefix = fmt::format("metadata.{}['", kind);
    if (path.rfind(prefix, 0) != 0 || path.size() < prefix.size() + 2) continue;
    const std::string key = path.substr(prefix.size(), path.size() - prefix.size() - 2);
    return pod["metadata"].contains(kind) ? pod["metadata"][kind].value(key, "") : "";
  }
  return std::nullopt;
}

Result<std::string> referenced_value(const json& pod, const json& source, const ContainerSurroundings& surroundings) {
  if (source.contains("fieldRef")) {
    const std::string path = text_or(source["fieldRef"], "fieldPath", "");
    if (auto value = field_of_pod(pod, path, surroundings)) return *value;
    return Error{ErrorCode::kInvalidArgument, fmt::format("fieldRef.fieldPath: '{}' is not known to the test kubelet", path)};
  }
  if (source.contains("configMapKeyRef")) {
    const json& reference = source["configMapKeyRef"];
    const std::string name = text_or(reference, "name", "");
    const std::string key = text_or(reference, "key", "");
    const auto found = surroundings.config_maps.find(name);
    if (found != surroundings.config_maps.end() && found->second.contains("data") && found->second["data"].contains(key)) {
      return found->second["data"][key].get<std::string>();
    }
    if (reference.value("optional", false)) return std::string();
    return Error{ErrorCode::kInvalidArgument, fmt::format("configMapKeyRef: '{}' has no key '{}'", name, key)};
  }
  return Error{ErrorCode::kInvalidArgument, fmt::format("valueFrom: {} is not known to the test kubelet", source.dump())};
}

std::string program_of(const std::string& image, const ContainerSurroundings& surroundings) {
  const auto exact = surroundings.program_by_image.find(image);
  if (exact != surroundings.program_by_image.end()) return exact->second;
  const std::size_t colon = image.rfind(':');
  const std::size_t slash = image.rfind('/');
  if (colon == std::string::npos || (slash != std::string::npos && colon < slash)) return "";
  const auto untagged = surroundings.program_by_image.find(image.substr(0, colon));
  return untagged == surroundings.program_by_image.end() ? "" : untagged->second;
}

}  // namespace

std::string expand_variables(const std::string& text, const std::map<std::string, std::string>& variables) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '$' && at + 1 < text.size()) {
      if (text[at + 1] == '$') {
        result += '$';
        at += 2;
        continue;
      }
      const std::size_t close = text[at + 1] == '(' ? text.find(')', at) : std::string::npos;
      if (close != std::string::npos) {
        const auto found = variables.find(text.substr(at + 2, close - at - 2));
        result += found != variables.end() ? found->second : text.substr(at, close - at + 1);
        at = close + 1;
        continue;
      }
    }
    result += text[at++];
  }
  return result;
}

std::string replace_mounts(const std::string& text, const std::map<std::string, std::string>& host_by_mount_path) {
  std::string result;
  for (std::size_t at = 0; at < text.size();) {
    const bool begins = at == 0 || text[at - 1] == '=' || text[at - 1] == ':' || text[at - 1] == ',' || text[at - 1] == ' ';
    const std::pair<const std::string, std::string>* best = nullptr;
    for (const auto& mount : host_by_mount_path) {
      const std::size_t size = mount.first.size();
      const bool same = begins && size > 0 && text.compare(at, size, mount.first) == 0;
      const char next = same && at + size < text.size() ? text[at + size] : '/';
      const bool ends = next == '/' || next == ':' || next == ',' || next == ' ';
      if (same && ends && (best == nullptr || size > best->first.size())) best = &mount;
    }
    if (best != nullptr) {
      result += best->second;
      at += best->first.size();
    } else {
      result += text[at++];
    }
  }
  return result;
}

Result<ContainerCommand> container_command(const json& pod, const json& container, const ContainerSurroundings& surroundings) {
  const std::string image = text_or(container, "image", "");
  const std::string program = program_of(image, surroundings);
  if (program.empty()) {
    return Error{ErrorCode::kNotFound, fmt::format("image '{}' is not one of those this node has", image)};
  }
  std::map<std::string, std::string> mounts;
  for (const json& mount : container.value("volumeMounts", json::array())) {
    const auto folder = surroundings.host_by_volume.find(text_or(mount, "name", ""));
    if (folder == surroundings.host_by_volume.end()) {
      return Error{ErrorCode::kInvalidArgument,
                   fmt::format("volumeMounts: volume '{}' is not there", text_or(mount, "name", ""))};
    }
    const std::string sub_path = text_or(mount, "subPath", "");
    mounts[text_or(mount, "mountPath", "")] = folder->second + (sub_path.empty() ? "" : "/" + sub_path);
  }
  ContainerCommand command;
  command.env["HOSTNAME"] = pod["metadata"].value("name", "");
  for (const json& variable : container.value("env", json::array())) {
    const std::string name = text_or(variable, "name", "");
    std::string value = expand_variables(text_or(variable, "value", ""), command.env);
    if (variable.contains("valueFrom")) {
      WINDLASS_ASSIGN_OR_RETURN(value, referenced_value(pod, variable["valueFrom"], surroundings));
    }
    command.env[name] = replace_mounts(value, mounts);
  }
  // The entry point is the image's program, unless `command` names another one: our program by its path in the container, or a
  // tool of this machine.
  std::vector<std::string> words = container.value("command", std::vector<std::string>{});
  const std::vector<std::string> arguments = container.value("args", std::vector<std::string>{});
  if (words.empty()) words.push_back(program);
  const std::string base = words[0].substr(words[0].rfind('/') + 1);
  if (base == program.substr(program.rfind('/') + 1)) words[0] = program;
  words.insert(words.end(), arguments.begin(), arguments.end());
  command.argv.push_back(words[0]);
  for (std::size_t i = 1; i < words.size(); ++i) {
    command.argv.push_back(replace_mounts(expand_variables(words[i], command.env), mounts));
  }
  return command;
}

Result<Probe> parse_probe(const json& container, const json& probe) {
  if (!probe.contains("httpGet")) {
    return Error{ErrorCode::kInvalidArgument, "the test kubelet knows httpGet probes only, found " + probe.dump()};
  }
  const json& get = probe["httpGet"];
  Probe result;
  result.path = text_or(get, "path", "/");
  if (get.contains("port") && get["port"].is_number_integer()) result.port = get["port"].get<int>();
  if (get.contains("port") && get["port"].is_string()) {
    for (const json& port : container.value("ports", json::array())) {
      if (text_or(port, "name", "") == get["port"].get<std::string>()) result.port = port.value("containerPort", 0);
    }
  }
  if (result.port <= 0) return Error{ErrorCode::kInvalidArgument, "httpGet.port: no such port of the container: " + get.dump()};
  result.initial_delay_s = number_or(probe, "initialDelaySeconds", 0);
  result.period_s = number_or(probe, "periodSeconds", 10);
  result.timeout_s = number_or(probe, "timeoutSeconds", 1);
  result.success_threshold = static_cast<int>(number_or(probe, "successThreshold", 1));
  result.failure_threshold = static_cast<int>(number_or(probe, "failureThreshold", 3));
  return result;
}

}  // namespace windlass::testing
