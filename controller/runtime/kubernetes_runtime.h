// KubernetesRuntime: workers as pods that their ModelService owns.
//
// Pod names are fixed by service, pool and slot, so a second create is a conflict; pods are adopted by their owner's UID alone;
// deletes carry uid and resourceVersion; a finalizer is held only while draining, so that whoever deletes a draining pod cannot
// make it vanish before we have seen its end.
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
  [[nodiscard]] Result<void> create(const WorkerSpec& spec) override;
  [[nodiscard]] Result<void> begin_drain(const Worker& worker, Instant now) override;
  [[nodiscard]] Result<void> terminate(const Worker& worker, std::optional<double> grace_s) override;
  [[nodiscard]] Result<void> release(const Worker& worker) override;

 private:
  [[nodiscard]] Result<void> remove(const Worker& worker, std::optional<double> grace_s);

  kube::KubeClient& client_;
  PodDefaults defaults_;
  kube::Reflector pods_;  // of all namespaces and owners: what others use counts too
  kube::Reflector nodes_;
};

}  // namespace windlass::controller
