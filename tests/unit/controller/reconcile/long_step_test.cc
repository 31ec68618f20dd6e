// Steps that take longer than a lease lasts: the whole controller on a fake API server, with a clock that advances with every
// request.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/kube/credentials.h"
#include "controller/reconcile/controller.h"
#include "controller/runtime/kubernetes_runtime.h"
#include "controller/store/kubernetes_store.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::controller {
namespace {

using nlohmann::json;

constexpr int kServices = 40;

// A lease of ten seconds from the last renewal, which happens on request if permitted.
class ShortLease final : public Leadership {
 public:
  void step(Instant now) override {
    if (!renewable) return;
    ++renewals;
    until_s = now.monotonic_s + 10;
  }
  [[nodiscard]] bool leading(double monotonic_s) const override { return monotonic_s < until_s; }
  [[nodiscard]] std::int64_t term() const override { return 1; }
  [[nodiscard]] double next_step_at() const override { return until_s - 8; }
  [[nodiscard]] std::string problem() const override { return {}; }

  bool renewable = true;
  int renewals = 0;
  double until_s = 0;
};

struct SlowWorld {
  SlowWorld() {
    api.seed_object({{"apiVersion", "windlass.dev/v1alpha1"},
                     {"kind", "AcceleratorClass"},
                     {"metadata", {{"name", "h100"}}},
                     {"spec",
                      {{"resourceName", "nvidia.com/gpu"},
                       {"memory", "80Gi"},
                       {"peakFlopsPerSecond", {{"bf16", "989T"}}},
                       {"memoryBandwidthBytesPerSecond", "3350G"},
                       {"gpusPerNode", 1},
                       {"pricePerHour", 4},
                       {"capacity", {{"mode", "Elastic"}, {"maxGPUs", 2 * kServices}}}}}});
    for (int i = 0; i < kServices; ++i) {
      api.seed_object({{"apiVersion", "windlass.dev/v1alpha1"},
                       {"kind", "ModelService"},
                       {"metadata", {{"name", fmt::format("s{:02}", i)}, {"namespace", "default"}}},
                       {"spec",
                        {{"model", {{"uri", "pvc://m/x"}, {"architecture", "llama3-8b"}}},
                         {"slo", {{"timeToFirstToken", "2s"}, {"timePerOutputToken", "100ms"}}}}}});
    }
    // A write takes `write_s`; the time of the last worker's creation is recorded.
    api.on_write = [this](const fakes::WriteAttempt& write) {
      now_s += write_s;
      if (write.resource.plural == kube::resources::kPods.plural) last_worker_s = now_s;
    };
    ControllerOptions options;
    options.stopwatch = [this] { return now_s; };
    core = std::make_unique<Controller>(store, runtime, lease, *wire, publisher, bundle, options);
  }
  void step() {
    now_s += 1;
    api.set_now(now_s);
    (void)core->step({api.wall_now(), now_s});
  }

  fakes::FakeApiServer api;
  std::unique_ptr<fakes::FakeConnection> wire = api.connect("controller");
  std::unique_ptr<kube::CredentialSource> credentials = kube::no_credentials();
  kube::KubeClient client{*wire, api.url(), *credentials};
  KubernetesStore store{client, "test", 1};
  KubernetesRuntime runtime{client, PodDefaults{"worker:1", ""}, 2};
  metrics::Registry registry;
  metrics::ControllerMetrics bundle{registry};
  ShortLease lease;
  RoutingPublisher publisher;
  double now_s = 100, write_s = 0, last_worker_s = 0;
  std::unique_ptr<Controller> core;
};

// Given writes of seven seconds each; expects the lease to be renewed within the step, between its parts.
TEST(LongStep, RenewsTheLeaseWithinTheStep) {
  SlowWorld w;
  for (int i = 0; i < 3; ++i) w.step();
  w.write_s = 7;
  w.api.edit(kube::resources::kModelServices, "default", "s00", [](json& one) { one["spec"]["scaling"]["minWorkers"] = 2; });
  const int before = w.lease.renewals;
  w.step();
  EXPECT_GE(w.lease.renewals, before + 2);
  EXPECT_GT(w.last_worker_s, 0);
}

// Given a lease that can no longer be renewed while forty services want workers, and writes of 1.5 s; expects no workers to be
// created after it has expired, and no service to get a back-off or a message as if the cluster had refused it.
TEST(LongStep, StopsWhenTheLeaseExpires) {
  SlowWorld w;
  w.write_s = 1.5;
  w.lease.step({w.api.wall_now(), w.now_s});
  w.lease.renewable = false;
  const double until_s = w.lease.until_s;
  for (int i = 0; i < 20; ++i) w.step();
  EXPECT_GT(w.last_worker_s, 0);
  EXPECT_LE(w.last_worker_s, until_s + w.write_s);  // the last one was started before
  EXPECT_LT(w.api.pods().size(), static_cast<std::size_t>(kServices));
  EXPECT_FALSE(w.lease.leading(w.now_s));

  w.lease.renewable = true;
  w.write_s = 0;
  for (int i = 0; i < 10; ++i) w.step();
  EXPECT_EQ(w.api.pods().size(), static_cast<std::size_t>(kServices));
  for (const json& event : w.api.objects(kube::resources::kEvents)) EXPECT_NE(event["reason"], "CreateFailed") << event;
}

}  // namespace
}  // namespace windlass::controller
