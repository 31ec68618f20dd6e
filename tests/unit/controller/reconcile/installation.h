// Installation: store, runtime and observation of one Windlass installation in a fake API server.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "controller/kube/credentials.h"
#include "controller/reconcile/observe.h"
#include "controller/reconcile/routes.h"
#include "controller/runtime/kubernetes_runtime.h"
#include "controller/store/kubernetes_store.h"
#include "metrics/bundles.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::controller {

struct Installation {
  Installation(fakes::FakeApiServer& server, const std::string& instance, const std::set<std::string>& namespaces = {},
               const std::set<std::string>& plain_names = {"*"})
      : api(server),
        wire(server.connect(instance)),
        store(client, instance, 1, StoreScope{instance, namespaces, plain_names}),
        runtime(client, PodDefaults{"worker:1", "", instance}, 2, namespaces) {}

  Observation observe() {
    const Instant now{api.wall_now(), api.now()};
    store.step(now);
    runtime.step(now);
    EXPECT_TRUE(store.synced() && runtime.synced());
    return controller::observe(store, runtime, runtime.workers(), signals, state, now, now.wall_s);
  }
  std::vector<std::string> served() {
    std::vector<std::string> names;
    const Observation observation = observe();
    for (const api::ModelService* one : observation.services) names.push_back(one->metadata.name);
    return names;
  }

  // "MODEL: NAMESPACE" of each model that clients can request.
  std::vector<std::string> models() {
    (void)observe();  // requests what has changed; the next step reads it
    std::vector<std::string> all;
    for (const dispatch::ModelRoute& one : routes(observe(), state, 100))
      all.push_back(one.served_name + ": " + one.name_space);
    return all;
  }

  fakes::FakeApiServer& api;
  std::unique_ptr<fakes::FakeConnection> wire;
  std::unique_ptr<kube::CredentialSource> credentials = kube::no_credentials();
  kube::KubeClient client{*wire, api.url(), *credentials};
  KubernetesStore store;
  KubernetesRuntime runtime;
  ControllerState state;
  metrics::Registry registry;
  metrics::ControllerMetrics bundle{registry};
  Signals signals{*wire, bundle, {}};
};

}  // namespace windlass::controller
