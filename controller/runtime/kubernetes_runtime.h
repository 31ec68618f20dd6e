// KubernetesRuntime runs workers as pods owned by their ModelService.
//
// Pod names depend only on service, pool and slot, so a second create is a conflict. Pods are adopted by their owner's UID
// alone, and only those of this installation (label windlass.dev/instance). Deletes carry uid and resourceVersion. A finalizer
// is held only while draining, so that a draining pod cannot be deleted and vanish before we have seen its end. A pod is
// removed without its kubelet's confirmation only if its node no longer exists.
//
// Pods and nodes of the whole cluster are read, because other owners' pods use resources too. Each version is parsed once
// (parsed_objects.h), and workers() is rebuilt only after a change. Our workers and disruption budgets are in the given
// namespaces.
#pragma once

#include <set>
#include <tuple>

#include "controller/kube/kube_client.h"
#include "controller/kube/parsed_objects.h"
#include "controller/kube/reflector_set.h"
#include "controller/runtime/pod.h"
#include "controller/runtime/taints.h"
#include "controller/runtime/worker_runtime.h"

namespace windlass::controller {

class KubernetesRuntime final : public WorkerRuntime {
 public:
  // `client` outlives this. `namespaces`: where our workers are; empty: anywhere.
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
  [[nodiscard]] Result<void> begin_role_change(const Worker& worker, const std::string& role, Instant now) override;
  [[nodiscard]] Result<void> end_role_change(const Worker& worker) override;
  [[nodiscard]] Result<void> terminate(const Worker& worker, std::optional<double> grace_s) override;
  [[nodiscard]] Result<void> release(const Worker& worker) override;

 private:
  static constexpr double kNodeMissingS = 30;    // longer than the lag between two caches
  static constexpr double kRetryAfterMaxS = 60;  // upper bound for the server's Retry-After
  static constexpr double kBudgetRetryS = 30;
  // per call: writing thousands of budgets at once would delay a step by many seconds
  static constexpr int kMaxBudgetWrites = 25;

  struct PodView {
    std::optional<Worker> worker;     // if it belongs to this installation
    std::string node;                 // node that it is bound to; empty: none
    std::map<std::string, int> held;  // units of each resource that it holds there; for pods that are not ours
  };
  struct NodeView {
    std::map<std::string, std::string> labels;
    std::map<std::string, int> allocatable;
    std::vector<Taint> taints;
    bool usable = false;
  };

  [[nodiscard]] PodView view_of_pod(const nlohmann::json& pod) const;
  [[nodiscard]] static NodeView view_of_node(const nlohmann::json& node);
  void refresh() const;       // updates the views
  void put_together() const;  // rebuilds what is derived from them
  void look_for_missing_nodes();
  [[nodiscard]] std::map<std::string, int> held_by_workers(const std::string& accelerator) const;
  [[nodiscard]] Result<void> remove(const Worker& worker, std::optional<double> grace_s);
  [[nodiscard]] Result<void> patch_pod(const Worker& worker, const nlohmann::json& patch);
  [[nodiscard]] Result<void> set_disruption_budget(const DisruptionBudget& budget);
  template <class T>
  [[nodiscard]] Error heard(const kube::ApiResult<T>& refused);

  kube::KubeClient& client_;
  PodDefaults defaults_;
  std::set<std::string> namespaces_;
  kube::Reflector pods_;  // of all namespaces and owners, because others' usage counts too
  kube::Reflector nodes_;
  kube::ReflectorSet budgets_;  // this installation's disruption budgets
  Instant now_;
  double not_before_s_ = 0;
  std::map<std::string, double> budget_retry_s_;  // by "namespace/name": no retry before this time; monotonic
  std::map<std::string, double> missing_since_;   // since when nodes that pods refer to are missing from the cache; monotonic
  std::set<std::string> missing_for_long_;        // those missing for longer than kNodeMissingS
  std::tuple<std::uint64_t, std::uint64_t, bool>
      looked_at_{};  // generations of pods and nodes, and whether nodes were readable

  // Built from the reflectors' copies and updated on access, because a write's response changes the copies between two steps.
  mutable kube::ParsedObjects<PodView> pod_views_;
  mutable kube::ParsedObjects<NodeView> node_views_;
  mutable std::vector<Worker> workers_;
  mutable std::vector<const PodView*> others_;  // pods that hold resources and are not ours
  mutable bool outdated_ = true;                // workers_ and others_ do not match the views
};

}  // namespace windlass::controller
