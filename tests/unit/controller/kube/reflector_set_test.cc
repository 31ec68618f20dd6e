// ReflectorSet: what it reads, and that an unreadable namespace does not delay others.
#include "controller/kube/reflector_set.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/kube/world.h"

namespace windlass::kube {
namespace {

using namespace resources;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

constexpr const char* kRefusal = R"({"kind": "Status", "status": "Failure", "reason": "Forbidden", "code": 403,
    "message": "configmaps is forbidden: User \"controller\" cannot list resource"})";

json map_of(const std::string& name_space, const std::string& name) {
  json object = config_map(name);
  object["metadata"]["namespace"] = name_space;
  return object;
}

struct Namespaces : World {
  explicit Namespaces(const std::set<std::string>& namespaces = {"team-a", "team-b", "team-c"})
      : set(client, options_of(kConfigMaps, 1), namespaces) {
    for (const char* one : {"other", "team-a", "team-b", "team-c"}) api.seed_object(map_of(one, "map"));
  }

  void run(double seconds) {
    for (const double end_s = api.now() + seconds; api.now() < end_s; api.set_now(api.now() + 0.5)) set.step(api.now());
  }
  [[nodiscard]] std::vector<std::string> keys() const {
    std::vector<std::string> all;
    set.visit([&](const std::string& key, const json&) { all.push_back(key); });
    return all;
  }
  [[nodiscard]] std::string url_of(const std::string& name_space) const {
    return api.url() + "/api/v1/namespaces/" + name_space + "/";
  }
  // Makes the server answer every list of this namespace this way.
  void answer(const std::string& name_space, int status, const std::string& body) {
    wire->route(url_of(name_space), [=](const HttpRequest&) { return HttpResponse{status, {}, body}; });
  }
  // The namespaces in the requests sent, in order; "" for all namespaces.
  [[nodiscard]] std::vector<std::string> asked() const {
    std::vector<std::string> all;
    for (const auto& sent : wire->log()) {
      const std::string mark = "/namespaces/";
      const std::size_t at = sent.url.find(mark);
      const std::size_t from = at + mark.size();
      all.push_back(at == std::string::npos ? "" : sent.url.substr(from, sent.url.find('/', from) - from));
    }
    return all;
  }

  ReflectorSet set;
};

// Given objects in four namespaces and a set of three; expects requests for these three only, changes and our own writes to
// appear in each, and nothing of the fourth.
TEST(ReflectorSet, ReadsOnlyItsNamespaces) {
  Namespaces w;
  EXPECT_FALSE(w.set.synced());
  w.run(1);
  EXPECT_TRUE(w.set.synced());
  EXPECT_THAT(w.keys(), ElementsAre("team-a/map", "team-b/map", "team-c/map"));
  EXPECT_THAT(w.asked(), ElementsAre("team-a", "team-b", "team-c", "team-a", "team-b", "team-c"));
  EXPECT_EQ(w.set.find("other", "map"), nullptr);
  EXPECT_FALSE(w.set.synced("other"));
  EXPECT_EQ(w.set.lists(), 3U);

  const std::uint64_t generation = w.set.generation();
  w.api.edit(kConfigMaps, "team-b", "map", [](json& object) { object["data"]["key"] = "changed"; });
  w.run(1);
  EXPECT_GT(w.set.generation(), generation);
  EXPECT_EQ((*w.set.find("team-b", "map"))["data"]["key"], "changed");

  for (const char* name_space : {"team-c", "other"}) {
    const auto written = w.client.patch(kConfigMaps, name_space, "map", PatchType::kMerge, {{"data", {{"key", "ours"}}}});
    ASSERT_TRUE(written.ok());
    w.set.observe_write(*written);
  }
  EXPECT_EQ((*w.set.find("team-c", "map"))["data"]["key"], "ours");
  EXPECT_EQ(w.keys().size(), 3U);
}

