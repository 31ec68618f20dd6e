// Packed objects: what stays readable, and that nothing is lost.
#include "controller/kube/packed.h"

#include <gtest/gtest.h>

#include "controller/kube/reflector.h"

namespace windlass::kube {
namespace {

using nlohmann::json;

// Given an object with numbers, lists, null and text outside ASCII; expects its identity to stay readable, everything else to
// be gone until it is unpacked, and equal objects to be equal when packed.
TEST(Packed, KeepsIdentityAndLosesNothing) {
  const json whole = json::parse(R"({"apiVersion": "v1", "kind": "Pod",
    "metadata": {"name": "a", "namespace": "team", "uid": "u-1", "resourceVersion": "7", "labels": {"x": "ä"}},
    "spec": {"list": [1, 2.5, null, true, -3], "text": "\u0001"}})");
  json object = whole;
  pack(object);
  EXPECT_EQ(object_key(object), "team/a");
  EXPECT_EQ(version_key(object), version_key(whole));
  EXPECT_FALSE(object.contains("spec"));
  EXPECT_EQ(unpacked(object), whole);
  json again = whole;
  pack(again);
  EXPECT_EQ(again, object);
}

// Given a cluster-scoped object, one that is not packed, and one without metadata; expects each to come back as it was.
TEST(Packed, LeavesOthersAlone) {
  for (const char* text : {R"({"metadata": {"name": "n"}, "spec": 1})", R"({"spec": 1})", R"({"metadata": 3})"}) {
    const json whole = json::parse(text);
    EXPECT_EQ(unpacked(whole), whole);
    json object = whole;
    pack(object);
    EXPECT_EQ(unpacked(object), whole);
  }
}

}  // namespace
}  // namespace windlass::kube
