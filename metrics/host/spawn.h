// Starts programs as child processes; the only place that calls fork and exec.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "planner/base/result.h"

namespace windlass {

struct Spawn {
  static constexpr int kOurs = -1, kNull = -2;  // for a stream: inherit ours; /dev/null
  enum class Group { kOurs, kOwn };

  std::string program;                                                 // path; PATH is not searched
  std::vector<std::string> argv;                                       // including argv[0]
  std::optional<std::vector<std::string>> environment = std::nullopt;  // "NAME=VALUE"; nullopt: inherit ours
  std::string folder = {};                                             // working directory; empty: ours
  int in = kOurs, out = kOurs, err = kOurs;                            // or our descriptors
  std::vector<int> kept = {};  // descriptors that stay open under their numbers; all others above 2 are closed
  Group group = Group::kOurs;
  int death_signal = 0;  // signal it gets when the thread that started it ends; 0: none
  std::vector<int> ignored_signals = {};
  // Called in our process, with the child's id, before the program starts. If it returns an error, or we die meanwhile, the
  // program never starts.
  std::function<Result<void>(pid_t)> before = nullptr;
};

// Returns the child's id once the program runs; the caller waits for the child. Signals are set as a shell does: none blocked,
// and SIGINT, SIGTERM, SIGHUP, SIGCHLD and SIGPIPE not ignored, except those in ignored_signals. Error: kUnavailable with the
// reason ("/no/such/program: No such file or directory"), or the error of `before`. Any thread.
[[nodiscard]] Result<pid_t> spawn(const Spawn& what);

// Our environment with these variables added or replaced.
[[nodiscard]] std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& more);

// Waits until the process ends; returns waitpid()'s status.
int wait_for(pid_t process);

}  // namespace windlass
