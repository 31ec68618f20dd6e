// How the test kubelet reads a container's spec: variables, mounts, images, probes. Needs no control plane.
#include "tests/cluster/kubelet/container.h"

#include <gtest/gtest.h>

namespace windlass::testing {
namespace {

using nlohmann::json;

// Given known, unknown and escaped references; expects the known ones to be replaced and the others to stay, as in Kubernetes.
TEST(ContainerTest, ExpandsVariables) {
  const std::map<std::string, std::string> variables = {{"IP", "127.1.2.3"}, {"EMPTY", ""}};
  EXPECT_EQ(expand_variables("--listen=$(IP):8000", variables), "--listen=127.1.2.3:8000");
  EXPECT_EQ(expand_variables("$(EMPTY)$(NONE)$", variables), "$(NONE)$");
  EXPECT_EQ(expand_variables("$$(IP) $(IP", variables), "$(IP) $(IP");
}

// Given paths below, at and next to a mount path; expects only those at or below it to move to the host's folder. The longest
// mount wins.
TEST(ContainerTest, ReplacesMounts) {
  const std::map<std::string, std::string> mounts = {{"/models", "/host/m"}, {"/models/deep", "/host/d"}};
  EXPECT_EQ(replace_mounts("--model=/models/tiny", mounts), "--model=/host/m/tiny");
  EXPECT_EQ(replace_mounts("/models", mounts), "/host/m");
  EXPECT_EQ(replace_mounts("/models/deep/x:/models", mounts), "/host/d/x:/host/m");
  EXPECT_EQ(replace_mounts("/modelsX /my/models", mounts), "/modelsX /my/models");
}

// Given a container with a known image; expects the image's program with the expanded arguments. The node may know the image
// without its tag.
TEST(ContainerTest, BuildsTheCommandLine) {
  const json pod = {{"metadata", {{"name", "chat-0"}, {"namespace", "ns"}}}, {"spec", {{"nodeName", "n"}}}};
  const json container = {
      {"name", "worker"},
      {"image", "example/worker:9"},
      {"env", json::array({{{"name", "POD_IP"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "status.podIP"}}}}}}})},
      {"args", {"--listen=$(POD_IP):8000", "--model=/m/x"}},
      {"volumeMounts", json::array({{{"name", "model"}, {"mountPath", "/m"}}})}};
  ContainerSurroundings around;
  around.pod_ip = "127.9.0.1";
  around.program_by_image = {{"example/worker", "/bin/worker"}};
  around.host_by_volume = {{"model", "/data"}};
  const auto command = container_command(pod, container, around);
  ASSERT_TRUE(command.ok()) << command.error().message;
  EXPECT_EQ(command->argv, (std::vector<std::string>{"/bin/worker", "--listen=127.9.0.1:8000", "--model=/data/x"}));
  EXPECT_EQ(command->env.at("HOSTNAME"), "chat-0");
}

// Given an unknown image; expects kNotFound (the kubelet reports ErrImagePull). Given a missing volume or an unknown fieldRef;
// expects kInvalidArgument with its name.
TEST(ContainerTest, RefusesWhatItDoesNotKnow) {
  const json pod = {{"metadata", {{"name", "p"}}}, {"spec", json::object()}};
  ContainerSurroundings around;
  around.program_by_image = {{"known", "/bin/true"}};
  const auto image = container_command(pod, {{"image", "unknown:1"}}, around);
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kNotFound);
  EXPECT_NE(image.error().message.find("unknown:1"), std::string::npos);
  const auto volume = container_command(
      pod, {{"image", "known"}, {"volumeMounts", json::array({{{"name", "gone"}, {"mountPath", "/x"}}})}}, around);
  ASSERT_FALSE(volume.ok());
  EXPECT_NE(volume.error().message.find("gone"), std::string::npos);
  const auto field = container_command(
      pod,
      {{"image", "known"}, {"env", json::array({{{"name", "A"}, {"valueFrom", {{"fieldRef", {{"fieldPath", "spec.x"}}}}}}})}},
      around);
  ASSERT_FALSE(field.ok());
  EXPECT_NE(field.error().message.find("spec.x"), std::string::npos);
}

// Given an httpGet probe with a named port; expects the port's number and Kubernetes' defaults. Any other kind of probe is an
// error.
TEST(ContainerTest, ParsesProbes) {
  const json container = {{"ports", json::array({{{"name", "http"}, {"containerPort", 8000}}})}};
  const auto probe = parse_probe(container, {{"httpGet", {{"path", "/ready"}, {"port", "http"}}}, {"periodSeconds", 2}});
  ASSERT_TRUE(probe.ok()) << probe.error().message;
  EXPECT_EQ(probe->port, 8000);
  EXPECT_EQ(probe->path, "/ready");
  EXPECT_EQ(probe->period_s, 2);
  EXPECT_EQ(probe->failure_threshold, 3);
  EXPECT_FALSE(parse_probe(container, {{"httpGet", {{"port", "metrics"}}}}).ok());
  EXPECT_FALSE(parse_probe(container, {{"tcpSocket", {{"port", 1}}}}).ok());
}

}  // namespace
}  // namespace windlass::testing
