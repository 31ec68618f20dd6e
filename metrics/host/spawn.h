// Starts programs as child processes: the one place with fork and exec.
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
  static constexpr int kOurs = -1, kNull = -2;  // of a stream: as we have it; /dev/null
  enum class Group { kOurs, kOwn };

  std::string program;                                                 // its path; PATH is not searched
  std::vector<std::string> argv;                                       // from argv[0] on
  std::optional<std::vector<std::string>> environment = std::nullopt;  // "NAME=VALUE"; none: ours
  std::string folder = {};                                             // that it begins in; empty: ours
  int in = kOurs, out = kOurs, err = kOurs;                            // or descriptors of ours
  std::vector<int> kept = {};  // descriptors that stay open under their numbers; all others above 2 do not
  Group group = Group::kOurs;
  int death_signal = 0;  // that it gets when the thread that started it ends; 0: none
  std::vector<int> ignored_signals = {};
  // Called in our process before the program begins, with the id that it will have. After an error, and when we die meanwhile,
  // it never begins.
  std::function<Result<void>(pid_t)> before = nullptr;
};

// Returns the child's id once the program runs; the caller waits for it. Signals are as a shell gives them: none blocked, and
// SIGINT, SIGTERM, SIGHUP, SIGCHLD and SIGPIPE not ignored, except those named. Error: kUnavailable, why it does not run
// ("/no/such/program: No such file or directory"); or what `before` gave. Any thread.
[[nodiscard]] Result<pid_t> spawn(const Spawn& what);

// Our environment with these variables added or replaced.
[[nodiscard]] std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& more);

// What waitpid() gives once the process has ended.
int wait_for(pid_t process);

}  // namespace windlass
