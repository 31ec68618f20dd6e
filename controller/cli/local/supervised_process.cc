// Restarts a program when it ends; see supervised_process.h.
#include "controller/cli/local/supervised_process.h"

#include <algorithm>

#include <fmt/format.h>

namespace windlass::cli {
namespace {

constexpr double kStableS = 60;
constexpr double kMinDelayS = 1;
constexpr double kMaxDelayS = 30;

Result<ChildProcess> start_child(const ProgramSpec& program) {
  return ChildProcess::start(program.name, program.argv, program.log_path, program.inherited_fd);
}

}  // namespace

Result<SupervisedProcess> SupervisedProcess::start(ProgramSpec program, double now_s) {
  WINDLASS_ASSIGN_OR_RETURN(ChildProcess child, start_child(program));
  return SupervisedProcess(std::move(program), std::move(child), now_s);
}

std::optional<std::string> SupervisedProcess::ended() { return child_ ? child_->ended() : failure_; }

void SupervisedProcess::signal(int number) {
  if (child_) child_->signal(number);
}

std::string SupervisedProcess::last_words() {
  const std::string how = ended().value_or("runs");
  if (!child_) return fmt::format("{} {}\n", program_.name, how);
  return fmt::format("{} {}; its log {} ends with:\n{}", program_.name, how, program_.log_path, child_->log_tail());
}

std::string SupervisedProcess::tend(double now_s) {
  const auto how = ended();
  if (!how) return {};
  std::string news;
  if (!restart_at_s_) {
    if (now_s - started_s_ >= kStableS) delay_s_ = 0;
    restart_at_s_ = now_s + delay_s_;
    // The first time one line is enough. A program that fails again has a reason, and its log shows it.
    news = delay_s_ > 0 ? fmt::format("{}It restarts in {:.0f} s.\n", last_words(), delay_s_)
                        : fmt::format("{} {}; restarting it.\n", program_.name, *how);
    delay_s_ = std::clamp(2 * delay_s_, kMinDelayS, kMaxDelayS);
  }
  if (now_s < *restart_at_s_) return news;
  restart_at_s_.reset();
  started_s_ = now_s;
  auto child = start_child(program_);
  if (child.ok()) {
    child_.emplace(std::move(child).value());
  } else {
    child_.reset();
    failure_ = "could not be started: " + child.error().message;
  }
  return news;
}

}  // namespace windlass::cli
