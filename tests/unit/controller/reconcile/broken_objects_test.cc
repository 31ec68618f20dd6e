// A failing object gets a condition of its own: the whole controller on a fake API server, with objects that it cannot read
// next to one that it can, and with PerformanceProfiles for running workers.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/api/load.h"
#include "controller/reconcile/controller.h"
#include "controller/reconcile/status.h"
#include "controller/runtime/kubernetes_runtime.h"
#include "controller/store/kubernetes_store.h"
#include "tests/fakes/fake_api_server.h"

namespace windlass::controller {
namespace {

using nlohmann::json;
using testing::HasSubstr;

json object(const std::string& kind, const std::string& name, json spec) {
  json out = {
      {"apiVersion", "windlass.dev/v1alpha1"}, {"kind", kind}, {"metadata", {{"name", name}}}, {"spec", std::move(spec)}};
  if (kind != "AcceleratorClass") out["metadata"]["namespace"] = "default";
  return out;
}

json service(const std::string& name) {
  return object("ModelService", name,
                {{"model", {{"uri", "pvc://m/x"}, {"architecture", "llama3-8b"}}},
                 {"engine", {{"type", "VLLM"}, {"image", "vllm:test"}}},
                 {"slo", {{"timeToFirstToken", "2s"}, {"timePerOutputToken", "100ms"}}}});
}

json accelerator(const std::string& name) {
  return object("AcceleratorClass", name,
                {{"resourceName", "nvidia.com/gpu"},
                 {"memory", "80Gi"},
                 {"peakFlopsPerSecond", {{"bf16", "989T"}}},
                 {"memoryBandwidthBytesPerSecond", "3350G"},
                 {"gpusPerNode", 1},
                 {"pricePerHour", 4},
                 {"capacity", {{"mode", "Elastic"}, {"maxGPUs", 8}}}});
}

json profile(const std::string& name, const std::string& model) {
  const json range = {{"from", "1"}, {"to", "1000"}};
  const json ranges = {{"sequences", range}, {"meanTokens", range}, {"tokens", range}};
  return object("PerformanceProfile", name,
                {{"model", {{"name", model}}},
                 {"accelerator", "h100"},
                 {"gpusPerWorker", 1},
                 {"fit",
                  {{"type", "Linear"},
                   {"linear",
                    {{"form", "Aladdin"},
                     {"prefill", {{"constantSeconds", "0.002"}, {"secondsPerToken", "0.0001"}, {"range", ranges}}},
                     {"decode",
                      {{"constantSeconds", "0.02"},
                       {"secondsPerToken", "0.000001"},
                       {"secondsPerSequence", "0.0001"},
                       {"range", ranges}}}}}}}});
}

class BrokenObjects : public ::testing::Test {
 protected:
  void run(int seconds) {
    for (int i = 0; i < seconds; ++i) {
      now_.monotonic_s += 1;
      now_.wall_s += 1;
      api_.set_now(now_.monotonic_s);
      const Outcome outcome = core_.step(now_);
      ASSERT_FALSE(std::holds_alternative<Terminal>(outcome));
    }
  }
  json status(const kube::Resource& resource, const std::string& name) {
    const auto found = api_.object(resource, resource.namespaced ? "default" : "", name);
    return found && found->contains("status") ? found->at("status") : json();
  }
  json condition(const kube::Resource& resource, const std::string& name, const std::string& type) {
    const json all = status(resource, name);
    if (!all.is_object() || !all.contains("conditions")) return {};
    for (const json& one : all["conditions"]) {
      if (one.value("type", "") == type) return one;
    }
    return {};
  }
  int writes(const std::string& part) const {
    return static_cast<int>(std::count_if(wire_->log().begin(), wire_->log().end(), [&](const auto& sent) {
      return sent.method != "GET" && sent.url.find(part) != std::string::npos;
    }));
  }

