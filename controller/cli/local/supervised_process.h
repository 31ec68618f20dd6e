// SupervisedProcess: restarts one of our programs whenever it ends: immediately the first time, then after 1 s, 2 s, 4 s and so
// on up to 30 s. The delay resets once the program has run for a minute. Single-threaded, like ChildProcess.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/cli/console/child_process.h"

namespace windlass::cli {

struct ProgramSpec {
  std::string name;               // for messages
  std::vector<std::string> argv;  // argv[0] is the program's path
  std::string log_path;
  int inherited_fd = -1;  // the child keeps this descriptor of ours under the same number; -1: none
};

class SupervisedProcess {
 public:
  [[nodiscard]] static Result<SupervisedProcess> start(ProgramSpec program, double now_s);

  // Restarts the program if that is due. Returns a message for the user, usually empty: why it ended and when it restarts.
  [[nodiscard]] std::string tend(double now_s);

  // As in ChildProcess; a program that could not be started counts as ended.
  [[nodiscard]] std::optional<std::string> ended();
  [[nodiscard]] bool ended_well() const { return child_ && child_->ended_well(); }  // REQUIRES: ended()
  void signal(int number);
  [[nodiscard]] pid_t pid() const { return child_ ? child_->pid() : -1; }

  // "NAME HOW; its log LOG ends with: ...". REQUIRES: ended().
  [[nodiscard]] std::string last_words();

 private:
  SupervisedProcess(ProgramSpec program, ChildProcess child, double now_s)
      : program_(std::move(program)), child_(std::move(child)), started_s_(now_s) {}

  ProgramSpec program_;
  std::optional<ChildProcess> child_;  // nullopt: the last start failed
  std::string failure_;                // why it failed
  double started_s_;
  double delay_s_ = 0;                  // before the next start
  std::optional<double> restart_at_s_;  // while it is down
};

}  // namespace windlass::cli
