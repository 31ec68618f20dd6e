// ChainRuntime shows the servers of a chain as one worker (planner::GpuSplit). Each server is a pod or process of the runtime
// behind it, with its part of the model's layers. The others know only whole workers, so a chain starts, drains, fails and ends
// as a whole.
//
// A chain is known by its first server, which takes requests. That one is created last and ends first: before it ends, the
// others may still compute for it. A chain without its first server is shown only after kMissingS, since it may be one that is
// being created, and any chain that lacks a server by then has failed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

class ChainRuntime final : public WorkerRuntime {
 public:
  static constexpr double kMissingS = 30;    // until then a list of workers may lack one that was just created
  static constexpr double kLeftGraceS = 30;  // for servers that no longer have a first one to compute for

  explicit ChainRuntime(std::unique_ptr<WorkerRuntime> servers) : servers_(std::move(servers)) {}

  void step(Instant now) override;
  [[nodiscard]] Result<void> settle(Instant now) override;
  void read_anew(Instant now) override { servers_->read_anew(now); }
  [[nodiscard]] bool synced() const override { return servers_->synced(); }
  [[nodiscard]] std::string problem() const override { return servers_->problem(); }
  [[nodiscard]] std::vector<Worker> workers() const override;
  [[nodiscard]] std::map<std::string, GpuCapacity> capacity(const std::vector<ClassSelector>& classes) const override {
    return servers_->capacity(classes);
  }
  [[nodiscard]] Result<void> check(const Launch& spec) override { return servers_->check(spec); }
  // Completes a chain of the same spec whose first server is missing, as after a crash of the controller in between.
  [[nodiscard]] Result<void> create(const Launch& spec) override;
  [[nodiscard]] bool name_taken(const std::string& name_space, const std::string& name) const override {
    return servers_->name_taken(name_space, name);
  }
  [[nodiscard]] double not_before_s() const override { return servers_->not_before_s(); }
  [[nodiscard]] Result<void> set_disruption_budgets(const std::vector<DisruptionBudget>& budgets) override {
    return servers_->set_disruption_budgets(budgets);
  }
  // Of all servers, so that they end although the first one is gone.
  [[nodiscard]] Result<void> begin_drain(const Worker& worker, Instant now) override;
  [[nodiscard]] Result<void> begin_role_change(const Worker& worker, const std::string& role, Instant now) override {
    return servers_->begin_role_change(worker, role, now);
  }
  [[nodiscard]] Result<void> end_role_change(const Worker& worker) override { return servers_->end_role_change(worker); }
  // The first server ends; settle() ends the others after it.
  [[nodiscard]] Result<void> terminate(const Worker& worker, std::optional<double> grace_s) override;
  [[nodiscard]] Result<void> release(const Worker& worker) override;

 private:
  [[nodiscard]] std::vector<Worker> servers_of(const Worker& chain) const;
  [[nodiscard]] bool is_there(const Launch& server) const;
  [[nodiscard]] Result<void> terminate_all(const std::vector<Worker>& servers, std::optional<double> grace_s, Instant now);

  std::unique_ptr<WorkerRuntime> servers_;
  Instant now_;
};

}  // namespace windlass::controller
