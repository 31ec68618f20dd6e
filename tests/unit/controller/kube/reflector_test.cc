// Reflector on the fake API server: normal operation, each kind of failure, and thousands of seeded runs with all of them.
#include "controller/kube/reflector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/effort.h"
#include "tests/unit/controller/kube/world.h"

namespace windlass::kube {
namespace {

using namespace resources;
using nlohmann::json;
using testing::HasSubstr;

ReflectorOptions config_maps() {
  ReflectorOptions options;
  options.resource = kConfigMaps;
  options.page_size = 3;
  return options;
}

// A world with a clock that the test moves. It calls step() whenever the reflector wants it, and once more at the end.
struct Watched : World {
  explicit Watched(ReflectorOptions options = config_maps(), fakes::FakeApiOptions api_options = {})
      : World(std::move(api_options)), reflector(client, std::move(options)) {}

  void run(double seconds, double tick_s = 0.5) {
    for (double end_s = api.now() + seconds; api.now() < end_s;) {
      reflector.step(api.now());
      api.set_now(api.now() + tick_s);
    }
    reflector.step(api.now());
  }

  // Whether the copy equals the server's state.
  [[nodiscard]] bool equal() const {
    std::map<std::string, json> there;
    for (json& object : api.objects(kConfigMaps)) there[object_key(object)] = object;
    return there == reflector.objects();
  }

  void set(const std::string& name, const std::string& value) {
    api.edit(kConfigMaps, "default", name, [&](json& object) { object["data"]["key"] = value; });
  }

