// LocalStack: one controller and one gateway on this machine, for `windlass up`.
//
// Owns a folder (one stack at a time, by a lock): objects/ as given, status/ and events.jsonl by the controller, workers/ for
// it to find its workers again, logs/, and endpoints.json while it runs. Both programs are our children, are started again when
// they end, and end with us. What a crash loses is what the program held: workers outlive the controller's (they become our
// children) and are adopted by the next one, and clients wait in the socket, which is ours, for the next gateway.
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
  std::string listen = "127.0.0.1:8080";            // of the gateway, for requests
  int gpus = 0;                                     // what this machine offers of each class; 0: the controller's default
  std::vector<std::string> files;                   // YAML files, already checked
  std::map<std::string, std::string> made;          // further objects, as YAML, by the names of their files
  std::vector<controller::AttachedServer> servers;  // that somebody else runs; none: workers are processes of ours
};

class LocalStack {
 public:
  // Puts the files into the folder and starts both programs. The error names what is in the way; nothing runs then.
  [[nodiscard]] static Result<std::unique_ptr<LocalStack>> start(const LocalStackOptions& options);
  ~LocalStack();
  LocalStack(const LocalStack&) = delete;
  LocalStack& operator=(const LocalStack&) = delete;

  [[nodiscard]] const Endpoints& endpoints() const { return endpoints_; }

  // Why it cannot begin: a program has ended by itself. nullopt while all is well.
  [[nodiscard]] std::optional<std::string> trouble();

  // Starts again what has ended. What a person should know of it, "" mostly.
  [[nodiscard]] std::string tend(double now_s);

  // Asks the gateway to finish what it has and then the controller to end its workers. Returns whether both ended well;
  // `hurry` is asked in between and cuts it short.
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
  int listener_ = -1;  // of the gateway, for clients
  std::optional<SupervisedProcess> controller_;
  std::optional<SupervisedProcess> gateway_;
};

}  // namespace windlass::cli
