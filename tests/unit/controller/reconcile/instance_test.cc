// Several installations in one cluster: which services each serves, and what happens when a service moves from one to another.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/kube/credentials.h"
#include "controller/reconcile/observe.h"
#include "controller/reconcile/routes.h"
#include "controller/runtime/kubernetes_runtime.h"
#include "controller/store/kubernetes_store.h"
#include "metrics/bundles.h"
#include "planner/policy/json.h"
#include "tests/fakes/fake_api_server.h"
#include "tests/unit/controller/reconcile/installation.h"
#include "tests/unit/planner/policy/fixtures.h"

namespace windlass::controller {
namespace {

using nlohmann::json;
using testing::ElementsAre;

json service(const std::string& name_space, const std::string& name, const std::string& instance) {
  json object = {{"apiVersion", "windlass.dev/v1alpha1"},
                 {"kind", "ModelService"},
                 {"metadata", {{"name", name}, {"namespace", name_space}}},
                 {"spec",
                  {{"model", {{"servedName", name}, {"uri", "pvc://models/llama"}, {"architecture", "llama3-8b"}}},
                   {"slo", {{"timeToFirstToken", "1s"}, {"timePerOutputToken", "50ms"}}}}}};
  if (!instance.empty()) object["metadata"]["labels"][kube::kInstanceLabel] = instance;
  return object;
}

// The service default/chat with a worker that runs on a GPU of n1.
Launch running_worker(Installation& by) {
  by.api.seed_object(
      {{"apiVersion", "v1"},
       {"kind", "Node"},
       {"metadata", {{"name", "n1"}}},
       {"status", {{"allocatable", {{"nvidia.com/gpu", "8"}}}, {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}});
  by.api.seed_object(
      json::parse(R"({"apiVersion": "windlass.dev/v1alpha1", "kind": "AcceleratorClass", "metadata": {"name": "h100"},
    "spec": {"resourceName": "nvidia.com/gpu", "memory": "80Gi", "peakFlopsPerSecond": {"bf16": "989T"},
             "memoryBandwidthBytesPerSecond": "3350G", "gpusPerNode": 8}})"));
  const json stored = by.api.seed_object(service("default", "chat", ""));
  (void)by.observe();
  Launch spec;
  spec.name = "chat-h100-1-0";
  spec.name_space = "default";
  spec.service = "chat";
  spec.service_uid = stored["metadata"]["uid"];
  spec.pool = "h100-1";
  spec.accelerator = "h100";
  spec.resource_name = "nvidia.com/gpu";
  spec.engine = "Windlass";
  spec.model_uri = "pvc://models/llama";
  EXPECT_TRUE(by.runtime.create(spec).ok());
  by.api.kubelet_set("default", spec.name, {.phase = "Running", .ready = true, .pod_ip = "10.0.0.1", .node = "n1"});
  return spec;
}

// Given: services with no label, with each installation's, and in two namespaces. Expected: each is served by exactly one, and
// a narrower scope leaves the rest out.
TEST(Instances, EachServiceBelongsToOne) {
  fakes::FakeApiServer api;
  api.seed_object(service("default", "plain", ""));
  api.seed_object(service("default", "blue-one", "blue"));
  api.seed_object(service("team", "named", "windlass"));
  EXPECT_THAT(Installation(api, "windlass").served(), ElementsAre("plain", "named"));
  EXPECT_THAT(Installation(api, "blue").served(), ElementsAre("blue-one"));
  EXPECT_THAT(Installation(api, "windlass", {"team"}).served(), ElementsAre("named"));
  EXPECT_EQ(kube::lease_name("windlass"), "windlass-controller");
  EXPECT_EQ(kube::lease_name("blue"), "blue-controller");
}

// Given: one namespace to watch, and a worker and its service in another. Expected: services, profiles and budgets are read
// only in the watched namespace, the worker's GPU counts as used by others, and a budget is written only there.
TEST(Instances, NothingIsWrittenOutsideTheScope) {
  fakes::FakeApiServer api;
  Installation wide(api, "windlass"), narrow(api, "windlass", {"team"});
  const Launch spec = running_worker(wide);
  const Observation seen = narrow.observe();
  EXPECT_TRUE(seen.strays.empty() && seen.orphans.empty());
  EXPECT_EQ(seen.capacity.at("h100").used_by_others, 1);
  EXPECT_TRUE(
      narrow.runtime.set_disruption_budgets({{"default", "chat", spec.service_uid, 1}, {"team", "chat", "uid", 1}}).ok());
  EXPECT_FALSE(api.object(kube::resources::kPodDisruptionBudgets, "default", "windlass-chat"));
  EXPECT_TRUE(api.object(kube::resources::kPodDisruptionBudgets, "team", "windlass-chat"));
  for (const auto& sent : narrow.wire->log()) {
    for (const char* read_there : {"/modelservices", "/performanceprofiles", "/poddisruptionbudgets"}) {
      EXPECT_TRUE(sent.url.find(read_there) == std::string::npos || sent.url.find("/namespaces/team/") != std::string::npos)
          << sent.url;
    }
  }
}

// Given: one served name in two installations. Expected: both serve theirs; names must be unique only within one installation.
TEST(Instances, EachHasItsOwnServedNames) {
  fakes::FakeApiServer api;
  json other = service("team", "chat", "blue");
  api.seed_object(service("default", "chat", ""));
  api.seed_object(other);
  EXPECT_THAT(Installation(api, "windlass").served(), ElementsAre("chat"));
  EXPECT_THAT(Installation(api, "blue").served(), ElementsAre("chat"));
}

// Given a tenant that requests the name of another's model, also by spelling out its namespace; expects each model to be called
// by its own namespace, and nobody else to get the owner's name while the owner is deleted and recreated.
TEST(Instances, AServedNameBelongsToItsNamespace) {
  fakes::FakeApiServer api;
  api.seed_object(service("owner", "chat", ""));
  api.seed_object(service("tenant", "chat", ""));
  json spelled = service("tenant", "other", "");
  spelled["spec"]["model"]["servedName"] = "owner/chat";
  api.seed_object(spelled);
  Installation installation(api, "windlass", {}, {"default"});
  EXPECT_THAT(installation.models(), ElementsAre("owner/chat: owner", "tenant/chat: tenant", "tenant/owner/chat: tenant"));
  ASSERT_TRUE(api.delete_object(kube::resources::kModelServices, "owner", "chat"));
  EXPECT_THAT(installation.models(), ElementsAre("tenant/chat: tenant", "tenant/owner/chat: tenant"));
  api.seed_object(service("owner", "chat", ""));
  EXPECT_THAT(installation.models(), ElementsAre("owner/chat: owner", "tenant/chat: tenant", "tenant/owner/chat: tenant"));
}

// Given a namespace of plain names, where a name may contain a slash, and a namespace whose model has the same full name;
// expects the plain one to have it, although it is younger.
TEST(Instances, APlainNameWins) {
  fakes::FakeApiServer api;
  api.seed_object(service("meta-llama", "llama-3", ""));
  Installation installation(api, "windlass", {}, {"default"});
  EXPECT_THAT(installation.models(), ElementsAre("meta-llama/llama-3: meta-llama"));
  api.set_now(api.now() + 60);
  json plain = service("default", "llama", "");
  plain["spec"]["model"]["servedName"] = "meta-llama/llama-3";
  api.seed_object(plain);
  EXPECT_THAT(installation.models(), ElementsAre("meta-llama/llama-3: default"));
}

// Given: a service with a worker, whose label then names another installation. Expected: the worker is an orphan of the first,
// which ends it, and is ignored by the second, which counts its GPU as used.
TEST(Instances, AServiceMayMoveToAnotherInstallation) {
  fakes::FakeApiServer api;
  Installation first(api, "windlass"), second(api, "blue");
  const Launch spec = running_worker(first);
  const Observation mine = first.observe();
  EXPECT_EQ(mine.workers.at(spec.service_uid).size(), 1U);

  api.edit(kube::resources::kModelServices, "default", "chat",
           [](json& object) { object["metadata"]["labels"][kube::kInstanceLabel] = "blue"; });
  const Observation let_go = first.observe();
  EXPECT_TRUE(let_go.services.empty());
  EXPECT_EQ(let_go.orphans.size(), 1U);
  const Observation taken = second.observe();
  EXPECT_EQ(taken.services.size(), 1U);
  EXPECT_TRUE(taken.workers.at(spec.service_uid).empty());
  EXPECT_EQ(taken.capacity.at("h100").used_by_others, 1);
}

// Given a service whose status holds the offer of an earlier leader; expects it in a new leader's snapshot. Given an offer that
// cannot be read; expects none, and the rest of the status to count.
TEST(Instances, ANewLeaderReadsTheOfferThatRuns) {
  const planner::Offer offer = planner::testing::split_offer({"h100", 1, 20}, {"a100", 2, 10, 3, 1.25});
  for (const std::string& text : {planner::to_json(offer), std::string(R"({"strategy":"of another version"})")}) {
    fakes::FakeApiServer api;
    json object = service("default", "chat", "");
    object["status"] = {{"observedGeneration", 1}, {"plan", {{"offer", text}}}, {"workers", {{"desired", 4}}}};
    api.seed_object(object);
    Installation leader(api, "windlass");
    (void)leader.observe();
    const Observation observation = leader.observe();
    ASSERT_EQ(observation.snapshot.services.size(), 1U);
    EXPECT_EQ(observation.snapshot.services[0].last_desired, 4);
    EXPECT_EQ(observation.snapshot.services[0].last_offer,
              text.find("another version") == std::string::npos ? std::optional(offer) : std::nullopt);
  }
}

}  // namespace
}  // namespace windlass::controller
