// LocalStack: runs one controller and one gateway on this machine, for `windlass up` and `windlass attach`.
//
// Owns a folder, locked so that one stack uses it at a time: objects/ from the files, status/ and events.jsonl written by the
// controller, workers/ so that a restarted controller finds its workers, logs/, and endpoints.json while the stack runs. Both
// programs are child processes. They are restarted when they end, and end when this process does. A crash loses only what the
// program held in memory: when the controller crashes its workers become our children and the next controller adopts them; when
// the gateway crashes, new clients wait in the listening socket, which we own, for the next gateway.
// Single-threaded; main thread only.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/cli/live/endpoints.h"
#include "controller/cli/local/supervised_process.h"
#include "controller/runtime/attached_runtime.h"
#include "metrics/host/held_port.h"
#include "planner/base/result.h"

namespace windlass::cli {

struct LocalStackOptions {
  std::string directory = ".windlass";
  std::string listen = "127.0.0.1:8080";            // where the gateway takes requests
  int gpus = 0;                                     // of each class on this machine; 0: the controller's default
  std::vector<std::string> files;                   // YAML files, already validated
  std::map<std::string, std::string> made;          // further objects: file name -> YAML
  std::vector<controller::AttachedServer> servers;  // started by others; none: the controller starts workers itself
};

class LocalStack {
 public:
  // Copies the files into the folder and starts both programs. On error, nothing runs.
  [[nodiscard]] static Result<std::unique_ptr<LocalStack>> start(const LocalStackOptions& options);
  ~LocalStack();
  LocalStack(const LocalStack&) = delete;
  LocalStack& operator=(const LocalStack&) = delete;

  [[nodiscard]] const Endpoints& endpoints() const { return endpoints_; }

  // Why the stack cannot come up: a program has ended. nullopt while all is well.
  [[nodiscard]] std::optional<std::string> trouble();

  // Restarts programs that have ended. Returns a message for the user, usually empty.
  [[nodiscard]] std::string tend(double now_s);

  // Asks the gateway to finish its requests, then the controller to stop its workers. Returns whether both exited with 0.
  // Polls `hurry` meanwhile and kills them once it returns true.
  [[nodiscard]] bool stop(const std::function<bool()>& hurry);

 private:
  LocalStack() = default;
  bool end(SupervisedProcess& program, double patience_s, const std::function<bool()>& hurry);
  void reap_orphans();
  void end_orphans();

  std::string directory_;
  int lock_ = -1;
  Endpoints endpoints_;
  HeldPort controller_port_;
  HeldPort admin_port_;
  int listener_ = -1;  // the gateway's socket for clients
  std::optional<SupervisedProcess> controller_;
  std::optional<SupervisedProcess> gateway_;
};

}  // namespace windlass::cli
