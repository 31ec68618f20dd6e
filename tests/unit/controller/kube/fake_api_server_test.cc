// Properties of the fake API server that other tests rely on.
#include "tests/fakes/fake_api_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/kube/world.h"

namespace windlass::kube {
namespace {

using namespace resources;
using nlohmann::json;

json owned(json object, const json& owner) {
  object["metadata"]["ownerReferences"] = json::array({{{"apiVersion", owner["apiVersion"]},
                                                        {"kind", owner["kind"]},
                                                        {"name", owner["metadata"]["name"]},
                                                        {"uid", owner["metadata"]["uid"]},
                                                        {"controller", true}}});
  return object;
}

// Given pods owned by a service; expects them to be deleted after it once the garbage collector runs; other pods stay.
TEST(FakeApiServer, CollectsDependentsOfDeletedOwners) {
  World world;
  json service = world.api.seed_object(model_service("m"));
  world.api.seed_object(owned(pod("mine"), service));
  world.api.seed_object(pod("free"));
  EXPECT_EQ(world.api.collect_garbage(), 0);
  world.api.delete_object(kModelServices, "default", "m");
  EXPECT_EQ(world.api.collect_garbage(), 1);
  ASSERT_EQ(world.api.pods().size(), 1U);
  EXPECT_EQ(world.api.pods()[0]["metadata"]["name"], "free");
}

// Given a foreground deletion, expects the owner to stay until its dependents are gone.
TEST(FakeApiServer, ForegroundDeletionWaitsForDependents) {
  World world;
  json service = world.api.seed_object(model_service("m"));
  world.api.seed_object(owned(pod("p"), service));
  world.api.kubelet_set("default", "p", {.phase = "Running", .node = "n1"});
  DeleteOptions options;
  options.propagation = "Foreground";
  ASSERT_TRUE(world.client.remove(kModelServices, "default", "m", options).ok());
  EXPECT_EQ(world.api.collect_garbage(), 1);
  EXPECT_TRUE(world.api.object(kModelServices, "default", "m"));
  world.api.kubelet_finish_deletion("default", "p");
  world.api.collect_garbage();
  EXPECT_FALSE(world.api.object(kModelServices, "default", "m"));
}

// Given a finalizer; expects deletion to wait for its removal, and no new finalizer to be accepted meanwhile.
TEST(FakeApiServer, FinalizersHoldDeletion) {
  World world;
  json object = config_map("a");
  object["metadata"]["finalizers"] = {"windlass.dev/drain"};
  ASSERT_TRUE(world.client.create(kConfigMaps, object).ok());
  ASSERT_TRUE(world.client.remove(kConfigMaps, "default", "a").ok());
  auto more = world.client.patch(kConfigMaps, "default", "a", PatchType::kMerge,
                                 {{"metadata", {{"finalizers", {"windlass.dev/drain", "x.dev/new"}}}}});
  ASSERT_FALSE(more.ok());
  EXPECT_EQ(more.error().code, ErrorCode::kInvalidArgument);
  ASSERT_TRUE(
      world.client.patch(kConfigMaps, "default", "a", PatchType::kMerge, {{"metadata", {{"finalizers", nullptr}}}}).ok());
  EXPECT_FALSE(world.api.object(kConfigMaps, "default", "a"));
}

// Given writes that change nothing; expects no new version. Given any change; expects a larger one.
TEST(FakeApiServer, VersionsGrowWithChangesOnly) {
  World world;
  json stored = world.api.seed_object(config_map("a"));
  std::uint64_t before = world.api.version();
  ASSERT_TRUE(world.client.patch(kConfigMaps, "default", "a", PatchType::kMerge, {{"data", {{"key", "x"}}}}).ok());
  EXPECT_EQ(world.api.version(), before);
  ASSERT_TRUE(world.client.patch(kConfigMaps, "default", "a", PatchType::kMerge, {{"data", {{"key", "y"}}}}).ok());
  EXPECT_EQ(world.api.version(), before + 1);
}

// Given a pod; expects changes to its spec to be refused, except for the image, as on the real server.
TEST(FakeApiServer, PodSpecsAreFrozen) {
  World world;
  world.api.seed_object(pod("p"));
  auto refused = world.client.patch(kPods, "default", "p", PatchType::kMerge, {{"spec", {{"hostNetwork", true}}}});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
  auto image = world.client.patch(kPods, "default", "p", PatchType::kStrategic,
                                  {{"spec", {{"containers", json::array({{{"name", "worker"}, {"image", "w:2"}}})}}}});
  ASSERT_TRUE(image.ok()) << image.error().message;
  EXPECT_EQ(image->at("spec").at("containers").at(0).at("image"), "w:2");
}

// Given an object that leaves and enters a watch's selection, expects DELETED and ADDED for that watch.
TEST(FakeApiServer, WatchesFollowTheirSelection) {
  World world;
  json first = world.api.seed_object(pod("p"));
  WatchOptions options;
  options.label_selector = "app=windlass";
  options.resource_version = version_of(first);
  auto stream = world.client.watch(kPods, "default", options);
  ASSERT_TRUE(stream.ok());
  auto relabel = [&](const std::string& value) {
    world.api.edit(kPods, "default", "p", [&](json& object) { object["metadata"]["labels"]["app"] = value; });
    auto poll = (*stream)->poll();
    return json::parse(poll->bytes)["type"].get<std::string>();
  };
  EXPECT_EQ(relabel("other"), "DELETED");
  EXPECT_EQ(relabel("windlass"), "ADDED");
}

// Given the same seed and calls, expects the same faults; given another seed, others.
TEST(FakeApiServer, FaultsFollowTheSeed) {
  auto run = [](std::uint64_t seed) {
    World world({.seed = seed});
    world.wire->faults.drop_before = 0.3;
    world.wire->faults.error_500 = 0.3;
    std::string outcome;
    for (int i = 0; i < 40; ++i) {
      auto result = world.client.list(kPods, "default");
      outcome += result.ok() ? '.' : result.failure().http_status == 500 ? '5' : 'x';
    }
    return outcome;
  };
  EXPECT_EQ(run(5), run(5));
  EXPECT_NE(run(5), run(6));
}

// Given a route for a worker's address; expects it to answer. Given an address without a server; expects a refused connection.
TEST(FakeApiServer, RoutesOtherAddresses) {
  World world;
  world.wire->route("http://127.0.0.9:8000/", [](const HttpRequest&) { return HttpResponse{200, {}, "up 1\n"}; });
  HttpRequest request;
  request.url = "http://127.0.0.9:8000/metrics";
  auto answered = world.wire->send(request);
  ASSERT_TRUE(answered.ok());
  EXPECT_EQ(answered->body, "up 1\n");
  request.url = "http://127.0.0.8:8000/metrics";
  auto refused = world.wire->send(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kUnavailable);
}

}  // namespace
}  // namespace windlass::kube
