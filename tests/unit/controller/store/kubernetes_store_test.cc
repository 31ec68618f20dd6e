// KubernetesStore: its lists match the server, although only changed objects are parsed again.
#include "controller/store/kubernetes_store.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/kube/credentials.h"
#include "planner/base/rng.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::controller {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

json service(const std::string& name, int workers = 1) {
  return {{"apiVersion", "windlass.dev/v1alpha1"},
          {"kind", "ModelService"},
          {"metadata", {{"name", name}, {"namespace", "default"}}},
          {"spec",
           {{"model", {{"uri", "pvc://models/llama"}, {"architecture", "llama3-8b"}}},
            {"slo", {{"timeToFirstToken", "1s"}, {"timePerOutputToken", "50ms"}}},
            {"scaling", {{"minWorkers", workers}}}}}};
}

struct Stored {
  explicit Stored(std::set<std::string> namespaces = {})
      : store(client, "test", 1, StoreScope{kube::kDefaultInstance, std::move(namespaces)}) {}

  void step() {
    api.set_now(api.now() + 1);
    store.step({api.wall_now(), api.now()});
  }
  void settle(int seconds = 3) {
    for (int i = 0; i < seconds; ++i) step();
  }
  void edit(const std::string& name, const std::function<void(json&)>& change) {
    ASSERT_TRUE(api.edit(kube::resources::kModelServices, "default", name, change));
  }
  // "name=minWorkers" of each.
  [[nodiscard]] std::vector<std::string> services() const {
    std::vector<std::string> all;
    for (const api::ModelService& one : store.model_services()) {
      all.push_back(fmt::format("{}={}", one.metadata.name, one.spec.scaling.min_workers));
    }
    return all;
  }
  [[nodiscard]] std::vector<std::string> broken() const {
    std::vector<std::string> all;
    for (const BrokenObject& one : store.broken_objects()) all.push_back(one.name);
    return all;
  }

  fakes::FakeApiServer api;
  std::unique_ptr<fakes::FakeConnection> wire = api.connect("controller");
  std::unique_ptr<kube::CredentialSource> credentials = kube::no_credentials();
  kube::KubeClient client{*wire, api.url(), *credentials};
  KubernetesStore store;
};

// Given services of which one breaks, another was never readable and a third moves to another installation, while others
// change; expects last good states to stay, problems to stay reported, and everything to recover after a repair.
TEST(KubernetesStore, ABrokenObjectDoesNotAffectOthers) {
  Stored w;
  for (const char* name : {"a", "b", "c"}) w.api.seed_object(service(name));
  json never = service("never");
  never["spec"]["slo"] = "soon";
  w.api.seed_object(never);
  w.settle();
  EXPECT_THAT(w.services(), ElementsAre("a=1", "b=1", "c=1"));
  EXPECT_THAT(w.broken(), ElementsAre("never"));
  EXPECT_EQ(w.store.unreadable_uids().size(), 1U);

  w.edit("b", [](json& object) { object["spec"]["slo"] = "soon"; });
  w.settle();
  EXPECT_THAT(w.services(), ElementsAre("a=1", "b=1", "c=1"));
  EXPECT_THAT(w.broken(), ElementsAre("b", "never"));
  EXPECT_EQ(w.store.unreadable_uids().size(), 1U);

  w.edit("a", [](json& object) { object["spec"]["scaling"]["minWorkers"] = 2; });
  w.edit("c", [](json& object) { object["metadata"]["labels"][kube::kInstanceLabel] = "other"; });
  w.settle();
  EXPECT_THAT(w.services(), ElementsAre("a=2", "b=1"));
  EXPECT_THAT(w.broken(), ElementsAre("b", "never"));
  EXPECT_EQ(w.store.foreign_uids().size(), 1U);

  w.edit("a", [](json& object) { object["spec"]["scaling"]["minWorkers"] = 3; });
  w.settle();
  EXPECT_EQ(w.store.foreign_uids().size(), 1U);
  EXPECT_THAT(w.services(), ElementsAre("a=3", "b=1"));

  w.edit("b", [](json& object) { object["spec"] = service("b", 4)["spec"]; });
  w.edit("never", [](json& object) { object["spec"] = service("never", 5)["spec"]; });
  w.edit("c", [](json& object) { object["metadata"]["labels"].erase(kube::kInstanceLabel); });
  w.settle();
  EXPECT_THAT(w.services(), ElementsAre("a=3", "b=4", "c=1", "never=5"));
  EXPECT_THAT(w.broken(), IsEmpty());
  EXPECT_THAT(w.store.unreadable_uids(), IsEmpty());
  EXPECT_THAT(w.store.foreign_uids(), IsEmpty());
}

// Given services that become unreadable, one after somebody else acted on a newer state than we have read, and one recreated
// under its name; expects that our last states of these two are not kept.
TEST(KubernetesStore, ANewerStateIsNotReplacedByAnOlderOne) {
  Stored w;
  for (const char* name : {"kept", "newer", "other"}) w.api.seed_object(service(name));
  w.settle();
  const auto breaks = [](json& object) { object["spec"]["slo"] = "soon"; };
  w.edit("kept", [&](json& object) {
    breaks(object);
    object["status"]["observedGeneration"] = 1;
  });
  w.edit("newer", [&](json& object) {
    breaks(object);
    object["status"]["observedGeneration"] = 2;
  });
  w.api.delete_object(kube::resources::kModelServices, "default", "other");
  json other = service("other");
  breaks(other);
  w.api.seed_object(other);
  w.settle();
  EXPECT_THAT(w.services(), ElementsAre("kept=1"));
  EXPECT_THAT(w.broken(), ElementsAre("kept", "newer", "other"));
  EXPECT_EQ(w.store.unreadable_uids().size(), 2U);
}

