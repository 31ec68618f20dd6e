// AttachedRuntime watches servers that somebody else runs, for `windlass attach`. It checks whether they answer; it starts and
// stops nothing. Single-threaded; owned by the composition root.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "controller/kube/http_transport.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

struct AttachedServer {
  std::string service;      // name of a ModelService in namespace "default"
  std::string address;      // HOST:PORT, without TLS
  std::string accelerator;  // AcceleratorClass of its GPUs
  int gpus = 1;
  int slots = 1;  // requests that it can run at the same time
};

// Parses a JSON list of objects with the fields service, address, accelerator, gpus and slots. Error: has the item and the
// field.
[[nodiscard]] Result<std::vector<AttachedServer>> attached_servers_from_json(const std::string& text);
[[nodiscard]] std::string to_json(const std::vector<AttachedServer>& servers);

class AttachedRuntime final : public WorkerRuntime {
 public:
  // `uid_of`: the UID of ModelService default/NAME, "" if there is none. `transport` outlives this.
  AttachedRuntime(std::vector<AttachedServer> servers, std::function<std::string(const std::string& service)> uid_of,
                  kube::HttpTransport& transport);

  void step(Instant now) override;
  [[nodiscard]] bool synced() const override { return looked_; }
  [[nodiscard]] std::string problem() const override { return {}; }
  [[nodiscard]] std::vector<Worker> workers() const override;
  [[nodiscard]] std::map<std::string, GpuCapacity> capacity(const std::vector<ClassSelector>& classes) const override;
  [[nodiscard]] Result<void> check(const Launch& spec) override;
  [[nodiscard]] Result<void> create(const Launch& spec) override;
  [[nodiscard]] bool name_taken(const std::string&, const std::string&) const override { return false; }
  [[nodiscard]] double not_before_s() const override { return 0; }
  [[nodiscard]] Result<void> set_disruption_budgets(const std::vector<DisruptionBudget>&) override { return {}; }
  [[nodiscard]] Result<void> begin_drain(const Worker& worker, Instant now) override;
  [[nodiscard]] Result<void> begin_role_change(const Worker& worker, const std::string& role, Instant now) override;
  [[nodiscard]] Result<void> end_role_change(const Worker& worker) override;
  [[nodiscard]] Result<void> terminate(const Worker& worker, std::optional<double> grace_s) override;
  [[nodiscard]] Result<void> release(const Worker& worker) override;

 private:
  struct Server {
    Worker worker;
    std::string service;
    double answered_s = 0;  // monotonic; time of the last answer
  };

  std::vector<Server> servers_;
  std::function<std::string(const std::string&)> uid_of_;
  kube::HttpTransport& transport_;
  bool looked_ = false;
  double next_look_s_ = 0;
};

}  // namespace windlass::controller
