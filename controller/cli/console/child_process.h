// ChildProcess: one of our programs, started from here and never outliving us.
//
// The child gets its own process group, so that Ctrl-C at a terminal reaches this program alone and it decides the order in
// which things stop; and PR_SET_PDEATHSIG, so that it ends when we are killed. Its output is appended to a log file.
// Single-threaded; REQUIRES: started from the thread that lives as long as the program (the main thread).
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "planner/base/result.h"

namespace windlass::cli {

// "WHAT: why", as errno has it.
[[nodiscard]] Error system_error(const std::string& what);

class ChildProcess {
 public:
  // argv[0] is the program's path. `name` is for messages. `inherited_fd`: a descriptor of ours that the child keeps, under the
  // same number; -1: none.
  [[nodiscard]] static Result<ChildProcess> start(std::string name, const std::vector<std::string>& argv,
                                                  const std::string& log_path, int inherited_fd = -1);

  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();  // SIGKILL to what still runs

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& log_path() const { return log_path_; }
  [[nodiscard]] pid_t pid() const { return pid_; }

  // Never blocks. "exited with status 3", "was ended by signal 9"; nullopt while it runs.
  [[nodiscard]] std::optional<std::string> ended();
  [[nodiscard]] bool ended_well() const { return status_ == 0; }  // REQUIRES: ended()

  void signal(int number);  // nothing when it has ended

  // The log's last lines, for a message about why it died.
  [[nodiscard]] std::string log_tail(int lines = 5) const;

 private:
  ChildProcess(std::string name, std::string log_path, pid_t pid);

  std::string name_;
  std::string log_path_;
  pid_t pid_ = -1;  // -1: moved from
  bool reaped_ = false;
  int status_ = 0;  // as waitpid gives it
};

// The path of a program that stands beside this one; an error that names where it was looked for.
[[nodiscard]] Result<std::string> sibling_program(const std::string& name);

// Runs a program in the foreground with our own standard streams and waits. Its exit status.
[[nodiscard]] Result<int> run_program(const std::vector<std::string>& argv);

}  // namespace windlass::cli
