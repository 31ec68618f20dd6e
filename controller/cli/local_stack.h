// LocalStack: one controller and one gateway on this machine, for `windlass up`.
//
// Owns a folder (one stack at a time, by a lock): objects/ as given, status/ and events.jsonl by the controller, logs/, and
// endpoints.json while it runs. Both programs are our children and end with us. Single-threaded; main thread only.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "controller/cli/child_process.h"
#include "controller/cli/endpoints.h"
#include "metrics/host/held_port.h"
#include "planner/base/result.h"

namespace windlass::cli {

struct LocalStackOptions {
  std::string directory = ".windlass";
  std::string listen = "127.0.0.1:8080";  // of the gateway, for requests
  int gpus = 0;                           // what this machine offers of each class; 0: the controller's default
  std::vector<std::string> files;         // YAML files, already checked
  std::string this_machine;               // an AcceleratorClass beside theirs, as YAML; empty: none
};

class LocalStack {
 public:
  // Puts the files into the folder and starts both programs. The error names what is in the way; nothing runs then.
  [[nodiscard]] static Result<std::unique_ptr<LocalStack>> start(const LocalStackOptions& options);
  ~LocalStack();
  LocalStack(const LocalStack&) = delete;
  LocalStack& operator=(const LocalStack&) = delete;

  [[nodiscard]] const Endpoints& endpoints() const { return endpoints_; }

  // Why it can't go on: a child has ended by itself. nullopt while all is well.
  [[nodiscard]] std::optional<std::string> trouble();

  // Asks the gateway to finish what it has and then the controller to end its workers. Returns whether both ended well;
  // `hurry` is asked in between and cuts it short.
  [[nodiscard]] bool stop(const std::function<bool()>& hurry);

 private:
  LocalStack() = default;
  bool end(ChildProcess& child, double patience_s, const std::function<bool()>& hurry);

  std::string directory_;
  int lock_ = -1;
  Endpoints endpoints_;
  HeldPort controller_port_;
  HeldPort admin_port_;
  std::optional<ChildProcess> controller_;
  std::optional<ChildProcess> gateway_;
};

}  // namespace windlass::cli