  Reflector reflector;
};

// Given objects, changes and deletions; expects the copy to follow with one list and one watch, and its generation to grow with
// each change.
TEST(Reflector, FollowsTheServer) {
  Watched w;
  for (const char* name : {"a", "b", "c", "d"}) w.api.seed_object(config_map(name));
  EXPECT_FALSE(w.reflector.synced());
  w.run(1);
  ASSERT_TRUE(w.reflector.synced());
  EXPECT_TRUE(w.equal());
  std::uint64_t generation = w.reflector.generation();
  w.run(10);
  EXPECT_EQ(w.reflector.generation(), generation);
  w.set("b", "new");
  w.api.delete_object(kConfigMaps, "default", "c");
  w.api.seed_object(config_map("e"));
  w.run(1);
  EXPECT_TRUE(w.equal());
  EXPECT_EQ(w.reflector.generation(), generation + 3);
  EXPECT_EQ(w.reflector.find("default", "b")->at("data").at("key"), "new");
  EXPECT_EQ(w.reflector.find("default", "c"), nullptr);
  EXPECT_EQ(w.reflector.counters().lists, 1U);
  EXPECT_EQ(w.reflector.counters().watches, 1U);
  EXPECT_EQ(w.reflector.last_sync_s(), 0);
}

// Given objects that are listed, watched and written with managedFields; expects copies without that field.
TEST(Reflector, DropsManagedFields) {
  Watched w;
  const auto managed = [](const std::string& name) {
    json object = config_map(name);
    object["metadata"]["managedFields"] = json::array({{{"manager", "kubectl"}, {"fieldsV1", {{"f:data", json::object()}}}}});
    return object;
  };
  w.api.seed_object(managed("listed"));
  w.run(1);
  w.api.seed_object(managed("watched"));
  w.run(1);
  json written = managed("written");
  written["metadata"]["resourceVersion"] = "999999";
  w.reflector.observe_write(written);
  for (const char* name : {"listed", "watched", "written"}) {
    const json* held = w.reflector.find("default", name);
    ASSERT_NE(held, nullptr) << name;
    EXPECT_FALSE(held->at("metadata").contains("managedFields")) << name;
    EXPECT_TRUE(held->contains("data")) << name;
  }
}

// Given quiet minutes; expects bookmarks to advance the version, so that after a compaction and a disconnect no new list is
// needed.
TEST(Reflector, BookmarksKeepTheVersionFresh) {
  Watched w;
  w.api.seed_object(config_map("a"));
  w.run(1);
  std::string before = w.reflector.resource_version();
  for (int i = 0; i < 50; ++i) w.api.seed_object(pod("p" + std::to_string(i)));  // changes of another resource
  w.run(70);
  EXPECT_NE(w.reflector.resource_version(), before);
  EXPECT_GE(w.reflector.counters().bookmarks, 1U);
  w.api.compact();
  w.wire->cut_streams();
  w.run(10);
  EXPECT_TRUE(w.reflector.watching());
  EXPECT_EQ(w.reflector.counters().lists, 1U);
}

// Given a version that the server no longer has; expects a new list and a copy equal to the server's state.
TEST(Reflector, GoneMeansListAgain) {
  for (std::uint64_t seed = 1; seed <= 8; ++seed) {  // the fake reports Gone in the response or as an event, by seed
    Watched w(config_maps(), {.seed = seed});
    w.api.seed_object(config_map("a"));
    w.run(1);
    w.wire->partitioned = true;
    w.wire->cut_streams();
    w.run(1);
    w.set("a", "changed");
    w.api.seed_object(config_map("b"));
    w.api.compact();
    w.wire->partitioned = false;
    w.run(60);
    EXPECT_TRUE(w.equal()) << "seed " << seed;
    EXPECT_EQ(w.reflector.counters().gone, 1U) << "seed " << seed;
    EXPECT_EQ(w.reflector.counters().lists, 2U) << "seed " << seed;
  }
}

// Given a watch that falls silent without ending; expects list_anew() to reset synced() until a list has shown what the watch
// missed. A copy listed at the same time stays synced.
TEST(Reflector, ListAnewResetsSynced) {
  Watched w;
  w.api.seed_object(config_map("a"));
  w.run(1);
  w.wire->cut_streams(true);
  w.set("a", "changed");
  w.run(5);
  EXPECT_TRUE(w.reflector.synced());
  EXPECT_FALSE(w.equal());
  w.reflector.list_anew(w.api.now());
  EXPECT_FALSE(w.reflector.synced());
  EXPECT_NE(w.reflector.find("default", "a"), nullptr) << "what is known stays meanwhile";
  w.reflector.step(w.api.now());
  EXPECT_TRUE(w.reflector.synced());
  EXPECT_TRUE(w.equal());
  const auto lists = w.reflector.counters().lists;
  w.reflector.list_anew(w.api.now());
  EXPECT_TRUE(w.reflector.synced());
  EXPECT_EQ(w.reflector.counters().lists, lists);
}

// Given a watch that falls silent without ending, and an idle limit of 90 s; expects a reconnect from the last version, without
// a list.
TEST(Reflector, NoticesHalfOpenWatchesByTheIdleLimit) {
  ReflectorOptions options = config_maps();
  options.idle_limit_s = 90;
  Watched w(options);
  w.api.seed_object(config_map("a"));
  w.run(1);
  w.wire->cut_streams(true);
  w.set("a", "changed");
  w.run(60);
  EXPECT_FALSE(w.equal());
  w.run(60);
  EXPECT_TRUE(w.equal());
  EXPECT_EQ(w.reflector.counters().half_open, 1U);
  EXPECT_EQ(w.reflector.counters().lists, 1U);
}

// Given the same without an idle limit; expects detection once the watch exceeds its timeout and the grace.
TEST(Reflector, NoticesHalfOpenWatchesByTheirTimeout) {
  ReflectorOptions options = config_maps();
  options.idle_limit_s.reset();
  Watched w(options);
  w.api.seed_object(config_map("a"));
  w.run(1);
  w.wire->cut_streams(true);
  w.set("a", "changed");
  w.run(290);
  EXPECT_FALSE(w.equal());
  w.run(360);
  EXPECT_TRUE(w.equal());
  EXPECT_EQ(w.reflector.counters().half_open, 1U);
}

// Given an API server that sends nothing, not even a response head; expects the watch to be given up after the connect timeout
// and grace.
TEST(Reflector, NoticesWatchesWithoutAHead) {
  Watched w;
  w.run(0.5);  // listed; the watch is open but not yet polled
  ASSERT_TRUE(w.reflector.watching());
  w.wire->partitioned = true;
  w.run(50);
  EXPECT_EQ(w.reflector.counters().half_open, 0U);
  w.run(15);
  EXPECT_EQ(w.reflector.counters().half_open, 1U);
}

// Given lines that are not events; expects a new list instead of a guess.
TEST(Reflector, MalformedLinesMeanListAgain) {
  Watched w;
  w.api.seed_object(config_map("a"));
  w.run(1);
  w.wire->faults.garble_watch = 1;
  w.set("a", "changed");
  w.run(0.5);
  EXPECT_EQ(w.reflector.counters().malformed, 1U);
  ASSERT_TRUE(w.reflector.last_error().has_value());
  EXPECT_THAT(w.reflector.last_error()->message, HasSubstr("watch configmaps"));
  w.wire->faults.garble_watch = 0;
  w.run(10);
  EXPECT_TRUE(w.equal());
  EXPECT_EQ(w.reflector.counters().lists, 2U);
  EXPECT_FALSE(w.reflector.last_error().has_value());
}

// Given a server that always fails; expects delays that grow from 0.8 s to at most 30 s, differ by seed, and start over after a
// success.
TEST(Reflector, BacksOffWithJitter) {
  auto delays = [](std::uint64_t seed) {
    ReflectorOptions options = config_maps();
    options.seed = seed;
    Watched w(options);
    w.wire->faults.error_500 = 1;
    std::vector<double> out;
    for (int i = 0; i < 12; ++i) {
      w.reflector.step(w.api.now());
      out.push_back(w.reflector.next_step_at() - w.api.now());
      w.api.set_now(w.reflector.next_step_at());
    }
    return out;
  };
  std::vector<double> one = delays(1);
  EXPECT_GE(one.front(), 0.8);
  EXPECT_LE(one.front(), 1.6);
  for (double delay_s : one) EXPECT_LE(delay_s, 30);
  EXPECT_GE(one.back(), 15);
  EXPECT_NE(one, delays(2));
  EXPECT_EQ(one, delays(1));
}

// Given a server that sends Retry-After: 1 on every request; expects no shorter delay.
TEST(Reflector, ObeysRetryAfter) {
  Watched w;
  w.wire->faults.error_429 = 1;
  w.reflector.step(0);
  EXPECT_GE(w.reflector.next_step_at(), 1);
  EXPECT_EQ(w.reflector.last_error()->code, ErrorCode::kUnavailable);
}

// Given steps before the backoff is over; expects no request.
TEST(Reflector, DoesNothingBeforeItIsDue) {
  Watched w;
  w.wire->faults.drop_before = 1;
  w.reflector.step(0);
  std::size_t sent = w.wire->log().size();
  for (double t = 0; t < w.reflector.next_step_at(); t += 0.1) w.reflector.step(t);
  EXPECT_EQ(w.wire->log().size(), sent);
}

// Given the response to our own write; expects the copy to have it immediately, and older watch events not to undo it.
TEST(Reflector, OwnWritesShowImmediately) {
  Watched w;
  w.api.seed_object(config_map("a"));
  w.run(1);
  w.set("a", "older news");
  auto written = w.client.patch(kConfigMaps, "default", "a", PatchType::kMerge, {{"data", {{"key", "ours"}}}});
  ASSERT_TRUE(written.ok());
  w.reflector.observe_write(*written);
  EXPECT_EQ(w.reflector.find("default", "a")->at("data").at("key"), "ours");
  w.wire->faults.split_bytes = 0.9;
  for (int i = 0; i < 30; ++i) {
    w.run(0.5);
    EXPECT_EQ(w.reflector.find("default", "a")->at("data").at("key"), "ours");
  }
  w.wire->faults.split_bytes = 0;
  // An object that the watch has reported deleted does not come back.
  w.api.delete_object(kConfigMaps, "default", "a");
  w.run(1);
  w.reflector.observe_write(*written);
  EXPECT_EQ(w.reflector.find("default", "a"), nullptr);
}

// Given a token that the server no longer accepts; expects the credentials to be refreshed, so that the next watch succeeds.
TEST(Reflector, A401RefreshesTheCredentials) {
  class Renewing final : public CredentialSource {
   public:
    Result<std::string> bearer_token(double) override { return token; }
    void invalidate() override { token = "good"; }
    std::string token = "good";
  };
  fakes::FakeApiServer api({.token = "good"});
  auto wire = api.connect("test");
  Renewing credentials;
  KubeClient client(*wire, api.url(), credentials);
  Reflector reflector(client, config_maps());
  reflector.step(0);
  credentials.token = "stale";
  for (double t = 0; t < 20; t += 0.5) reflector.step(t);
  EXPECT_EQ(credentials.token, "good");
  EXPECT_TRUE(reflector.watching());
}

// Given seeded faults of every kind while objects change; expects that the copy never holds an object that the server never
// had, and that it equals the server's state within minutes once the faults stop.
TEST(Reflector, ConvergesUnderSeededFaults) {
  for (std::uint64_t seed = 1; seed <= effort(100U, 2000U); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Rng random(seed, "reflector test");
    ReflectorOptions options = config_maps();
    options.seed = seed;
    options.page_size = static_cast<int>(random.integer(0, 4));
    options.watch_timeout_min_s = 20;
    options.watch_timeout_max_s = 60;
    options.idle_limit_s = 45;
    fakes::FakeApiOptions api_options;
    api_options.seed = seed;
    api_options.history = static_cast<std::size_t>(random.integer(3, 200));
    api_options.bookmark_every_s = 15;
    Watched w(options, api_options);
    auto some = [&](double most) { return random.uniform() < 0.5 ? 0.0 : random.uniform() * most; };
    fakes::FaultRates& faults = w.wire->faults;
    faults.drop_before = some(0.3);
    faults.drop_after = some(0.3);
    faults.error_429 = some(0.1);
    faults.error_500 = some(0.3);
    faults.error_503 = some(0.1);
    faults.cut_watch = some(0.2);
    faults.end_watch = some(0.2);
    faults.garble_watch = some(0.1);
    faults.half_open_watch = some(0.5);
    faults.refuse_watch = some(0.3);
    faults.stale_list = some(0.5);
    faults.gone_watch = some(0.2);
    faults.split_bytes = some(0.9);
    std::set<std::string> known;  // every state that the server ever had
    std::uint64_t generation = 0;
    for (int i = 0; i < 120; ++i) {
      for (std::int64_t n = random.integer(0, 2); n > 0; --n) {
        std::string name(1, static_cast<char>('a' + random.integer(0, 7)));
        if (random.uniform() < 0.3) {
          w.api.delete_object(kConfigMaps, "default", name);
        } else {
          known.insert(w.api.seed_object(config_map(name, std::to_string(random.bits()))).dump());
        }
      }
      if (random.uniform() < 0.02) w.api.compact();
      if (random.uniform() < 0.02) w.wire->partitioned = !w.wire->partitioned;
      w.reflector.step(w.api.now());
      w.api.set_now(w.api.now() + random.uniform() * 3);
      EXPECT_GE(w.reflector.generation(), generation);
      generation = w.reflector.generation();
      if (i % 4 != 0) continue;
      for (const auto& [key, object] : w.reflector.objects()) ASSERT_TRUE(known.count(object.dump())) << object.dump();
    }
    faults = {};
    w.wire->partitioned = false;
    w.run(200, 1);
    ASSERT_TRUE(w.reflector.synced());
    ASSERT_TRUE(w.equal());
  }
}

}  // namespace
}  // namespace windlass::kube
