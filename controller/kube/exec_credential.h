// Gets credentials from a program (client.authentication.k8s.io/v1 and v1beta1): runs it, reads its ExecCredential from stdout,
// and caches the result until shortly before it expires or the server answers 401.
//
// The program gets no stdin unless interactiveMode is Always (or IfAvailable) and stdin is a terminal. Always without a
// terminal is an error. The program is killed after `timeout_s`. On failure the error includes its truncated stderr, never its
// stdout, which holds the secret.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "controller/kube/credentials.h"
#include "planner/base/result.h"

namespace windlass::kube {

enum class ExecInteractiveMode { kNever, kIfAvailable, kAlways };

struct ExecPlugin {
  std::string api_version = {};  // client.authentication.k8s.io/v1 or /v1beta1
  std::string command = {};      // a path if it contains '/', otherwise looked up on PATH
  std::vector<std::string> args = {};
  std::vector<std::pair<std::string, std::string>> env = {};  // added to our own environment
  ExecInteractiveMode interactive_mode = ExecInteractiveMode::kIfAvailable;
  std::string install_hint = {};  // shown if the command is not found
  std::string cluster_info = {};  // KUBERNETES_EXEC_INFO's spec.cluster as JSON if provideClusterInfo; otherwise empty
  double timeout_s = 60;
};

[[nodiscard]] std::unique_ptr<CredentialSource> exec_credentials(ExecPlugin plugin);

}  // namespace windlass::kube
