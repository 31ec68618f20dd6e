// WorkerRecords: what is known of each local worker process, in a file of its own, so that a controller that is started again
// finds those that its predecessor left running. A process is known by its id together with its start time, since ids are used
// again. Not thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

struct WorkerRecord {
  Worker worker;  // what it is, where it answers, and since when it is ready or drains
  std::string engine;
  std::string log;
  double drain_timeout_s = 0;
  pid_t pid = -1;
  long long start_ticks = 0;  // field 22 of /proc/PID/stat: since boot
  bool stopping = false;
  bool sent_sigterm = false;
  double kill_at_s = 0;  // monotonic, which goes on from one process to the next; while stopping
};

class WorkerRecords {
 public:
  // Makes the folder. Error: it cannot be made.
  [[nodiscard]] static Result<WorkerRecords> open(std::filesystem::path directory);

  // Whole or not at all. Error: names the file.
  [[nodiscard]] Result<void> write(const WorkerRecord& record) const;
  void erase(const std::string& name_space, const std::string& name) const;

  // In the order of (namespace, name). Files that say nothing usable are removed.
  [[nodiscard]] std::vector<WorkerRecord> read() const;

 private:
  explicit WorkerRecords(std::filesystem::path directory) : directory_(std::move(directory)) {}
  [[nodiscard]] std::filesystem::path file_of(const std::string& name_space, const std::string& name) const;

  std::filesystem::path directory_;
};

// 0: no such process.
[[nodiscard]] long long start_ticks_of(pid_t pid);

}  // namespace windlass::controller
