// KubernetesRuntime: workers as pods that their ModelService owns.
//
// Pod names are fixed by service, pool and slot, so a second create is a conflict; pods are adopted by their owner's UID alone,
// and only those of this installation (label windlass.dev/instance); deletes carry uid and resourceVersion; a finalizer is held
// only while draining, so that whoever deletes a draining pod cannot make it vanish before we have seen its end. A pod is
// removed without its kubelet's word only when its node is no more.
//
// Pods and nodes of the whole cluster are read, since what others hold counts too; once for each version (parsed_objects.h),
// and workers() is put together only when one has changed. Its own workers and disruption budgets are in the namespaces that it
// is given.
#pragma once

#include <set>
#include <tuple>

#include "controller/kube/kube_client.h"
#include "controller/kube/parsed_objects.h"
#include "controller/kube/reflector_set.h"
#include "controller/runtime/pod.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

class KubernetesRuntime final : public WorkerRuntime {
 public:
  // `client` outlives this. `namespaces`: where its workers are; empty: anywhere.
  KubernetesRuntime(kube::KubeClient& client, PodDefaults defaults, std::uint64_t seed, std::set<std::string> namespaces = {});

  void step(Instant now) override;
  void read_anew(Instant now) override;
  [[nodiscard]] bool synced() const override { return pods_.synced() && nodes_.synced(); }
  [[nodiscard]] std::string problem() const override;
  [[nodiscard]] std::vector<Worker> workers() const override;
  [[nodiscard]] std::map<std::string, GpuCapacity> capacity(const std::vector<ClassSelector>& classes) const override;
  [[nodiscard]] Result<void> check(const Launch& spec) override;
  [[nodiscard]] Result<void> create(const Launch& spec) override;
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
  static constexpr int kMaxBudgetWrites = 25;  // at once: those of a thousand services would hold up a step for many seconds

  struct PodView {
    std::optional<Worker> worker;     // one of this installation's
    std::string node;                 // it is bound to; empty: none
    std::map<std::string, int> held;  // units of each resource that it holds there; of pods that are not ours
  };
  struct NodeView {
    std::map<std::string, std::string> labels;
    std::map<std::string, int> allocatable;
    bool usable = false;
  };

  [[nodiscard]] PodView view_of_pod(const nlohmann::json& pod) const;
  [[nodiscard]] static NodeView view_of_node(const nlohmann::json& node);
  void refresh() const;       // the views
  void put_together() const;  // what comes from them
  void look_for_missing_nodes();
  [[nodiscard]] Result<void> remove(const Worker& worker, std::optional<double> grace_s);
  [[nodiscard]] Result<void> set_disruption_budget(const DisruptionBudget& budget);
  template <class T>
  [[nodiscard]] Error heard(const kube::ApiResult<T>& refused);

  kube::KubeClient& client_;
  PodDefaults defaults_;
  std::set<std::string> namespaces_;
  kube::Reflector pods_;  // of all namespaces and owners: what others use counts too
  kube::Reflector nodes_;
  kube::ReflectorSet budgets_;  // disruption budgets of this installation
  Instant now_;
  double not_before_s_ = 0;
  std::map<std::string, double> budget_retry_s_;  // by "namespace/name": not to be tried before; monotonic
  std::map<std::string, double> missing_since_;   // nodes that pods name but the cache does not hold; monotonic
  std::set<std::string> missing_for_long_;        // of these, longer than kNodeMissingS
  std::tuple<std::uint64_t, std::uint64_t, bool>
      looked_at_{};  // generations of pods and nodes, and whether nodes were readable

  // From the reflectors' copies, brought up to date by whoever looks: a write's answer changes them between two steps.
  mutable kube::ParsedObjects<PodView> pod_views_;
  mutable kube::ParsedObjects<NodeView> node_views_;
  mutable std::vector<Worker> workers_;
  mutable std::vector<const PodView*> others_;  // pods that hold something and are not ours
  mutable bool outdated_ = true;                // workers_ and others_ are not what the views say
};

}  // namespace windlass::controller
