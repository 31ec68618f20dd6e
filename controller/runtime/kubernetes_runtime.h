// KubernetesRuntime: workers as pods that their ModelService owns.
//
// Pod names are fixed by service, pool and slot, so a second create is a conflict; pods are adopted by their owner's UID alone,
// and only those of this installation (label windlass.dev/instance); deletes carry uid and resourceVersion; a finalizer is held
// only while draining, so that whoever deletes a draining pod cannot make it vanish before we have seen its end. A pod is
// removed without its kubelet's word only when its node is no more.
#pragma once

#include "controller/kube/kube_client.h"
#include "controller/kube/reflector.h"
#include "controller/runtime/pod.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

class KubernetesRuntime final : public WorkerRuntime {
 public:
  // `client` outlives this.
  KubernetesRuntime(kube::KubeClient& client, PodDefaults defaults, std::uint64_t seed);

  void step(Instant now) override;
  [[nodiscard]] bool synced() const override { return pods_.synced() && nodes_.synced(); }
  [[nodiscard]] std::string problem() const override;
  [[nodiscard]] std::vector<Worker> workers() const override;
  [[nodiscard]] std::map<std::string, GpuCapacity> capacity(const std::vector<ClassSelector>& classes) const override;
  [[nodiscard]] Result<void> check(const WorkerSpec& spec) override;
  [[nodiscard]] Result<void> create(const WorkerSpec& spec) override;
  [[nodiscard]] bool name_taken(const std::string& name_space, const std::string& name) const override;
  [[nodiscard]] double not_before_s() const override { return not_before_s_; }
  [[nodiscard]] Result<void> set_disruption_budgets(const std::vector<DisruptionBudget>& budgets) override;
  [[nodiscard]] Result<void> begin_drain(const Worker& worker, Instant now) override;
  [[nodiscard]] Result<void> terminate(const Worker& worker, std::optional<double> grace_s) override;
  [[nodiscard]] Result<void> release(const Worker& worker) override;

 private:
  static constexpr double kNodeMissingS = 30;    // longer than one cache lags behind another
  static constexpr double kRetryAfterMaxS = 60;  // a server that asks for more is asked again all the same
  static constexpr double kBudgetRetryS = 30;

  [[nodiscard]] Result<void> remove(const Worker& worker, std::optional<double> grace_s);
  [[nodiscard]] bool missing_for_long(const std::string& node) const;
  [[nodiscard]] Result<void> set_disruption_budget(const DisruptionBudget& budget);
  template <class T>
  [[nodiscard]] Error heard(const kube::ApiResult<T>& refused);

  kube::KubeClient& client_;
  PodDefaults defaults_;
  kube::Reflector pods_;  // of all namespaces and owners: what others use counts too
  kube::Reflector nodes_;
  kube::Reflector budgets_;  // disruption budgets of this installation
  Instant now_;
  double not_before_s_ = 0;
  std::map<std::string, double> budget_retry_s_;  // by "namespace/name": not to be tried before; monotonic
  std::map<std::string, double> missing_since_;   // nodes that pods of ours name but the cache does not hold; monotonic
};

}  // namespace windlass::controller
