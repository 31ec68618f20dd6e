// LocalRuntime runs workers as processes on this machine. It does what the kubelet does for pods: it starts them, restarts them
// with back-off, polls /ready and ends them with a grace period. Engines of other projects get SIGTERM once they have no
// requests; one that never becomes ready is not restarted again. Single-threaded; owned by the composition root.
//
// Without WorkerRecords, the workers die with this process (PR_SET_PDEATHSIG). With them, workers survive a crash of it, and
// the next LocalRuntime with the same records adopts them. An adopted worker that ends is finished; it is not restarted under
// its name.
#pragma once

#include <memory>

#include <sys/types.h>

#include "controller/kube/http_transport.h"
#include "controller/runtime/worker_records.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

struct LocalRuntimeOptions {
  std::string worker_binary;     // path of windlass-worker
  std::string log_directory;     // has one file per worker; must exist
  std::string model_root;        // base of relative file:// paths
  int gpus = 1;                  // GPUs that this machine offers of every class
  double restart_backoff_s = 1;  // doubles with each crash, up to restart_backoff_max_s
  double restart_backoff_max_s = 60;
  double probe_period_s = 0.5;
};

class LocalRuntime final : public WorkerRuntime {
 public:
  // `transport` carries the readiness probes and outlives this.
  LocalRuntime(LocalRuntimeOptions options, kube::HttpTransport& transport,
               std::optional<WorkerRecords> records = std::nullopt);
  ~LocalRuntime() override;  // ends all workers: SIGTERM, then SIGKILL for those that remain after a few seconds
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
  // There are no voluntary disruptions on this machine.
  [[nodiscard]] Result<void> set_disruption_budgets(const std::vector<DisruptionBudget>&) override { return {}; }
  [[nodiscard]] Result<void> begin_drain(const Worker& worker, Instant now) override;
  [[nodiscard]] Result<void> begin_role_change(const Worker& worker, const std::string& role, Instant now) override;
  [[nodiscard]] Result<void> end_role_change(const Worker& worker) override;
  [[nodiscard]] Result<void> terminate(const Worker& worker, std::optional<double> grace_s) override;
  [[nodiscard]] Result<void> release(const Worker& worker) override;

 private:
  struct Process;
  // Start attempts of another project's engine, by spec hash.
  struct Starts {
    int failed = 0;
    bool ever_ready = false;
    std::string verdict;  // why it is not started again
  };
  using Key = std::pair<std::string, std::string>;  // (namespace, name)

  [[nodiscard]] Result<Process*> find(const Worker& worker);
  void adopt(const WorkerRecord& record);
  bool save(const Process& process);  // false: problem() has the reason
  [[nodiscard]] Result<void> start(Process& process);
  void reap(Process& process);
  void note_crash(Process& process, const std::string& how);
  void note_failed_start(Process& process, const std::string& how);
  void tell_to_end(Process& process);
  void probe_all();

  LocalRuntimeOptions options_;
  kube::HttpTransport& transport_;
  std::optional<WorkerRecords> records_;
  const std::string duty_token_;  // of the workers started here. Not recorded: files may be read by others
  std::string problem_;           // why the last record could not be written
  std::map<Key, std::unique_ptr<Process>> processes_;
  std::map<std::string, Starts> starts_;
  Instant now_;
  double next_probe_s_ = 0;
  long incarnations_ = 0;
};

}  // namespace windlass::controller
