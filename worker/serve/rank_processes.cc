// fork and exec; between them only calls that are safe while other threads may hold locks.
#include "worker/serve/rank_processes.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/core.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace windlass::worker {
namespace {

constexpr int kEndLooks = 250;  // of 20 ms: how long ranks may take to end
constexpr int kLookMs = 20;

[[noreturn]] void become_rank(char* const* argv, int memory, pid_t parent) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent) ::_exit(127);  // rank 0 has ended between fork and prctl
  ::signal(SIGTERM, SIG_IGN);
  ::signal(SIGINT, SIG_IGN);
  ::fcntl(memory, F_SETFD, 0);  // stays open
  ::execv("/proc/self/exe", argv);
  ::_exit(127);
}

}  // namespace

Result<std::unique_ptr<RankProcesses>> RankProcesses::start(const std::vector<std::string>& arguments, const RankGroup& group) {
  std::unique_ptr<RankProcesses> started(new RankProcesses(group));
  ::signal(SIGCHLD, SIG_DFL);  // whoever started us may have it ignored: then nobody could wait for a rank
  for (int rank = 1; rank < group.ranks(); ++rank) {
    std::vector<std::string> words = {"windlass-worker"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.push_back(fmt::format("--tensor-rank={}", rank));
    words.push_back(fmt::format("--tensor-memory={}", group.descriptor()));
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    const pid_t id = ::fork();
    if (id == 0) become_rank(argv.data(), group.descriptor(), parent);
    if (id < 0) {
      const Error error{ErrorCode::kUnavailable,
                        fmt::format("rank {} of {}: fork: {}", rank, group.ranks(), std::strerror(errno))};
      started->kill();
      return error;
    }
    started->processes_.push_back({rank, id, std::nullopt});
  }
  return started;
}

RankProcesses::~RankProcesses() {
  const auto all_ended = [&] {
    for (Process& each : processes_) look(each);
    return std::all_of(processes_.begin(), processes_.end(), [](const Process& each) { return each.status.has_value(); });
  };
  for (int i = 0; i < kEndLooks && !all_ended(); ++i) ::poll(nullptr, 0, kLookMs);
  for (const Process& each : processes_) {
    if (each.status) continue;
    ::kill(each.id, SIGKILL);
    ::waitpid(each.id, nullptr, 0);
  }
}

void RankProcesses::kill() {
  const std::scoped_lock lock(mutex_);
  for (Process& each : processes_) {
    look(each);
    if (!each.status) ::kill(each.id, SIGKILL);
  }
}

void RankProcesses::look(Process& process) {
  int status = 0;
  if (!process.status && ::waitpid(process.id, &status, WNOHANG) == process.id) process.status = status;
}

std::optional<std::string> RankProcesses::ended() {
  const std::scoped_lock lock(mutex_);
  for (Process& each : processes_) {
    look(each);
    if (!each.status) continue;
    const auto why = group_.failure();
    return fmt::format("rank {} of {} (process {}) {}{}", each.rank, group_.ranks(), each.id,
                       WIFSIGNALED(*each.status) ? fmt::format("was ended by signal {}", WTERMSIG(*each.status))
                                                 : fmt::format("has exited with status {}", WEXITSTATUS(*each.status)),
                       why ? ": " + *why : "");
  }
  return std::nullopt;
}

}  // namespace windlass::worker
