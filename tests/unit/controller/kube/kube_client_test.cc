// KubeClient on the fake API server: calls, errors, the write gate and credentials.
#include "controller/kube/kube_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/kube/world.h"

namespace windlass::kube {
namespace {

using namespace resources;
using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

// Given a server; expects create, get, update, patch and remove to work.
TEST(KubeClient, TheLifeOfAnObject) {
  World world;
  auto created = world.client.create(kConfigMaps, config_map("a"));
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_EQ(created->at("kind"), "ConfigMap");
  json object = *created;
  object["data"]["key"] = "y";
  auto updated = world.client.update(kConfigMaps, object);
  ASSERT_TRUE(updated.ok()) << updated.error().message;
  EXPECT_NE(version_of(*updated), version_of(*created));
  auto patched = world.client.patch(kConfigMaps, "default", "a", PatchType::kMerge, {{"data", {{"more", "z"}}}});
  ASSERT_TRUE(patched.ok()) << patched.error().message;
  auto got = world.client.get(kConfigMaps, "default", "a");
  ASSERT_TRUE(got.ok());
  EXPECT_EQ(got->at("data"), json({{"key", "y"}, {"more", "z"}}));
  auto by_json_patch = world.client.patch(kConfigMaps, "default", "a", PatchType::kJson,
                                          json::array({{{"op", "remove"}, {"path", "/data/more"}}}));
  ASSERT_TRUE(by_json_patch.ok()) << by_json_patch.error().message;
  EXPECT_FALSE(by_json_patch->at("data").contains("more"));
  EXPECT_TRUE(world.client.remove(kConfigMaps, "default", "a").ok());
  auto gone = world.client.get(kConfigMaps, "default", "a");
  ASSERT_FALSE(gone.ok());
  EXPECT_EQ(gone.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(gone.error().message, HasSubstr("get configmaps default/a: 404 NotFound"));
}

// Given 25 objects and pages of 4; expects all of them in order, in 7 requests, each with its type.
TEST(KubeClient, ListsInPages) {
  World world;
  for (int i = 10; i < 35; ++i) world.api.seed_object(config_map("c" + std::to_string(i)));
  ListOptions options;
  options.page_size = 4;
  auto listed = world.client.list(kConfigMaps, "default", options);
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  ASSERT_EQ(listed->items.size(), 25U);
  EXPECT_EQ(world.wire->log().size(), 7U);
  for (std::size_t i = 0; i < 25; ++i) {
    EXPECT_EQ(listed->items[i]["metadata"]["name"], "c" + std::to_string(10 + i));
    EXPECT_EQ(listed->items[i]["kind"], "ConfigMap");
    EXPECT_EQ(listed->items[i]["apiVersion"], "v1");
  }
  EXPECT_EQ(listed->resource_version, std::to_string(world.api.version()));
}

// Given a continue token that expires between two pages; expects one complete list instead, with nothing lost or duplicated.
TEST(KubeClient, ListStartsOverWhenItsPagesExpire) {
  World world;
  for (int i = 10; i < 20; ++i) world.api.seed_object(config_map("c" + std::to_string(i)));
  int requests = 0;
  world.wire->drop_request = [&](const HttpRequest&) {
    if (++requests == 2) world.api.compact();
    return false;
  };
  ListOptions options;
  options.page_size = 4;
  auto listed = world.client.list(kConfigMaps, "default", options);
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  EXPECT_EQ(listed->items.size(), 10U);
  EXPECT_EQ(requests, 3);
}

// Given labels and phases; expects selectors to reach the server encoded and to select.
TEST(KubeClient, ListsWithSelectors) {
  World world;
  world.api.seed_object(pod("a"));
  json other = pod("b");
  other["metadata"]["labels"]["app"] = "other";
  world.api.seed_object(other);
  world.api.kubelet_set("default", "a", {.phase = "Running", .ready = true});
  ListOptions options;
  options.label_selector = "app in (windlass, x),!missing";
  options.field_selector = "status.phase=Running";
  auto listed = world.client.list(kPods, "", options);
  ASSERT_TRUE(listed.ok()) << listed.error().message;
  ASSERT_EQ(listed->items.size(), 1U);
  EXPECT_EQ(listed->items[0]["metadata"]["name"], "a");
}

// Given an object that somebody else has changed; expects kConflict for update and for a delete with the old version.
TEST(KubeClient, OptimisticConcurrency) {
  World world;
  json first = world.api.seed_object(config_map("a"));
  world.api.edit(kConfigMaps, "default", "a", [](json& object) { object["data"]["key"] = "theirs"; });
  auto updated = world.client.update(kConfigMaps, first);
  ASSERT_FALSE(updated.ok());
  EXPECT_EQ(updated.error().code, ErrorCode::kConflict);
  EXPECT_EQ(updated.failure().http_status, 409);
  EXPECT_EQ(updated.failure().reason, "Conflict");
  DeleteOptions options;
  options.uid = first["metadata"]["uid"];
  options.resource_version = version_of(first);
  auto removed = world.client.remove(kConfigMaps, "default", "a", options);
  ASSERT_FALSE(removed.ok());
  EXPECT_EQ(removed.error().code, ErrorCode::kConflict);
  EXPECT_THAT(removed.error().message, HasSubstr("delete configmaps default/a"));
  EXPECT_TRUE(world.api.object(kConfigMaps, "default", "a").has_value());
}

// Given an object that exists, expects a second create to be kAlreadyExists, not kConflict.
TEST(KubeClient, CreateTwice) {
  World world;
  ASSERT_TRUE(world.client.create(kConfigMaps, config_map("a")).ok());
  auto again = world.client.create(kConfigMaps, config_map("a"));
  ASSERT_FALSE(again.ok());
  EXPECT_EQ(again.error().code, ErrorCode::kAlreadyExists);
}

// Given server-side apply; expects creation, removal of omitted fields, a refusal with the other manager's name, and force.
TEST(KubeClient, ServerSideApply) {
  World world;
  json mine = config_map("a");
  mine["data"] = {{"one", "1"}, {"two", "2"}};
  ASSERT_TRUE(world.client.apply(kConfigMaps, mine).ok());
  mine["data"].erase("two");
  auto second = world.client.apply(kConfigMaps, mine);
  ASSERT_TRUE(second.ok()) << second.error().message;
  EXPECT_EQ(second->at("data"), json({{"one", "1"}}));

  WriteOptions theirs;
  theirs.field_manager = "somebody-else";
  json other = config_map("a");
  other["data"] = {{"one", "theirs"}};
  auto refused = world.client.apply(kConfigMaps, other, theirs);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kConflict);
  EXPECT_THAT(refused.error().message, HasSubstr("conflict with \"windlass\""));
  ASSERT_EQ(refused.failure().causes.size(), 1U);
  EXPECT_EQ(refused.failure().causes[0].field, ".data.one");
  theirs.force = true;
  auto forced = world.client.apply(kConfigMaps, other, theirs);
  ASSERT_TRUE(forced.ok()) << forced.error().message;
  EXPECT_EQ(forced->at("data").at("one"), "theirs");
}

// Given a custom resource; expects spec writes and status writes not to affect each other, and the generation to follow the
// spec.
TEST(KubeClient, StatusIsASubresource) {
  World world;
  json object = model_service("m");
  object["status"] = {{"sneaked", true}};
  auto created = world.client.create(kModelServices, object);
  ASSERT_TRUE(created.ok()) << created.error().message;
  EXPECT_FALSE(created->contains("status"));
  WriteOptions status;
  status.subresource = "status";
  auto patched = world.client.patch(kModelServices, "default", "m", PatchType::kMerge,
                                    {{"status", {{"workers", {{"ready", 3}}}}}, {"spec", {{"changed", true}}}}, status);
  ASSERT_TRUE(patched.ok()) << patched.error().message;
  EXPECT_EQ(patched->at("status").at("workers").at("ready"), 3);
  EXPECT_FALSE(patched->at("spec").contains("changed"));
  EXPECT_EQ(patched->at("metadata").at("generation"), 1);
  auto changed = world.client.patch(kModelServices, "default", "m", PatchType::kMerge, {{"spec", {{"changed", true}}}});
  ASSERT_TRUE(changed.ok());
  EXPECT_EQ(changed->at("metadata").at("generation"), 2);
  auto applied = world.client.apply(
      kModelServices, {{"metadata", {{"namespace", "default"}, {"name", "m"}}}, {"status", {{"gpus", 4}}}}, status);
  ASSERT_TRUE(applied.ok()) << applied.error().message;
  EXPECT_EQ(applied->at("status").at("gpus"), 4);
  EXPECT_EQ(applied->at("status").at("workers").at("ready"), 3);
}

// Given writes; expects strict field validation and the manager's name in every URL.
TEST(KubeClient, WritesAskForStrictFields) {
  World world;
  ASSERT_TRUE(world.client.create(kConfigMaps, config_map("a")).ok());
  EXPECT_THAT(world.wire->log().back().url, HasSubstr("fieldValidation=Strict"));
  EXPECT_THAT(world.wire->log().back().url, HasSubstr("fieldManager=windlass"));
}

// Given a closed gate; expects every mutating call to be refused locally, and reads and writes with passes_gate to succeed.
TEST(KubeClient, WriteGate) {
  World world;
  world.api.seed_object(config_map("a"));
  bool leading = false;
  world.client.set_write_gate([&] { return leading; });
  std::size_t before = world.wire->log().size();
  std::vector<Result<void>> refused;
  auto keep = [&](const auto& result) { refused.push_back(result.ok() ? Result<void>() : Result<void>(result.error())); };
  keep(world.client.create(kConfigMaps, config_map("b")));
  keep(world.client.update(kConfigMaps, config_map("a")));
  keep(world.client.apply(kConfigMaps, config_map("a")));
  keep(world.client.patch(kConfigMaps, "default", "a", PatchType::kMerge, json::object()));
  keep(world.client.remove(kConfigMaps, "default", "a"));
  for (const auto& result : refused) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, ErrorCode::kFailedPrecondition);
    EXPECT_THAT(result.error().message, HasSubstr("not the leader"));
  }
  EXPECT_EQ(world.wire->log().size(), before);
  EXPECT_TRUE(world.client.get(kConfigMaps, "default", "a").ok());
  WriteOptions pass;
  pass.passes_gate = true;
  EXPECT_TRUE(world.client.create(kConfigMaps, config_map("b"), pass).ok());
  leading = true;
  EXPECT_TRUE(world.client.create(kConfigMaps, config_map("c")).ok());
}

