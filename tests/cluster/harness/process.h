// Process: a real program started by a test or by the test kubelet, and ended with it.
//
// The child gets a process group of its own and PR_SET_PDEATHSIG=SIGKILL, so that it goes when the thread that started it goes,
// even when the test is killed: start a Process on a thread that lives at least as long as the child. The destructor kills the
// group and reaps the child. Not thread-safe, but for signal() and pid(), which any thread may call while the object lives.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "planner/base/result.h"

namespace windlass::testing {

struct ProcessOptions {
  std::vector<std::string> argv;           // argv[0]: a path, or a name looked up on PATH
  std::map<std::string, std::string> env;  // on top of our own environment
  bool clean_env = false;                  // nothing of our own environment but PATH and HOME
  std::string log_path;                    // stdout and stderr are appended here; empty: /dev/null
  std::string stdout_path;                 // where set, stdout goes here instead
  std::string stdin_path = "/dev/null";
  std::string working_dir;
};

class Process {
 public:
  [[nodiscard]] static Result<std::unique_ptr<Process>> start(const ProcessOptions& options);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  [[nodiscard]] pid_t pid() const { return pid_; }
  [[nodiscard]] const std::string& log_path() const { return log_path_; }

  // To the program alone (not to its group).
  void signal(int number) const;

  // The exit status once it has ended: 0-255, or 128 + signal. Never blocks.
  std::optional<int> poll();
  [[nodiscard]] bool running() { return !poll().has_value(); }

  // Waits for its end; nothing when it still runs at the deadline.
  std::optional<int> wait(std::chrono::milliseconds deadline);

  // SIGTERM, then SIGKILL to the group once `grace` is over. Returns the exit status.
  int stop(std::chrono::milliseconds grace);

 private:
  Process(pid_t pid, std::string log_path) : pid_(pid), log_path_(std::move(log_path)) {}

  pid_t pid_;
  std::string log_path_;
  std::optional<int> exit_status_;
};

struct CommandResult {
  int exit_status = -1;  // 128 + signal where a signal ended it; 124 when it ran past the deadline
  std::string out;
  std::string err;

  [[nodiscard]] bool ok() const { return exit_status == 0; }
  // "exit status 1\nstdout...\nstderr..." for a failure's message.
  [[nodiscard]] std::string describe() const;
};

// Runs a program to its end and returns what it printed.
[[nodiscard]] CommandResult run_command(const std::vector<std::string>& argv, const std::string& input = "",
                                        const std::map<std::string, std::string>& env = {},
                                        std::chrono::milliseconds deadline = std::chrono::seconds(300));

// The whole file, or "" where it can't be read.
[[nodiscard]] std::string read_text_file(const std::string& path);
void write_text_file(const std::string& path, const std::string& text);
// The last `lines` lines of a file.
[[nodiscard]] std::string tail_of_file(const std::string& path, int lines);

// A folder under the system's temporary folder, removed with the object (kept where WINDLASS_TEST_KEEP is set).
class TempDir {
 public:
  explicit TempDir(const std::string& prefix);
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

}  // namespace windlass::testing