// Given no namespaces; expects one list and one watch for all objects, and our own write to appear.
TEST(ReflectorSet, ReadsAllByOneList) {
  Namespaces w(std::set<std::string>{});
  w.run(1);
  EXPECT_THAT(w.asked(), ElementsAre("", ""));
  EXPECT_EQ(w.keys().size(), 4U);
  EXPECT_TRUE(w.set.synced("other"));
  const auto written = w.client.patch(kConfigMaps, "other", "map", PatchType::kMerge, {{"data", {{"key", "ours"}}}});
  ASSERT_TRUE(written.ok());
  w.set.observe_write(*written);
  EXPECT_EQ((*w.set.find("other", "map"))["data"]["key"], "ours");
}

// Given a namespace that is refused from the start; expects it to be named, not to be believed at the first refusal, and then
// not to delay others. Once permitted, it is read.
TEST(ReflectorSet, ARefusedNamespaceDoesNotDelayOthers) {
  Namespaces w;
  w.answer("team-b", 403, kRefusal);
  w.set.step(0);
  EXPECT_FALSE(w.set.synced());
  EXPECT_TRUE(w.set.synced("team-c"));
  w.run(10);
  EXPECT_TRUE(w.set.synced());
  EXPECT_FALSE(w.set.synced("team-b"));
  EXPECT_THAT(w.keys(), ElementsAre("team-a/map", "team-c/map"));
  EXPECT_THAT(w.set.problem(), HasSubstr("namespace team-b: must exist and have a Role and RoleBinding"));
  EXPECT_THAT(w.set.problem(), HasSubstr("configmaps is forbidden"));
  EXPECT_THAT(w.set.problem(), Not(HasSubstr("team-a")));

  w.wire->unroute(w.url_of("team-b"));
  w.run(31);
  EXPECT_TRUE(w.set.synced("team-b"));
  EXPECT_EQ(w.set.problem(), "");
}

// Given a namespace that was read and is then refused when everything is read again; expects the earlier objects to stay.
TEST(ReflectorSet, ObjectsOfARefusedNamespaceStay) {
  Namespaces w;
  w.run(1);
  w.answer("team-b", 403, kRefusal);
  w.set.list_anew(w.api.now());
  EXPECT_FALSE(w.set.synced());
  w.set.step(w.api.now());
  EXPECT_FALSE(w.set.synced());
  w.run(10);
  EXPECT_TRUE(w.set.synced());
  EXPECT_EQ(w.keys().size(), 3U);
}

// Given that every namespace is refused, or that one has no answer yet; expects the set not to be synced.
TEST(ReflectorSet, IsNotSyncedWithoutAnAnswer) {
  Namespaces refused;
  for (const char* one : {"team-a", "team-b", "team-c"}) refused.answer(one, 403, kRefusal);
  refused.run(60);
  EXPECT_FALSE(refused.set.synced());
  Namespaces failing;
  failing.answer("team-b", 500, "");
  failing.run(60);
  EXPECT_FALSE(failing.set.synced());
  EXPECT_TRUE(failing.set.synced("team-c"));
}

// Given a server that answers nothing; expects each step to wait for at most one list, and each namespace to get its turn.
// Given one namespace whose lists get no answer; expects the others to be read anyway.
TEST(ReflectorSet, AStepWaitsForOneAnswerAtMost) {
  Namespaces w;
  w.wire->partitioned = true;
  for (int i = 0; i < 40; ++i) {
    const std::size_t sent = w.wire->log().size();
    w.run(0.5);
    EXPECT_LE(w.wire->log().size(), sent + 1);
  }
  EXPECT_THAT(w.asked(), testing::IsSupersetOf({"team-a", "team-b", "team-c"}));
  w.wire->partitioned = false;
  w.wire->drop_request = [&](const HttpRequest& request) { return request.url.starts_with(w.url_of("team-a")); };
  w.run(60);
  EXPECT_FALSE(w.set.synced());
  EXPECT_THAT(w.keys(), ElementsAre("team-b/map", "team-c/map"));
  w.wire->drop_request = nullptr;
  w.run(31);
  EXPECT_TRUE(w.set.synced());
  EXPECT_THAT(w.set.problem(), IsEmpty());
}

}  // namespace
}  // namespace windlass::kube