// Given refusals of each kind; expects their codes, details and Retry-After.
TEST(KubeClient, RefusalsBecomeErrors) {
  struct Case {
    fakes::Refusal refusal;
    ErrorCode code;
  };
  std::vector<Case> cases{{{403, "Forbidden", "you may not", {}}, ErrorCode::kPermissionDenied},
                          {fakes::exceeded_quota("gpus, requested: 1, used: 8, limited: 8"), ErrorCode::kResourceExhausted},
                          {{422, "Invalid", "it is invalid", {{"spec.x", "must be positive"}}}, ErrorCode::kInvalidArgument},
                          {{429, "TooManyRequests", "later", {}}, ErrorCode::kUnavailable},
                          {{500, "InternalError", "etcd", {}}, ErrorCode::kUnavailable},
                          {{503, "ServiceUnavailable", "starting", {}}, ErrorCode::kUnavailable},
                          {{410, "Expired", "old", {}}, ErrorCode::kGone},
                          {{400, "BadRequest", "unknown field", {}}, ErrorCode::kInvalidArgument}};
  World world;
  for (const Case& c : cases) {
    world.api.admit = [&](const fakes::WriteAttempt&) { return std::optional(c.refusal); };
    auto result = world.client.create(kPods, pod("p"));
    ASSERT_FALSE(result.ok()) << c.refusal.code;
    EXPECT_EQ(result.error().code, c.code) << result.error().message;
    EXPECT_EQ(result.failure().http_status, c.refusal.code);
    EXPECT_EQ(result.failure().reason, c.refusal.reason);
    EXPECT_THAT(result.error().message, HasSubstr("create pods default/p: " + std::to_string(c.refusal.code)));
    EXPECT_EQ(result.failure().retry_after_s.has_value(), c.refusal.code == 429 || c.refusal.code == 503);
    for (const auto& [field, message] : c.refusal.causes)
      EXPECT_THAT(result.error().message, HasSubstr(field + ": " + message));
  }
}

