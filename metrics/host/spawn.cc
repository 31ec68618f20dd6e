// Allocates all memory before the fork: between fork and exec only async-signal-safe calls are allowed, because other threads
// may hold locks.
#include "metrics/host/spawn.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace windlass {
namespace {

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

struct Pipe {
  int read = -1, write = -1;
  Pipe() = default;
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  ~Pipe() {
    close_end(read);
    close_end(write);
  }
  bool open() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return false;
    read = ends[0];
    write = ends[1];
    return true;
  }
  static void close_end(int& end) {
    if (end >= 0) ::close(end);
    end = -1;
  }
};

// 0, or the errno that the child sent. When the program runs, the pipe closes without one.
int received_errno(int from) {
  int why = 0;
  ssize_t got = 0;
  while ((got = ::read(from, &why, sizeof why)) < 0 && errno == EINTR) {
  }
  return got == sizeof why ? why : 0;
}

// Redirects one stream of the child. Returns false with errno set.
bool redirect(int from, int stream) {
  if (from == Spawn::kOurs) return true;
  if (from == Spawn::kNull) from = ::open("/dev/null", O_RDWR);
  return from >= 0 && ::dup2(from, stream) == stream;
}

// Runs in the child; returns with errno set when it fails. Async-signal-safe.
void become(const Spawn& what, int in, int out, int err, char* const* argv, char* const* envp) {
  if (what.group == Spawn::Group::kOwn && ::setpgid(0, 0) != 0) return;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGPIPE}) ::signal(number, SIG_DFL);
  for (const int number : what.ignored_signals) ::signal(number, SIG_IGN);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (!redirect(in, STDIN_FILENO) || !redirect(out, STDOUT_FILENO) || !redirect(err, STDERR_FILENO)) return;
  // Libraries open files without O_CLOEXEC. Kernels before 5.11 lack this call, and the rest works without it.
  ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
  for (const int kept : what.kept) {
    if (::fcntl(kept, F_SETFD, 0) != 0) return;
  }
  if (!what.folder.empty() && ::chdir(what.folder.c_str()) != 0) return;
  ::execve(what.program.c_str(), argv, envp);
}

// A duplicate descriptor above 2, so that dup2() cannot overwrite one that is still needed.
int above_streams(int descriptor) {
  return descriptor < 0 || descriptor > STDERR_FILENO ? descriptor : ::fcntl(descriptor, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
}

}  // namespace

Result<pid_t> spawn(const Spawn& what) {
  const auto failed = [&](int why) {
    // The kernel also reports ENOENT when a script's interpreter is missing.
    const bool is_there = why == ENOENT && ::access(what.program.c_str(), F_OK) == 0;
    return Error{ErrorCode::kUnavailable,
                 fmt::format("{}: {}{}", what.program, is_there ? "its interpreter: " : "", std::strerror(why))};
  };
  const std::vector<char*> argv = pointers_to(what.argv);
  const std::vector<char*> environment = what.environment ? pointers_to(*what.environment) : std::vector<char*>{};
  char* const* const envp = what.environment ? environment.data() : environ;
  Pipe report, go;
  if (!report.open() || (what.before && !go.open())) return failed(errno);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child < 0) return failed(errno);
  if (child == 0) {
    const int reports_to = above_streams(report.write);
    if (what.death_signal != 0) ::prctl(PR_SET_PDEATHSIG, what.death_signal);
    if (what.death_signal != 0 && ::getppid() != parent) ::_exit(127);  // the parent died before prctl
    if (go.write >= 0) {
      ::close(go.write);
      char byte = 0;
      ssize_t got = 0;
      while ((got = ::read(go.read, &byte, 1)) < 0 && errno == EINTR) {
      }
      if (got != 1) ::_exit(127);
    }
    const int in = above_streams(what.in), out = above_streams(what.out), err = above_streams(what.err);
    const bool moved = (what.in < 0 || in >= 0) && (what.out < 0 || out >= 0) && (what.err < 0 || err >= 0);
    if (moved) become(what, in, out, err, argv.data(), envp);
    const int why = errno;
    (void)!::write(reports_to, &why, sizeof why);
    ::_exit(127);
  }
  Pipe::close_end(report.write);
  if (what.before) {
    if (const auto allowed = what.before(child); !allowed.ok()) {
      Pipe::close_end(go.write);
      wait_for(child);
      return allowed.error();
    }
    (void)!::write(go.write, "g", 1);  // we also hold the reading end: no SIGPIPE
  }
  const int why = received_errno(report.read);
  if (why == 0) return child;
  wait_for(child);
  return failed(why);
}

std::vector<std::string> environment_with(const std::vector<std::pair<std::string, std::string>>& more) {
  std::vector<std::string> all;
  for (const auto& [name, value] : more) all.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const bool replaced = std::any_of(more.begin(), more.end(), [&](const auto& one) {
      return text.starts_with(one.first) && text.substr(one.first.size()).starts_with('=');
    });
    if (!replaced) all.emplace_back(text);
  }
  return all;
}

int wait_for(pid_t process) {
  int status = 0;
  while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}

}  // namespace windlass
