// Starts, watches and stops our programs as child processes; see child_process.h.
#include "controller/cli/console/child_process.h"

#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "metrics/host/spawn.h"

namespace windlass::cli {

Error system_error(const std::string& what) {
  return Error{ErrorCode::kInternal, fmt::format("{}: {}", what, std::strerror(errno))};
}

Result<ChildProcess> ChildProcess::start(std::string name, const std::vector<std::string>& argv, const std::string& log_path,
                                         int inherited_fd) {
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return system_error("opening the log " + log_path);
  Spawn child{.program = argv[0],
              .argv = argv,
              .in = Spawn::kNull,
              .out = log,
              .err = log,
              .group = Spawn::Group::kOwn,
              .death_signal = SIGTERM};
  if (inherited_fd >= 0) child.kept = {inherited_fd};
  const auto pid = spawn(child);
  close(log);
  if (!pid.ok()) return pid.error().within("starting " + name);
  return ChildProcess(std::move(name), log_path, *pid);
}

ChildProcess::ChildProcess(std::string name, std::string log_path, pid_t pid)
    : name_(std::move(name)), log_path_(std::move(log_path)), pid_(pid) {}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept { *this = std::move(other); }

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  std::swap(name_, other.name_);
  std::swap(log_path_, other.log_path_);
  std::swap(pid_, other.pid_);
  std::swap(reaped_, other.reaped_);
  std::swap(status_, other.status_);
  return *this;
}

ChildProcess::~ChildProcess() {
  if (pid_ < 0 || reaped_) return;
  kill(pid_, SIGKILL);
  kill(-pid_, SIGKILL);  // the whole process group
  wait_for(pid_);
}

std::optional<std::string> ChildProcess::ended() {
  if (!reaped_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
    reaped_ = true;
    status_ = status;
  }
  if (WIFSIGNALED(status_)) return fmt::format("was killed by signal {}", WTERMSIG(status_));
  return fmt::format("exited with status {}", WEXITSTATUS(status_));
}

void ChildProcess::signal(int number) {
  if (pid_ > 0 && !reaped_) kill(pid_, number);
}

std::string ChildProcess::log_tail(int lines) const {
  std::ifstream in(log_path_);
  std::deque<std::string> last;
  for (std::string line; std::getline(in, line);) {
    last.push_back(line);
    if (last.size() > static_cast<std::size_t>(lines)) last.pop_front();
  }
  std::string text;
  for (const auto& line : last) text += "  " + line + "\n";
  return text;
}

Result<std::string> sibling_program(const std::string& name) {
  std::error_code error;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return Error{ErrorCode::kInternal, "reading /proc/self/exe: " + error.message()};
  const auto path = self.parent_path() / name;
  if (access(path.c_str(), X_OK) != 0) {
    return Error{
        ErrorCode::kNotFound,
        fmt::format("{}: must be a program (got nothing there); it is built and installed next to windlass", path.string())};
  }
  return path.string();
}

Result<int> run_program(const std::vector<std::string>& argv) {
  const auto pid = spawn({.program = argv[0], .argv = argv});
  if (!pid.ok()) return pid.error().within("starting");
  const int status = wait_for(*pid);
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  return WEXITSTATUS(status);
}

}  // namespace windlass::cli