// Given a proxy's answers that are not a Status; expects an error with the code and part of the text.
TEST(KubeClient, HandlesAnswersThatAreNotAStatus) {
  auto failure = failure_from_response("get pods default/p", {502, {{"retry-after", "7"}}, "<html>Bad Gateway</html>\n"});
  EXPECT_EQ(failure.error().code, ErrorCode::kUnavailable);
  EXPECT_EQ(failure.error().message, "get pods default/p: 502: <html>Bad Gateway</html>");
  EXPECT_EQ(failure.failure().retry_after_s, 7);
  auto liar = failure_from_response("get", {403, {}, R"({"kind":"Status","code":200,"message":"no","reason":5})"});
  EXPECT_EQ(liar.error().code, ErrorCode::kPermissionDenied);
}

// Given empty names; expects a local error, because the URL would mean the whole collection.
TEST(KubeClient, EmptyNamesAreRefused) {
  World world;
  EXPECT_EQ(world.client.get(kPods, "default", "").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(world.client.remove(kPods, "default", "").error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(world.client.remove(kPods, "", "a").error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(world.wire->log().empty());
}

// A source that counts refused tokens and then has another token.
class CountingCredentials final : public CredentialSource {
 public:
  Result<std::string> bearer_token(double) override { return "token-" + std::to_string(refused_); }
  void invalidate() override { ++refused_; }
  int refused_ = 0;
};

// Given a token that the server no longer accepts; expects one refresh and success. Given no acceptable token; expects one
// retry and an error without the token in it.
TEST(KubeClient, RefreshesCredentialsOnceAfter401) {
  for (const std::string accepted : {"token-1", "token-9"}) {
    fakes::FakeApiServer api({.token = accepted});
    auto wire = api.connect("test");
    CountingCredentials credentials;
    KubeClient client(*wire, api.url(), credentials);
    auto listed = client.list(kPods, "default");
    EXPECT_EQ(wire->log().size(), 2U);
    EXPECT_EQ(listed.ok(), accepted == "token-1");
    if (listed.ok()) continue;
    EXPECT_EQ(listed.error().code, ErrorCode::kPermissionDenied);
    EXPECT_THAT(listed.error().message, Not(HasSubstr("token-")));
  }
}

// Given lost connections; expects kUnavailable with the verb and the object, and no retry.
TEST(KubeClient, TransportErrorsSayWhatWasTried) {
  World world;
  world.wire->faults.drop_after = 1;
  auto created = world.client.create(kConfigMaps, config_map("a"));
  ASSERT_FALSE(created.ok());
  EXPECT_EQ(created.error().code, ErrorCode::kUnavailable);
  EXPECT_THAT(created.error().message, HasSubstr("create configmaps default/a"));
  EXPECT_EQ(created.failure().http_status, 0);
  EXPECT_EQ(world.wire->log().size(), 1U);
  EXPECT_TRUE(world.api.object(kConfigMaps, "default", "a").has_value());
}

// Given a pod with a grace period; expects it to stay, terminating, until the kubelet confirms.
TEST(KubeClient, DeletionWaitsForTheKubelet) {
  World world;
  world.api.seed_object(pod("p"));
  world.api.kubelet_set("default", "p", {.phase = "Running", .ready = true, .pod_ip = "127.0.0.9", .node = "n1"});
  DeleteOptions options;
  options.grace_period_s = 60;
  ASSERT_TRUE(world.client.remove(kPods, "default", "p", options).ok());
  auto left = world.client.get(kPods, "default", "p");
  ASSERT_TRUE(left.ok());
  EXPECT_EQ(left->at("metadata").at("deletionGracePeriodSeconds"), 60);
  EXPECT_TRUE(world.api.kubelet_finish_deletion("default", "p"));
  EXPECT_EQ(world.client.get(kPods, "default", "p").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace windlass::kube
