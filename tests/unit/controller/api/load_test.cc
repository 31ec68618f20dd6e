// Loading files of objects: parsed numbers, all errors together with their lines, no partial results.
#include "controller/api/load.h"

#include <gtest/gtest.h>

namespace windlass::api {
namespace {

constexpr const char* kTwoObjects = R"(# a class and a service
apiVersion: windlass.dev/v1alpha1
kind: AcceleratorClass
metadata: {name: h100}
spec:
  memory: 80Gi
  memoryBandwidthBytesPerSecond: 3350G
  peakFlopsPerSecond: {bf16: 989T, fp8: 1979T}
  gpusPerNode: 8
  intraNodeLink: {bandwidthBytesPerSecond: 450G, latencyMicroseconds: "2.5"}
  pricePerHour: "2.5"
---
apiVersion: windlass.dev/v1alpha1
kind: ModelService
metadata: {name: chat}
spec:
  model: {uri: "hf://example/chat", config: {inline: {hidden_size: 256, rope_theta: 10000.0}}, dtype: BF16}
  slo: {timeToFirstToken: 500ms, timePerOutputToken: 50ms, percentile: "99.9"}
  workload: {requestsPerSecond: "0.5", inputTokens: 100}
  accelerators: [{class: h100, maxGPUs: 4}]
  scaling: {minWorkers: 0, maxWorkers: 4, idleToZeroAfter: 10m, behavior: {scaleUp: {maxWorkersPerMinute: 6}, scaleDown: {stabilizationWindow: 10s, maxWorkersPerMinute: 2}, tolerance: "0.05"}}
)";

// Given a class and a service in one file; expects both as plain data with parsed numbers and defaults.
TEST(Load, GivesParsedNumbers) {
  const auto objects = load_objects(kTwoObjects, "two.yaml");
  ASSERT_TRUE(objects.ok()) << objects.error().message;
  ASSERT_EQ(objects->size(), 2U);
  const auto& h100 = std::get<AcceleratorClass>((*objects)[0].value);
  EXPECT_EQ((*objects)[0].title(), "AcceleratorClass h100");
  EXPECT_EQ(h100.spec.memory_bytes, 85899345920);
  EXPECT_EQ(h100.spec.memory_bandwidth_bytes_per_s, 3350e9);
  EXPECT_EQ(h100.spec.peak_flops_per_s.at(Dtype::kFP8), 1979e12);
  ASSERT_TRUE(h100.spec.intra_node_link.has_value());
  EXPECT_DOUBLE_EQ(h100.spec.intra_node_link->latency_s, 2.5e-6);
  EXPECT_EQ(h100.spec.price_per_hour, 2.5);
  EXPECT_EQ(h100.spec.capacity.mode, CapacityMode::kObserved);
  EXPECT_EQ(h100.spec.resource_name, "nvidia.com/gpu");

  const auto& chat = std::get<ModelService>((*objects)[1].value);
  EXPECT_EQ((*objects)[1].title(), "ModelService default/chat");
  EXPECT_EQ((*objects)[1].line, 13);
  EXPECT_EQ(chat.metadata.name_space, "default");
  EXPECT_EQ(chat.served_name(), "chat");
  EXPECT_EQ(chat.spec.slo.time_to_first_token_s, 0.5);
  EXPECT_EQ(chat.spec.slo.percentile, 99.9);
  EXPECT_EQ(chat.spec.slo.window_s, 300);
  EXPECT_EQ(chat.spec.workload.requests_per_s, 0.5);
  EXPECT_FALSE(chat.spec.workload.output_tokens.has_value());
  EXPECT_EQ(chat.spec.model.dtype, Dtype::kBF16);
  EXPECT_NE(chat.spec.model.config_inline_json.find("\"hidden_size\":256"), std::string::npos);
  EXPECT_EQ(chat.spec.accelerators[0].max_gpus, 4);
  EXPECT_EQ(chat.spec.scaling.idle_to_zero_after_s, 600);
  EXPECT_EQ(chat.spec.scaling.scale_down_stabilization_s, 10);
  EXPECT_EQ(chat.spec.scaling.scale_up_max_per_minute, 6);
  EXPECT_EQ(chat.spec.scaling.scale_down_max_per_minute, 2);
  EXPECT_EQ(chat.spec.scaling.tolerance, 0.05);
  EXPECT_EQ(chat.spec.scaling.drain_timeout_s, 1800);
}

// Given several mistakes in two documents; expects one message with a line for each, with file, line, object and path.
TEST(Load, ReportsEverythingAtOnce) {
  const auto objects = load_objects(R"(apiVersion: windlass.dev/v1alpha1
kind: ModelService
metadata: {name: one}
spec:
  model:
    uri: ftp://x
  slo:
    timeToFirstToken: 0s
    timePerOutputToken: 50ms
---
apiVersion: windlass.dev/v1alpha1
kind: ModelService
metadata: {name: two, namespace: team}
spec:
  model: {uri: "file://x"}
  slo: {timeToFirstToken: 1s}
)",
                                    "bad.yaml");
  ASSERT_FALSE(objects.ok());
  EXPECT_EQ(
      objects.error().message,
      "bad.yaml:6: ModelService default/one: spec.model.uri: Invalid value: must be hf://REPOSITORY, file://FOLDER or "
      "pvc://CLAIM/FOLDER (got \"ftp://x\")\n"
      "bad.yaml:8: ModelService default/one: spec.slo.timeToFirstToken: Invalid value: must be longer than zero, for example "
      "500ms (got \"0s\")\n"
      "bad.yaml:16: ModelService team/two: spec.slo.timePerOutputToken: Required value: must be set (got nothing); "
      "Maximum mean time between two tokens of an answer, for example 50ms.");
}

