// Runs a program with two pipes and a deadline.
#include "controller/kube/subprocess.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "metrics/host/clock.h"
#include "metrics/host/spawn.h"

namespace windlass::kube {
namespace {

constexpr std::size_t kMaxOutputBytes = 1 << 20;

// A file descriptor that closes itself.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() { close(); }
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  void set(int fd) {
    close();
    fd_ = fd;
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_ = -1;
};

struct Pipe {
  Fd read, write;
  bool open() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read.set(ends[0]);
    write.set(ends[1]);
    return true;
  }
};

// Path of the command on PATH; empty if not found.
std::string find_on_path(const std::string& command) {
  if (command.find('/') != std::string::npos) return access(command.c_str(), X_OK) == 0 ? command : "";
  const char* path = std::getenv("PATH");
  std::string dirs = path != nullptr ? path : "/usr/local/bin:/usr/bin:/bin";
  for (std::size_t begin = 0; begin <= dirs.size();) {
    std::size_t end = std::min(dirs.find(':', begin), dirs.size());
    std::string candidate = dirs.substr(begin, end - begin) + "/" + command;
    if (end > begin && access(candidate.c_str(), X_OK) == 0) return candidate;
    begin = end + 1;
  }
  return "";
}

// Returns whether the pipe may deliver more.
bool read_some(Fd& from, std::string& into) {
  char chunk[4096];
  ssize_t got = ::read(from.get(), chunk, sizeof(chunk));
  if (got > 0) {
    into.append(chunk, static_cast<std::size_t>(got));
    return true;
  }
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  from.close();
  return false;
}

}  // namespace

Result<ProgramRun> run_program(const std::string& command, const std::vector<std::string>& args,
                               const std::vector<std::pair<std::string, std::string>>& env, bool inherit_stdin,
                               double timeout_s) {
  std::string path = find_on_path(command);
  if (path.empty()) return Error{ErrorCode::kNotFound, fmt::format("'{}': no such program (or not executable)", command)};
  std::vector<std::string> words{command};
  words.insert(words.end(), args.begin(), args.end());
  Pipe out, err;
  if (!out.open() || !err.open()) return Error{ErrorCode::kUnavailable, fmt::format("'{}': {}", command, std::strerror(errno))};
  // A plugin that uses the terminal stays in our process group; otherwise it could not read from the terminal.
  const auto started = spawn({.program = path,
                              .argv = words,
                              .environment = environment_with(env),
                              .in = inherit_stdin ? Spawn::kOurs : Spawn::kNull,
                              .out = out.write.get(),
                              .err = err.write.get(),
                              .group = inherit_stdin ? Spawn::Group::kOurs : Spawn::Group::kOwn});
  if (!started.ok()) return started.error().within(fmt::format("'{}'", command));
  const pid_t pid = *started;
  out.write.close();
  err.write.close();
  ProgramRun run;
  double deadline_s = monotonic_s() + timeout_s;
  Error failed{ErrorCode::kInternal, ""};
  bool give_up = false;
  while (!give_up && (out.read.get() >= 0 || err.read.get() >= 0)) {
    double left_s = deadline_s - monotonic_s();
    if (left_s <= 0) {
      failed = {ErrorCode::kDeadlineExceeded, fmt::format("'{}': did not end within {} s", command, timeout_s)};
      give_up = true;
      break;
    }
    pollfd waiting[2] = {{out.read.get(), POLLIN, 0}, {err.read.get(), POLLIN, 0}};  // poll ignores negative descriptors
    if (poll(waiting, 2, static_cast<int>(left_s * 1000) + 1) < 0 && errno != EINTR) break;
    if (waiting[0].revents != 0) read_some(out.read, run.out);
    if (waiting[1].revents != 0) read_some(err.read, run.err);
    if (run.out.size() > kMaxOutputBytes || run.err.size() > kMaxOutputBytes) {
      failed = {ErrorCode::kResourceExhausted, fmt::format("'{}': wrote more than {} bytes", command, kMaxOutputBytes)};
      give_up = true;
    }
  }
  // Its pipes are closed, but it may still run for a while, or forever.
  int status = 0;
  while (!give_up && waitpid(pid, &status, WNOHANG) == 0) {
    if (monotonic_s() >= deadline_s) {
      failed = {ErrorCode::kDeadlineExceeded, fmt::format("'{}': did not end within {} s", command, timeout_s)};
      give_up = true;
    } else {
      poll(nullptr, 0, 5);
    }
  }
  if (give_up) {
    if (inherit_stdin || kill(-pid, SIGKILL) != 0) kill(pid, SIGKILL);
    wait_for(pid);
    return failed;
  }
  run.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return run;
}

}  // namespace windlass::kube