  Instant now_{.wall_s = 1767225600, .monotonic_s = 0};
  fakes::FakeApiServer api_{fakes::FakeApiOptions{}};
  std::unique_ptr<fakes::FakeConnection> wire_ = api_.connect("controller");
  std::unique_ptr<fakes::FakeConnection> scraper_ = api_.connect("scraper");
  std::unique_ptr<kube::CredentialSource> credentials_ = kube::no_credentials();
  kube::KubeClient client_{*wire_, api_.url(), *credentials_, [this] {
                             kube::KubeClientOptions options;
                             options.field_manager = "windlass-controller";
                             options.wall_clock = [this] { return now_.wall_s; };
                             return options;
                           }()};
  SoleLeader leader_{1};
  KubernetesStore store_{client_, "test", 1};
  KubernetesRuntime runtime_{client_, PodDefaults{"windlass-worker:test", ""}, 2};
  metrics::Registry registry_;
  metrics::ControllerMetrics metrics_{registry_};
  RoutingPublisher publisher_;
  Controller core_{store_, runtime_, leader_, *scraper_, publisher_, metrics_, ControllerOptions{}};
};

// Given a service, a class, and one object of each kind that this version cannot read; expects the service to be planned, and
// each of the others to have a condition that is written once and corrected once the object can be read.
TEST_F(BrokenObjects, EachGetsItsOwnCondition) {
  using namespace kube::resources;
  api_.seed_object(service("good"));
  api_.seed_object(accelerator("h100"));
  json bad_service = service("bad");
  bad_service["spec"]["slo"]["timeToFirstToken"] = "soon";
  api_.seed_object(bad_service);
  json bad_class = accelerator("odd");
  bad_class["spec"]["memory"] = {{"unit", "GB"}};
  api_.seed_object(bad_class);
  json bad_profile = profile("strange", "llama3-8b");
  bad_profile["spec"]["fit"] = {{"type", "Oracle"}};
  api_.seed_object(bad_profile);
  run(20);

  EXPECT_GE(status(kModelServices, "good").value("observedGeneration", 0), 1);
  EXPECT_EQ(condition(kModelServices, "good", api::kFeasible).value("status", ""), "True");
  const struct {
    kube::Resource resource;
    std::string name;
    std::string words;
  } kBroken[] = {
      {kModelServices, "bad", "soon"}, {kAcceleratorClasses, "odd", "memory"}, {kPerformanceProfiles, "strange", "Oracle"}};
  for (const auto& one : kBroken) {
    const json told = condition(one.resource, one.name, kReadable);
    ASSERT_TRUE(told.is_object()) << one.name;
    EXPECT_EQ(told["status"], "False") << one.name;
    EXPECT_THAT(told["message"].get<std::string>(), HasSubstr(one.words)) << one.name;
    EXPECT_EQ(writes("/" + one.name + "/status"), 1) << one.name;
    EXPECT_EQ(metrics_.unreadable_objects.with({{"kind", one.resource.kind}}).value(), 1);
  }

  ASSERT_TRUE(api_.edit(kModelServices, "default", "bad", [](json& it) { it["spec"]["slo"]["timeToFirstToken"] = "2s"; }));
  ASSERT_TRUE(api_.edit(kAcceleratorClasses, "", "odd", [](json& it) { it["spec"]["memory"] = "80Gi"; }));
  ASSERT_TRUE(api_.edit(kPerformanceProfiles, "default", "strange",
                        [](json& it) { it["spec"]["fit"] = profile("x", "llama3-8b")["spec"]["fit"]; }));
  run(40);
  for (const auto& one : kBroken) {
    const json told = condition(one.resource, one.name, kReadable);
    EXPECT_EQ(told.value("status", "?"), "True") << one.name;
    EXPECT_EQ(metrics_.unreadable_objects.with({{"kind", one.resource.kind}}).value(), 0) << one.name;
  }
}

// Given a profile of the service's model and one of another model; expects the first to correct the service's plans and to say
// that it is in use, and the other to say that it is not. Without changes, neither is written again.
TEST_F(BrokenObjects, AProfileAppliesToItsModel) {
  using namespace kube::resources;
  api_.seed_object(service("good"));
  api_.seed_object(accelerator("h100"));
  api_.seed_object(profile("mine", "llama3-8b"));
  api_.seed_object(profile("other", "qwen2-7b"));
  run(20);
  EXPECT_EQ(condition(kPerformanceProfiles, "mine", kUsable).value("reason", ""), "InUse");
  EXPECT_EQ(condition(kPerformanceProfiles, "other", kUsable).value("reason", ""), "NotInUse");
  ASSERT_TRUE(core_.last_snapshot());
  const auto& estimates = core_.last_snapshot()->services.at(0).estimates;
  ASSERT_EQ(estimates.size(), 1U);
  EXPECT_EQ(estimates[0].accelerator, "h100");
  EXPECT_EQ(estimates[0].gpus_per_worker, 1);
  EXPECT_TRUE(estimates[0].from_profile);
  EXPECT_GT(estimates[0].estimate.mean[0], 1);  // the profile's decoding is slower than the data sheet's
  run(100);
  EXPECT_EQ(writes("/mine/status"), 1);
  EXPECT_EQ(writes("/other/status"), 1);
}

// Given a profile under an accelerator's catalog name, and a class with the vendor in front of that name; expects the profile
// to apply to the class.
TEST_F(BrokenObjects, AProfileUnderTheCatalogsNameAppliesToTheClass) {
  using namespace kube::resources;
  api_.seed_object(service("good"));
  api_.seed_object(accelerator("nvidia-h100"));
  api_.seed_object(profile("mine", "llama3-8b"));
  run(20);
  EXPECT_EQ(condition(kPerformanceProfiles, "mine", kUsable).value("reason", ""), "InUse");
  const auto& estimates = core_.last_snapshot()->services.at(0).estimates;
  ASSERT_EQ(estimates.size(), 1U);
  EXPECT_EQ(estimates[0].accelerator, "nvidia-h100");
}

// Given profiles of the service's model that measured transfers, one in its namespace under an accelerator's catalog name, a
// second one of the same worker, and one of another model; expects plans to use the first from the first step on.
TEST_F(BrokenObjects, PlansUseTheProfilesTransfers) {
  using namespace kube::resources;
  api_.seed_object(service("good"));
  api_.seed_object(accelerator("nvidia-h100"));
  double bandwidth = 1e9;
  for (const auto& [name, model] : {std::pair("mine", "llama3-8b"), {"mine-too", "llama3-8b"}, {"other", "qwen2-7b"}}) {
    json one = profile(name, model);
    one["spec"]["transfer"] = {{"bandwidthBytesPerSecond", std::to_string(bandwidth)}, {"latencySeconds", "0.002"}};
    api_.seed_object(one);
    bandwidth *= 2;
  }
  api_.seed_object(profile("plain", "llama3-8b"));
  run(1);
  ASSERT_TRUE(core_.last_snapshot());
  const std::vector<planner::TransferToWorker> expected = {{"nvidia-h100", 1, {1e9, 0.002, 0, 0}}};
  EXPECT_EQ(core_.last_snapshot()->services.at(0).transfers, expected);
}

// Given an API server that refuses every status of one service; expects the loop to continue and to retry every few seconds,
// not at every step. Once permitted, the status is written.
TEST_F(BrokenObjects, ARefusedStatusIsRetriedRarely) {
  using namespace kube::resources;
  api_.seed_object(service("good"));
  api_.seed_object(service("refused"));
  api_.seed_object(accelerator("h100"));
  bool refuses = true;
  api_.admit = [&](const fakes::WriteAttempt& attempt) -> std::optional<fakes::Refusal> {
    if (refuses && attempt.subresource == "status" && attempt.object["metadata"]["name"] == "refused")
      return fakes::Refusal{403, "Forbidden", "no"};
    return std::nullopt;
  };
  run(60);
  EXPECT_GE(status(kModelServices, "good").value("observedGeneration", 0), 1);
  EXPECT_GE(writes("/refused/status"), 5);
  EXPECT_LE(writes("/refused/status"), 13);
  refuses = false;
  run(10);
  EXPECT_GE(status(kModelServices, "refused").value("observedGeneration", 0), 1);
}

// Given a class whose nodes' GPUs come and go at every step; expects its status to be written once a second, and to end with
// the current state.
TEST_F(BrokenObjects, AFlappingClassIsWrittenOncePerSecond) {
  using namespace kube::resources;
  api_.seed_object(accelerator("h100"));
  const auto node = [&](int gpus) {
    return json{{"apiVersion", "v1"},
                {"kind", "Node"},
                {"metadata", {{"name", "n"}}},
                {"status",
                 {{"allocatable", {{"nvidia.com/gpu", std::to_string(gpus)}}},
                  {"conditions", {{{"type", "Ready"}, {"status", "True"}}}}}}};
  };
  for (int i = 0; i < 100; ++i) {
    api_.seed_object(node(4 + i % 2));
    now_.monotonic_s += 0.1;
    now_.wall_s += 0.1;
    api_.set_now(now_.monotonic_s);
    static_cast<void>(core_.step(now_));
  }
  EXPECT_GE(writes("/h100/status"), 5);
  EXPECT_LE(writes("/h100/status"), 12);
  api_.seed_object(node(7));
  run(5);
  EXPECT_EQ(status(kAcceleratorClasses, "h100").value("allocatableGPUs", 0), 7);
}

// Given a vLLM worker that decodes slower than planned; expects the profile's status to hold what was learned after some
// minutes, written rarely, and a new controller to start from it.
TEST_F(BrokenObjects, TheProfileHoldsWhatWasLearned) {
  using namespace kube::resources;
  api_.seed_object(service("good"));
  api_.seed_object(accelerator("h100"));
  api_.seed_object(profile("mine", "llama3-8b"));
  run(10);
  const auto pods = api_.objects(kPods);
  ASSERT_FALSE(pods.empty());
  const std::string pod = pods.front()["metadata"]["name"];
  fakes::PodReport running;
  running.phase = "Running";
  running.ready = true;
  running.pod_ip = "10.0.0.1";
  api_.kubelet_set("default", pod, running);
  double tokens = 0, requests = 0;
  scraper_->route("http://10.0.0.1", [&](const kube::HttpRequest&) -> Result<kube::HttpResponse> {
    tokens += 100;
    requests += 1;
    return kube::HttpResponse{
        200,
        {},
        fmt::format("vllm:num_requests_running 4\nvllm:num_requests_waiting 0\nvllm:inter_token_latency_seconds_sum {}\n"
                    "vllm:inter_token_latency_seconds_count {}\nvllm:time_to_first_token_seconds_sum {}\n"
                    "vllm:time_to_first_token_seconds_count {}\nvllm:prompt_tokens_total {}\nvllm:generation_tokens_total {}\n",
                    tokens * 0.045, tokens, requests * 0.15, requests, requests * 512, tokens)};
  });
  run(300);
  const json calibration = status(kPerformanceProfiles, "mine").value("calibration", json::object());
  ASSERT_TRUE(calibration.contains("decode")) << status(kPerformanceProfiles, "mine").dump(2);
  EXPECT_GT(calibration["decode"]["samples"].get<int>(), 5);
  EXPECT_GT(std::stod(calibration["decode"]["scale"].get<std::string>()), 1);
  EXPECT_LE(writes("/mine/status"), 11);
  ASSERT_FALSE(core_.last_snapshot()->services.at(0).estimates.empty());
  EXPECT_GT(core_.last_snapshot()->services.at(0).estimates[0].estimate.decode_count, 5);
  EXPECT_TRUE(core_.last_snapshot()->services.at(0).starts.has_value());
  const auto page = metrics::parse_exposition(registry_.exposition());
  ASSERT_TRUE(page.ok());
  EXPECT_FALSE(page->find("windlass_controller_calibration_scale_ratio", {{"phase", "decode"}}).empty());

  LiveCalibration fresh;
  const auto& snapshot = *core_.last_snapshot();
  const std::vector<Worker> no_workers;
  fresh.step({{&store_.model_services()[0], &snapshot.services[0], &no_workers}}, snapshot.accelerators,
             store_.performance_profiles(), nullptr);
  const auto again = fresh.estimates(store_.model_services()[0]);
  ASSERT_EQ(again.size(), 1U);
  const auto sheet = planner::linear_coefficients(*snapshot.services[0].shape, snapshot.accelerators[0].spec, 1,
                                                  planner::EngineType::kWindlass);
  const planner::LinearModel believed(planner::estimated(sheet, again[0].estimate));
  EXPECT_GT(believed.decode_s(4, 512), 1.5 * planner::LinearModel(sheet).decode_s(4, 512));
}

}  // namespace
}  // namespace windlass::controller
