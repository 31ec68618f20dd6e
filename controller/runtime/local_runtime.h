// LocalRuntime: workers as processes on this machine. What the kubelet does for pods is done here: start, restart with
// back-off, ask /ready, end with a grace period. Engines of other projects are told to end once they have no request, and given
// up when they never start. Single-threaded; owned by the composition root.
//
// Without WorkerRecords the workers die with this process (PR_SET_PDEATHSIG). With them they outlive a crash of it, and the
// next LocalRuntime on the same records adopts them: an adopted worker that ends is finished, and not started again by its
// name.
#pragma once

#include <memory>

#include <sys/types.h>

#include "controller/kube/http_transport.h"
#include "controller/runtime/worker_records.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

struct LocalRuntimeOptions {
  std::string worker_binary;     // path of windlass-worker
  std::string log_directory;     // one file per worker; must exist
  std::string model_root;        // file:// paths that are not absolute start here
  int gpus = 1;                  // what this machine offers of every class
  double restart_backoff_s = 1;  // doubles with every crash up to restart_backoff_max_s
  double restart_backoff_max_s = 60;
  double probe_period_s = 0.5;
};

class LocalRuntime final : public WorkerRuntime {
 public:
  // `transport` carries the readiness probes and outlives this.
  LocalRuntime(LocalRuntimeOptions options, kube::HttpTransport& transport,
               std::optional<WorkerRecords> records = std::nullopt);
  ~LocalRuntime() override;  // ends all workers: SIGTERM, then SIGKILL to what has not gone within a few seconds
  LocalRuntime(const LocalRuntime&) = delete;
  LocalRuntime& operator=(const LocalRuntime&) = delete;

  void step(Instant now) override;
  [[nodiscard]] bool synced() const override { return true; }
  [[nodiscard]] std::string problem() const override { return problem_; }
  [[nodiscard]] std::vector<Worker> workers() const override;
  [[nodiscard]] std::map<std::string, GpuCapacity> capacity(const std::vector<ClassSelector>& classes) const override;
  [[nodiscard]] Result<void> check(const Launch& spec) override;
  [[nodiscard]] Result<void> create(const Launch& spec) override;
  [[nodiscard]] bool name_taken(const std::string&, const std::string&) const override { return false; }
  [[nodiscard]] double not_before_s() const override { return 0; }
  // Nobody but us ends processes of this machine.
  [[nodiscard]] Result<void> set_disruption_budgets(const std::vector<DisruptionBudget>&) override { return {}; }
  [[nodiscard]] Result<void> begin_drain(const Worker& worker, Instant now) override;
  [[nodiscard]] Result<void> terminate(const Worker& worker, std::optional<double> grace_s) override;
  [[nodiscard]] Result<void> release(const Worker& worker) override;

 private:
  struct Process;
  // Of another engine, by the hash of its spec.
  struct Starts {
    int failed = 0;
    bool ever_ready = false;
    std::string verdict;  // why there will be no further start
  };
  using Key = std::pair<std::string, std::string>;  // (namespace, name)

  void adopt(const WorkerRecord& record);
  bool save(const Process& process);  // false: problem() says why not
  [[nodiscard]] Result<void> start(Process& process);
  void reap(Process& process);
  void note_crash(Process& process, const std::string& how);
  void note_failed_start(Process& process, const std::string& how);
  void tell_to_end(Process& process);
  void probe_all();

  LocalRuntimeOptions options_;
  kube::HttpTransport& transport_;
  std::optional<WorkerRecords> records_;
  std::string problem_;  // why the last record could not be written
  std::map<Key, std::unique_ptr<Process>> processes_;
  std::map<std::string, Starts> starts_;
  Instant now_;
  double next_probe_s_ = 0;
  long incarnations_ = 0;
};

}  // namespace windlass::controller
