// Translates a pod's container into a local process: pure functions from the pod's JSON to a command line.
//
// The test kubelet has no images and no mounts. An image is a program of this machine. If an argument or a variable names a
// path below a mountPath, the host's folder replaces it. Nothing here does I/O.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "planner/base/result.h"

namespace windlass::testing {

// As in Kubernetes: "$(NAME)" becomes the variable's value, "$$(NAME)" becomes "$(NAME)", an unknown name stays unchanged.
[[nodiscard]] std::string expand_variables(const std::string& text, const std::map<std::string, std::string>& variables);

// Replaces `mount_path`, or a path below it, by the host's folder wherever it occurs in `text`.
[[nodiscard]] std::string replace_mounts(const std::string& text, const std::map<std::string, std::string>& host_by_mount_path);

// What the kubelet knows in addition to the pod's spec.
struct ContainerSurroundings {
  std::string pod_ip;
  std::string host_ip;
  std::map<std::string, std::string> program_by_image;  // "example/worker:1" or "example/worker" -> path of a program
  std::map<std::string, std::string> host_by_volume;    // volume name -> folder of this machine
  std::map<std::string, nlohmann::json> config_maps;    // name -> object, for those that env refers to
};

struct ContainerCommand {
  std::vector<std::string> argv;
  std::map<std::string, std::string> env;
};

// kNotFound: the image is unknown (ErrImagePull); kInvalidArgument: the spec asks for something that the test kubelet cannot do
// (CreateContainerConfigError).
[[nodiscard]] Result<ContainerCommand> container_command(const nlohmann::json& pod, const nlohmann::json& container,
                                                         const ContainerSurroundings& surroundings);

// An httpGet probe with Kubernetes' defaults filled in.
struct Probe {
  std::string path = "/";
  int port = 0;
  double initial_delay_s = 0;
  double period_s = 10;
  double timeout_s = 1;
  int success_threshold = 1;
  int failure_threshold = 3;
};

// kInvalidArgument for probes other than httpGet and for a port name that the container does not define.
[[nodiscard]] Result<Probe> parse_probe(const nlohmann::json& container, const nlohmann::json& probe);

}  // namespace windlass::testing
