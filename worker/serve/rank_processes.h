// RankProcesses: the processes of a worker's other ranks, started by rank 0 and never alive without it.
//
// Each is this program again with the same arguments and two more that say who it is; it inherits the group's memory. The
// kernel ends them when rank 0 ends, however that happens. They ignore SIGTERM, SIGINT and SIGHUP: rank 0 drains, and then ends
// them.
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
  // `arguments`: of this program, without its name. REQUIRES: called on a thread that lives as long as the process; the
  // group outlives this. Error: kUnavailable.
  [[nodiscard]] static Result<std::unique_ptr<RankProcesses>> start(const std::vector<std::string>& arguments,
                                                                    const RankGroup& group);
  // Waits for them to end, which they do when they were told to; ends them by force after some seconds.
  ~RankProcesses();
  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  // Ends them at once. Any thread.
  void kill();

  // Which one has ended, and how; nothing while all live. Any thread.
  [[nodiscard]] std::optional<std::string> ended();

 private:
  struct Process {
    int rank = 0;
    pid_t id = -1;
    std::optional<int> status;  // once it has ended
  };

  explicit RankProcesses(const RankGroup& group) : group_(group) {}
  static void look(Process& process);

  const RankGroup& group_;
  std::mutex mutex_;
  std::vector<Process> processes_;
};

}  // namespace windlass::worker
