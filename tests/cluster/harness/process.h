// Process: a real program that a test or the test kubelet starts, and that ends with it.
//
// The child gets its own process group and PR_SET_PDEATHSIG=SIGKILL, so that it ends with the thread that started it, even if
// the test is killed. Start a Process on a thread that lives at least as long as the child. The destructor kills the group and
// reaps the child. Not thread-safe, except for signal() and pid(), which any thread may call while the object lives.
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
  std::map<std::string, std::string> env;  // added to our own environment
  bool clean_env = false;                  // pass on only PATH and HOME of our own environment
  std::string log_path;                    // stdout and stderr are appended here; empty: /dev/null
  std::string stdout_path;                 // if set, stdout goes here instead
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

  // Signals only the program, not its group.
  void signal(int number) const;

  // The exit status if it has ended: 0-255, or 128 + signal. Never blocks.
  std::optional<int> poll();
  [[nodiscard]] bool running() { return !poll().has_value(); }

  // Waits until it ends; nullopt if it still runs at the deadline.
  std::optional<int> wait(std::chrono::milliseconds deadline);

  // Sends SIGTERM, then SIGKILL to the group after `grace`. Returns the exit status.
  int stop(std::chrono::milliseconds grace);

 private:
  Process(pid_t pid, std::string log_path) : pid_(pid), log_path_(std::move(log_path)) {}

  pid_t pid_;
  std::string log_path_;
  std::optional<int> exit_status_;
};

struct CommandResult {
  int exit_status = -1;  // 128 + signal if a signal ended it; 124 if it passed the deadline
  std::string out;
  std::string err;

  [[nodiscard]] bool ok() const { return exit_status == 0; }
  // "exit status 1\nstdout...\nstderr..." for failure messages.
  [[nodiscard]] std::string describe() const;
};

// Runs a program until it ends and returns its output.
[[nodiscard]] CommandResult run_command(const std::vector<std::string>& argv, const std::string& input = "",
                                        const std::map<std::string, std::string>& env = {},
                                        std::chrono::milliseconds deadline = std::chrono::seconds(300));

// The whole file, or "" if it cannot be read.
[[nodiscard]] std::string read_text_file(const std::string& path);
void write_text_file(const std::string& path, const std::string& text);
// The last `lines` lines of a file.
[[nodiscard]] std::string tail_of_file(const std::string& path, int lines);

// A folder under the system's temporary folder. Removed with the object unless WINDLASS_TEST_KEEP is set.
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
