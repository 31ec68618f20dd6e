// ParsedObjects: which objects are parsed again when a reflector's copy changes.
#include "controller/kube/parsed_objects.h"

#include <gtest/gtest.h>

#include "tests/unit/controller/kube/world.h"

namespace windlass::kube {
namespace {

using namespace resources;
using nlohmann::json;

struct Parsed : World {
  void step() {
    api.set_now(api.now() + 1);
    reflector.step(api.now());
  }
  bool update() {
    return parsed.update(reflector, [](const json& object) { return object["data"]["key"].get<std::string>(); });
  }
  // Steps until the reflector has caught up.
  void settle() {
    for (int i = 0; i < 3; ++i) step();
  }
  // Whether the views equal a complete parse.
  [[nodiscard]] bool whole() const {
    std::map<std::string, std::string> wanted, held;
    for (const auto& [key, object] : reflector.objects()) wanted[key] = object["data"]["key"].get<std::string>();
    for (const auto& [key, one] : parsed.all()) held[key] = one.value;
    return wanted == held;
  }
  void set(const std::string& name, const std::string& value) {
    api.edit(kConfigMaps, "default", name, [&](json& object) { object["data"]["key"] = value; });
  }

  Reflector reflector{client, options_of(kConfigMaps, 1)};
  ParsedObjects<std::string> parsed;
};

// Given objects of which one changes, one is deleted and one is added; expects only the changed ones to be parsed, and none
// without a change.
TEST(ParsedObjects, ParsesOnlyChangedObjects) {
  Parsed w;
  for (const char* name : {"b", "c", "d"}) w.api.seed_object(config_map(name));
  w.settle();
  EXPECT_TRUE(w.update());
  EXPECT_EQ(w.parsed.parsed(), 3U);
  EXPECT_TRUE(w.whole());
  w.settle();
  EXPECT_FALSE(w.update());

  w.set("c", "changed");
  w.api.delete_object(kConfigMaps, "default", "d");
  w.api.seed_object(config_map("a"));
  w.settle();
  EXPECT_TRUE(w.update());
  EXPECT_EQ(w.parsed.parsed(), 5U);
  EXPECT_TRUE(w.whole());
  ASSERT_NE(w.parsed.find("default", "c"), nullptr);
  EXPECT_EQ(*w.parsed.find("default", "c"), "changed");
  EXPECT_EQ(w.parsed.find("default", "d"), nullptr);
}

// Given an object that is deleted and recreated under its name, and a write's own response; expects both to be seen.
TEST(ParsedObjects, SeesSuccessorsAndWrites) {
  Parsed w;
  w.api.seed_object(config_map("a", "first"));
  w.settle();
  EXPECT_TRUE(w.update());
  w.api.delete_object(kConfigMaps, "default", "a");
  w.api.seed_object(config_map("a", "second"));
  w.settle();
  EXPECT_TRUE(w.update());
  EXPECT_EQ(*w.parsed.find("default", "a"), "second");

  const auto written = w.client.patch(kConfigMaps, "default", "a", PatchType::kMerge, {{"data", {{"key", "third"}}}});
  ASSERT_TRUE(written.ok());
  w.reflector.observe_write(*written);
  EXPECT_TRUE(w.update());
  EXPECT_EQ(*w.parsed.find("default", "a"), "third");
}

// Given a reflector that must list again, as after a restored backup; expects everything to be parsed again, because a version
// may then stand for another state.
TEST(ParsedObjects, TrustsNoVersionAcrossLists) {
  Parsed w;
  for (const char* name : {"a", "b"}) w.api.seed_object(config_map(name));
  w.settle();
  EXPECT_TRUE(w.update());
  const std::uint64_t lists = w.reflector.counters().lists;
  w.wire->cut_streams();
  w.set("a", "changed");
  w.api.compact();
  for (int i = 0; i < 120 && w.reflector.counters().lists == lists; ++i) w.step();
  ASSERT_GT(w.reflector.counters().lists, lists);
  EXPECT_TRUE(w.update());
  EXPECT_EQ(w.parsed.parsed(), 4U);
  EXPECT_TRUE(w.whole());
}

}  // namespace
}  // namespace windlass::kube
