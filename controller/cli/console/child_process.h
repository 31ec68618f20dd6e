// ChildProcess: starts one of our programs as a child that never outlives this process.
//
// The child gets its own process group, so that Ctrl-C at a terminal reaches this program alone, which then decides the order
// in which things stop. PR_SET_PDEATHSIG ends the child if this process is killed. Its output is appended to a log file.
// Single-threaded; REQUIRES: started from a thread that lives as long as the program (the main thread).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "planner/base/result.h"

namespace windlass::cli {

// "WHAT: why", with the text of errno.
[[nodiscard]] Error system_error(const std::string& what);

class ChildProcess {
 public:
  // argv[0] is the program's path. `name` appears in messages. The child keeps our descriptor `inherited_fd` under the same
  // number; -1: none.
  [[nodiscard]] static Result<ChildProcess> start(std::string name, const std::vector<std::string>& argv,
                                                  const std::string& log_path, int inherited_fd = -1);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // sends SIGKILL if it still runs

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& log_path() const { return log_path_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

  // Never blocks. "exited with status 3" or "was killed by signal 9"; nullopt while it runs.
  [[nodiscard]] std::optional<std::string> ended();
  [[nodiscard]] bool ended_well() const { return status_ == 0; }  // REQUIRES: ended()

  void signal(int number);  // does nothing once it has ended

  // The last lines of the log, for a message that says why it died.
  [[nodiscard]] std::string log_tail(int lines = 5) const;

 private:
  ChildProcess(std::string name, std::string log_path, pid_t pid);

  std::string name_;
  std::string log_path_;
  pid_t pid_ = -1;  // -1: moved from
  bool reaped_ = false;
  int status_ = 0;  // from waitpid()
};

// The path of a program in the same folder as this one. The error names the path that was tried.
[[nodiscard]] Result<std::string> sibling_program(const std::string& name);

// Runs a program in the foreground on our own standard streams and waits for it. Returns its exit status.
[[nodiscard]] Result<int> run_program(const std::vector<std::string>& argv);

}  // namespace windlass::cli