// Given an object with 150 unknown fields, one with a long name; expects a hundred errors, the long name shortened, and the
// number of remaining errors.
TEST(Load, ListsAHundredErrorsOfOneObject) {
  std::string yaml = "apiVersion: windlass.dev/v1alpha1\nkind: ModelService\nmetadata: {name: chat}\nspec:\n";
  yaml += "  " + std::string(900, 'a') + ": 1\n";
  for (int i = 1; i < 150; ++i) yaml += "  b" + std::to_string(i) + ": 1\n";
  const auto objects = load_objects(yaml, "many.yaml");
  ASSERT_FALSE(objects.ok());
  const std::string& message = objects.error().message;
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 100) << message.substr(0, 1000);
  EXPECT_NE(message.find("many.yaml:1: ModelService default/chat: 52 more errors"), std::string::npos)
      << message.substr(message.size() - 300);
  EXPECT_EQ(message.find(std::string(100, 'a')), std::string::npos);
}

// Given one object in two files; expects an error with both places.
TEST(Load, RefusesOneObjectTwice) {
  const auto objects = load_objects({{"a.yaml", kTwoObjects}, {"b.yaml", kTwoObjects}});
  ASSERT_FALSE(objects.ok());
  EXPECT_NE(objects.error().message.find(
                "b.yaml:13: ModelService default/chat: metadata.name: Duplicate value: the same object stands at a.yaml:13"),
            std::string::npos)
      << objects.error().message;
}

// Given invalid YAML next to good text; expects the error and no objects.
TEST(Load, ReturnsNothingFromABadFile) {
  const auto objects = load_objects({{"a.yaml", kTwoObjects}, {"b.yaml", "a: [1,\n"}});
  ASSERT_FALSE(objects.ok());
  EXPECT_NE(objects.error().message.find("b.yaml:"), std::string::npos);
}

// Given a file without objects; expects an empty list.
TEST(Load, AcceptsAnEmptyFile) {
  const auto objects = load_objects("# nothing\n---\n", "empty.yaml");
  ASSERT_TRUE(objects.ok());
  EXPECT_TRUE(objects->empty());
}

}  // namespace
}  // namespace windlass::api
