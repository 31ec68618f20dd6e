// EventRecorder: what becomes an Event, what raises a count, and what is dropped.
#include "controller/kube/events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/controller/kube/world.h"

namespace windlass::kube {
namespace {

using namespace resources;
using nlohmann::json;

struct Recorded : World {
  EventOptions options = [] {
    EventOptions o;
    o.instance = "windlass-0";
    o.burst = 3;
    o.refill_per_s = 0.1;
    return o;
  }();
  EventRecorder recorder{client, options};
  json service = api.seed_object(model_service("m"));
  double wall_s = 1.7e9;

  Result<void> record(const std::string& reason, const std::string& message) {
    return recorder.record(service, EventType::kWarning, reason, message, wall_s);
  }
};

// Given an event on a service; expects an Event that `kubectl describe` finds: object, uid, reason, message, type, component.
TEST(EventRecorder, WritesEventsThatDescribeShows) {
  Recorded r;
  ASSERT_TRUE(r.record("QuotaExceeded", "no more GPUs").ok());
  auto events = r.api.objects(kEvents);
  ASSERT_EQ(events.size(), 1U);
  const json& event = events[0];
  EXPECT_EQ(event["metadata"]["namespace"], "default");
  EXPECT_EQ(event["involvedObject"]["kind"], "ModelService");
  EXPECT_EQ(event["involvedObject"]["apiVersion"], "windlass.dev/v1alpha1");
  EXPECT_EQ(event["involvedObject"]["name"], "m");
  EXPECT_EQ(event["involvedObject"]["uid"], r.service["metadata"]["uid"]);
  EXPECT_EQ(event["reason"], "QuotaExceeded");
  EXPECT_EQ(event["message"], "no more GPUs");
  EXPECT_EQ(event["type"], "Warning");
  EXPECT_EQ(event["count"], 1);
  EXPECT_EQ(event["firstTimestamp"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(event["source"]["component"], "windlass-controller");
  EXPECT_EQ(event["reportingInstance"], "windlass-0");
}

// Given the same event every second for two minutes; expects one Event with a growing count, in few requests.
TEST(EventRecorder, CountsRepeats) {
  Recorded r;
  for (int i = 0; i < 120; ++i, r.wall_s += 1) ASSERT_TRUE(r.record("QuotaExceeded", "no more GPUs").ok());
  auto events = r.api.objects(kEvents);
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["count"], 91);  // written at second 90; later ones wait for the next write
  EXPECT_EQ(events[0]["lastTimestamp"], "2023-11-14T22:14:50Z");
  EXPECT_EQ(r.wire->log().size(), 4U);
}

// Given the same event after the window, or after the server has deleted the first; expects a new Event.
TEST(EventRecorder, StartsOverAfterTheWindow) {
  Recorded r;
  ASSERT_TRUE(r.record("A", "x").ok());
  r.wall_s += 601;
  ASSERT_TRUE(r.record("A", "x").ok());
  EXPECT_EQ(r.api.objects(kEvents).size(), 2U);
  for (const json& event : r.api.objects(kEvents)) {
    r.api.delete_object(kEvents, "default", event["metadata"]["name"].get<std::string>());
  }
  r.wall_s += 60;
  ASSERT_TRUE(r.record("A", "x").ok());
  EXPECT_EQ(r.api.objects(kEvents).size(), 1U);
}

// Given many different events on one object; expects a burst to pass, the rest to count as dropped, another object to be
// unaffected, and more to pass later.
TEST(EventRecorder, LimitsNewEventsPerObject) {
  Recorded r;
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(r.record("A", "message " + std::to_string(i)).ok());
  EXPECT_EQ(r.api.objects(kEvents).size(), 3U);
  EXPECT_EQ(r.recorder.dropped(), 7U);
  json other = r.api.seed_object(model_service("other"));
  ASSERT_TRUE(r.recorder.record(other, EventType::kNormal, "B", "fine", r.wall_s).ok());
  EXPECT_EQ(r.api.objects(kEvents).size(), 4U);
  r.wall_s += 10;
  ASSERT_TRUE(r.record("A", "later").ok());
  EXPECT_EQ(r.api.objects(kEvents).size(), 5U);
}

// Given a cluster-scoped object and a message longer than the API accepts; expects namespace default and a message truncated
// between characters.
TEST(EventRecorder, FitsTheApisLimits) {
  Recorded r;
  json node = r.api.seed_object({{"apiVersion", "v1"}, {"kind", "Node"}, {"metadata", {{"name", "n1"}}}});
  std::string message;
  while (message.size() < 2000) message += "\xE2\x82\xAC";
  ASSERT_TRUE(r.recorder.record(node, EventType::kNormal, "A", message, r.wall_s).ok());
  json event = r.api.objects(kEvents)[0];
  EXPECT_EQ(event["metadata"]["namespace"], "default");
  std::string kept = event["message"];
  EXPECT_LE(kept.size(), 1024U);
  EXPECT_EQ((kept.size() - 3) % 3, 0U);
  EXPECT_TRUE(kept.ends_with("..."));
}

// Given a server that refuses; expects the error to be returned and nothing to count as written.
TEST(EventRecorder, ReportsFailures) {
  Recorded r;
  r.wire->faults.error_500 = 1;
  EXPECT_FALSE(r.record("A", "x").ok());
  r.wire->faults.error_500 = 0;
  EXPECT_TRUE(r.record("A", "x").ok());
  EXPECT_EQ(r.api.objects(kEvents).size(), 1U);
}

}  // namespace
}  // namespace windlass::kube
