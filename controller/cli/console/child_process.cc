// Starts, watches and ends our programs as child processes; see child_process.h.
#include "controller/cli/console/child_process.h"

#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace windlass::cli {

Error system_error(const std::string& what) {
  return Error{ErrorCode::kInternal, fmt::format("{}: {}", what, std::strerror(errno))};
}

namespace {

std::vector<char*> c_argv(const std::vector<std::string>& argv) {
  std::vector<char*> pointers;
  for (const auto& argument : argv) pointers.push_back(const_cast<char*>(argument.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Between fork and exec: only what is safe after a fork of a program with threads.
void reset_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE}) ::signal(number, SIG_DFL);
}

int waited(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace

Result<ChildProcess> ChildProcess::start(std::string name, const std::vector<std::string>& argv, const std::string& log_path,
                                         int inherited_fd) {
  const int log = open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (log < 0) return system_error("opening the log " + log_path);
  // The child writes errno here when exec fails; a close without a byte means that it runs.
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) {
    close(log);
    return system_error("starting " + name);
  }
  auto pointers = c_argv(argv);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    if (getppid() != parent) _exit(127);  // we died before the line above
    setpgid(0, 0);
    reset_signals();
    const int null = open("/dev/null", O_RDONLY);
    dup2(null, STDIN_FILENO);
    dup2(log, STDOUT_FILENO);
    dup2(log, STDERR_FILENO);
    if (inherited_fd >= 0) fcntl(inherited_fd, F_SETFD, 0);  // not closed by exec
    execv(pointers[0], pointers.data());
    const int error = errno;
    (void)!write(report[1], &error, sizeof error);
    _exit(127);
  }
  close(log);
  close(report[1]);
  if (pid < 0) {
    close(report[0]);
    return system_error("starting " + name);
  }
  int error = 0;
  ssize_t got = 0;
  while ((got = read(report[0], &error, sizeof error)) < 0 && errno == EINTR) {
  }
  close(report[0]);
  if (got == sizeof error) {
    waited(pid);
    errno = error;
    return system_error(fmt::format("starting {} ({})", name, argv[0]));
  }
  return ChildProcess(std::move(name), log_path, pid);
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
  kill(-pid_, SIGKILL);  // and what it has started
  waited(pid_);
}

std::optional<std::string> ChildProcess::ended() {
  if (!reaped_) {
    int status = 0;
    if (waitpid(pid_, &status, WNOHANG) != pid_) return std::nullopt;
    reaped_ = true;
    status_ = status;
  }
  if (WIFSIGNALED(status_)) return fmt::format("was ended by signal {}", WTERMSIG(status_));
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
    return Error{ErrorCode::kNotFound,
                 fmt::format("{}: found no program there; it is built and installed beside windlass", path.string())};
  }
  return path.string();
}

Result<int> run_program(const std::vector<std::string>& argv) {
  auto pointers = c_argv(argv);
  const pid_t pid = fork();
  if (pid < 0) return system_error("starting " + argv[0]);
  if (pid == 0) {
    reset_signals();
    execv(pointers[0], pointers.data());
    _exit(127);
  }
  const int status = waited(pid);
  if (WIFSIGNALED(status)) return 128 + WTERMSIG(status);
  return WEXITSTATUS(status);
}

}  // namespace windlass::cli
