// Starts the ranks and watches them; see rank_processes.h.
#include "worker/serve/rank_processes.h"

#include <algorithm>
#include <csignal>

#include <fmt/core.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "metrics/host/spawn.h"

namespace windlass::worker {
namespace {

constexpr int kEndLooks = 250;  // number of 20 ms waits for the ranks to exit
constexpr int kLookMs = 20;

}  // namespace

Result<std::unique_ptr<RankProcesses>> RankProcesses::start(const std::vector<std::string>& arguments, const RankGroup& group) {
  std::unique_ptr<RankProcesses> started(new RankProcesses(group));
  ::signal(SIGCHLD, SIG_DFL);  // the parent process may have set it to ignored, which would make waiting for a rank impossible
  for (int rank = 1; rank < group.ranks(); ++rank) {
    std::vector<std::string> words = {"windlass-worker"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.push_back(fmt::format("--tensor-rank={}", rank));
    words.push_back(fmt::format("--tensor-memory={}", group.descriptor()));
    // Ranks end when rank 0 says so or is gone, not by signals that a terminal sends to its group.
    const auto id = spawn({.program = "/proc/self/exe",
                           .argv = words,
                           .kept = {group.descriptor()},
                           .death_signal = SIGKILL,
                           .ignored_signals = {SIGTERM, SIGINT, SIGHUP, SIGPIPE}});
    if (!id.ok()) {
      started->kill();
      return id.error().within(fmt::format("rank {} of {}", rank, group.ranks()));
    }
    started->processes_.push_back({rank, *id, std::nullopt});
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