// Given the condition of an unreadable object; expects the write to be conditional on the version that it was decided from.
TEST(KubernetesStore, AConditionIsConditionalOnTheVersion) {
  Stored w;
  json never = service("never");
  never["spec"]["slo"] = "soon";
  w.api.seed_object(never);
  w.settle();
  ASSERT_EQ(w.store.broken_objects().size(), 1U);
  std::vector<bool> versioned;
  w.api.admit = [&](const fakes::WriteAttempt& write) -> std::optional<fakes::Refusal> {
    versioned.push_back(write.versioned);
    return {};
  };
  api::Condition condition;
  condition.type = "Readable";
  condition.status = api::ConditionStatus::kFalse;
  condition.reason = "Unreadable";
  condition.message = "spec.slo: must be a map (got string)";
  const BrokenObject broken = w.store.broken_objects().front();
  EXPECT_TRUE(w.store.write_condition(broken, condition).ok());
  EXPECT_TRUE(w.store.write_condition(broken, condition).ok()) << "our own write is no stranger's";
  EXPECT_THAT(versioned, ElementsAre(true, true));
}

// Given watched namespaces of which one does not exist and one is refused; expects the third to be served and written as
// before, the two to be named, and both to be served once they can be.
TEST(KubernetesStore, ANamespaceThatCannotBeReadIsNamed) {
  Stored w({"default", "nowhere", "refused"});
  for (const char* name : {"default", "refused"}) {
    w.api.seed_object({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", name}}}});
  }
  const std::string refused = w.api.url() + "/apis/windlass.dev/v1alpha1/namespaces/refused/";
  w.wire->route(refused, [](const kube::HttpRequest&) { return kube::HttpResponse{403, {}, R"({"message": "forbidden"})"}; });
  json elsewhere = service("elsewhere"), later = service("later");
  elsewhere["metadata"]["namespace"] = "other";
  later["metadata"]["namespace"] = "refused";
  for (const json& one : {service("a"), elsewhere, later}) w.api.seed_object(one);
  w.step();
  EXPECT_FALSE(w.store.synced()) << "one refusal may be a server's that has just started";
  w.settle(20);
  EXPECT_TRUE(w.store.synced());
  EXPECT_THAT(w.services(), ElementsAre("a=1"));
  EXPECT_THAT(w.store.problem(), HasSubstr("--watch-namespaces: must be namespaces that exist (got nowhere)"));
  EXPECT_THAT(w.store.problem(), HasSubstr("namespace refused: must exist and have a Role and RoleBinding"));
  EXPECT_TRUE(w.store.write_status(w.store.model_services().front(), {}).ok());

  w.api.seed_object({{"apiVersion", "v1"}, {"kind", "Namespace"}, {"metadata", {{"name", "nowhere"}}}});
  w.wire->unroute(refused);
  w.settle(90);
  EXPECT_THAT(w.services(), ElementsAre("a=1", "later=1"));
  EXPECT_EQ(w.store.problem(), "");
}

// Given hundreds of seeded changes (created, edited, broken, repaired, deleted, recreated under the old name); expects after
// each the same lists as in a freshly started store, except last good states, which only the old store can know.
TEST(KubernetesStore, EqualsAFreshStore) {
  Stored w;
  Rng random(7, "changes");
  const auto pick = [&](int count) { return static_cast<int>(random.uniform() * count); };
  std::map<std::string, std::string> good;  // by name: the last readable state
  for (int round = 0; round < 300; ++round) {
    const std::string name = fmt::format("s{}", pick(8));
    const bool there = w.api.peek(kube::resources::kModelServices, "default", name) != nullptr;
    const int what = pick(4);
    const int workers = pick(9);
    if (!there) {
      w.api.seed_object(service(name, workers));
    } else if (what == 0) {
      w.api.delete_object(kube::resources::kModelServices, "default", name, true);
      w.settle();
    } else if (what == 1) {
      w.edit(name, [](json& object) { object["spec"]["slo"] = "soon"; });
    } else {
      w.edit(name, [&](json& object) { object["spec"] = service(name, workers)["spec"]; });
    }
    w.settle();
    KubernetesStore fresh(w.client, "fresh", 2);
    fresh.step({w.api.wall_now(), w.api.now()});
    for (const api::ModelService& one : fresh.model_services()) {
      good[one.metadata.name] = fmt::format("{}={}", one.metadata.name, one.spec.scaling.min_workers);
    }
    std::erase_if(
        good, [&](const auto& one) { return w.api.peek(kube::resources::kModelServices, "default", one.first) == nullptr; });
    std::vector<std::string> wanted;
    for (const auto& [key, text] : good) wanted.push_back(text);
    ASSERT_EQ(w.services(), wanted) << "round " << round;
    ASSERT_EQ(w.store.broken_objects(), fresh.broken_objects()) << "round " << round;
  }
}

}  // namespace
}  // namespace windlass::controller
