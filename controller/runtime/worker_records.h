// WorkerRecords stores each local worker process in a file, so that a restarted controller finds the workers that its
// predecessor left running. A process is identified by its id and start time, because ids are reused. Not thread-safe.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include <sys/types.h>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

struct WorkerRecord {
  Worker worker;  // its identity, its address, and since when it is ready or draining
  std::string engine;
  std::string log;
  double drain_timeout_s = 0;
  pid_t pid = -1;
  long long start_ticks = 0;  // since boot; field 22 of /proc/PID/stat
  bool stopping = false;
  bool sent_sigterm = false;
  double kill_at_s = 0;  // monotonic time, valid across processes; set while stopping
};

class WorkerRecords {
 public:
  // Creates the folder. Error: that failed.
  [[nodiscard]] static Result<WorkerRecords> open(std::filesystem::path directory);

  // Atomic. Error: has the file's name.
  [[nodiscard]] Result<void> write(const WorkerRecord& record) const;
  void erase(const std::string& name_space, const std::string& name) const;

  // In order of (namespace, name). Removes unusable files.
  [[nodiscard]] std::vector<WorkerRecord> read() const;

 private:
  explicit WorkerRecords(std::filesystem::path directory) : directory_(std::move(directory)) {}
  [[nodiscard]] std::filesystem::path file_of(const std::string& name_space, const std::string& name) const;

  std::filesystem::path directory_;
};

// 0: no such process.
[[nodiscard]] long long start_ticks_of(pid_t pid);

}  // namespace windlass::controller
