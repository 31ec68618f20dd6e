// RankProcesses: the processes of a worker's other ranks. Rank 0 starts them, and they never outlive it.
//
// Each runs this program with the same arguments plus two that give its rank and the file descriptor of the shared memory. The
// kernel ends them when rank 0 ends, for whatever reason. They ignore SIGTERM, SIGINT and SIGHUP, because rank 0 drains first
// and then ends them.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <sys/types.h>

#include "planner/base/result.h"
#include "worker/collective/rank_group.h"

namespace windlass::worker {

class RankProcesses {
 public:
  // `arguments`: of this program, without its name. REQUIRES: called on a thread that lives as long as the process; the group
  // outlives this object. Error: kUnavailable.
  [[nodiscard]] static Result<std::unique_ptr<RankProcesses>> start(const std::vector<std::string>& arguments,
                                                                    const RankGroup& group);
  // Waits for the ranks to exit, which they do when told to; kills them after some seconds.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Kills them immediately. Any thread.
  void kill();

  // Reports which rank has exited, and how; nothing while all run. Any thread.
  [[nodiscard]] std::optional<std::string> ended();

 private:
  struct Process {
    int rank = 0;
    pid_t id = -1;
    std::optional<int> status;  // set once it has exited
  };

  explicit RankProcesses(const RankGroup& group) : group_(group) {}
  static void look(Process& process);

  const RankGroup& group_;
  std::mutex mutex_;
  std::vector<Process> processes_;
};

}  // namespace windlass::worker
