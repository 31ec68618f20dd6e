// Objects to JSON and YAML and back: nothing is lost, and the output passes the validator.
#include <random>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "controller/api/json.h"
#include "controller/api/load.h"
#include "controller/api/validation.h"
#include "controller/api/yaml.h"
#include "tests/effort.h"

namespace windlass::api {
namespace {

class Maker {
 public:
  explicit Maker(std::uint64_t seed) : random_(seed) {}

  ModelService service() {
    ModelService out;
    out.metadata = meta();
    out.metadata.name_space = "team-a";
    if (coin()) out.spec.model.served_name = "org/Model-" + std::to_string(below(100)) + ".v1";
    out.spec.model.uri = "hf://org/model@" + std::to_string(below(9));
    if (coin()) {
      out.spec.model.architecture = "llama3-8b";
    } else if (coin()) {
      out.spec.model.config_inline_json = R"({"hidden_size":256,"rms_norm_eps":1e-05,"tied":true})";
    } else {
      out.spec.model.config_map_key_ref = KeyRef{"config", "config.json"};
    }
    if (coin()) out.spec.model.max_context_tokens = 2 + below(100000);
    if (coin()) out.spec.model.dtype = static_cast<Dtype>(below(5));
    out.spec.engine.type = static_cast<EngineType>(below(5));
    out.spec.engine.program = "/opt/engine-" + std::to_string(below(9));
    if (coin()) out.spec.engine.probe = Probe::kOff;
    out.spec.engine.image = "registry/worker:" + std::to_string(below(9));
    for (int i = below(3); i > 0; --i) out.spec.engine.args.push_back("--flag=" + std::to_string(i));
    if (coin()) out.spec.engine.env = {{"A", "yes", {}, {}}, {"B", "", KeyRef{"s", "k"}, {}}, {"C", "", {}, KeyRef{"c", "k"}}};
    if (coin()) out.spec.engine.pod_template_json = R"({"metadata":{"labels":{"a":"1"}},"spec":{"hostNetwork":true}})";
    out.spec.slo = {(1 + below(5000)) / 1000.0, (1 + below(900)) / 10000.0, coin() ? 95 : 99.9, 60.0 * (1 + below(100))};
    if (coin()) out.spec.workload = {below(1000) / 8.0, 1 + below(1000), std::nullopt};
    for (int i = below(4); i > 0; --i) {
      out.spec.accelerators.push_back({"class-" + std::to_string(i), coin() ? std::optional<std::int64_t>(i) : std::nullopt});
    }
    ScalingSpec& scaling = out.spec.scaling;
    scaling.strategy = coin() ? Strategy::kAuto : Strategy::kReplicated;
    scaling.min_workers = below(3);
    if (coin()) scaling.max_workers = 3 + below(5);
    if (coin()) scaling.max_cost_per_hour = 0.25 + below(100);
    if (scaling.min_workers == 0 && coin()) scaling.idle_to_zero_after_s = 1 + below(1000);
    scaling.drain_timeout_s = below(1000);
    scaling.scale_up_stabilization_s = below(10);
    scaling.scale_down_stabilization_s = below(1000) / 4.0;
    if (coin()) scaling.scale_up_max_per_minute = 1 + below(100);
    if (coin()) scaling.scale_down_max_per_minute = 1 + below(100);
    scaling.tolerance = below(64) / 64.0;
    scaling.mode = static_cast<ScalingMode>(below(3));
    if (coin()) out.spec.priority_class_name = "high";
    if (coin()) out.status = status();
    return out;
  }

  AcceleratorClass accelerator() {
    AcceleratorClass out;
    out.metadata = meta();
    if (coin()) out.spec.node_selector = {{"nvidia.com/gpu.product", "NVIDIA-H100-80GB-HBM3"}};
    if (coin()) out.spec.tolerations = {{"dedicated", "Equal", "llm", "NoSchedule"}, {"", "Exists", "", ""}};
    out.spec.resource_name = coin() ? "nvidia.com/gpu" : "windlass.dev/cpu";
    out.spec.memory_bytes = (1 + below(200)) * (std::int64_t{1} << 29);
    for (int i = 1 + below(5); i > 0; --i) out.spec.peak_flops_per_s[static_cast<Dtype>(i - 1)] = (1 + below(5000)) * 0.5e12;
    out.spec.memory_bandwidth_bytes_per_s = (1 + below(5000)) * 1e9;
    if (coin()) out.spec.intra_node_link = LinkSpec{450e9, below(100) / 1e6};
    if (coin()) out.spec.inter_node_link = LinkSpec{12.5e9, 2.5e-6};
    out.spec.gpus_per_node = 1 + below(8);
    if (coin()) out.spec.price_per_hour = below(100) / 8.0;
    if (coin()) out.spec.power_watts = 700;
    if (coin()) out.spec.capacity = {CapacityMode::kElastic, 1 + below(64)};
    if (coin()) out.status = {3, 2, 16, 12, 4, {condition("Ready")}};
    return out;
  }

  // Lines, with a status that has learned corrections.
  PerformanceProfile profile() {
    PerformanceProfile out;
    out.metadata = meta();
    out.metadata.name_space = "team-a";
    out.spec.model = "org/Model-" + std::to_string(below(100));
    out.spec.accelerator = "h100-80gb";
    out.spec.gpus_per_worker = 4;
    out.spec.pipeline_parallel = coin() ? 2 : 1;
    if (coin()) out.spec.kv_capacity_tokens = 1 + below(1000000);
    if (coin()) out.spec.transfer = {1 + below(1000000) / 7.0, below(100) / 7e3, coin() ? 1 + below(9000) / 3.0 : 0, below(90)};
    if (coin()) out.spec.source = {"samples.csv", "SplitwiseCSV", below(1000), below(10)};
    const auto fraction = [&] { return static_cast<double>(random_() % 1000003) / 7e6; };
    const auto phase = [&] {
      planner::LinearPhase phase;
      phase.coefficients = {fraction() * 1e-6, fraction(), 0, fraction()};
      phase.range = {1, 64 + fraction(), fraction(), 8192, 1, 1e5 + fraction()};
      return phase;
    };
    out.spec.fit =
        planner::FittedLines{coin() ? planner::LinearForm::kAladdin : planner::LinearForm::kHuawei, phase(), phase()};
    out.spec.folds = 5;
    out.spec.errors = {{"prefill", 1 + below(100), 0.25, 0.125, 0.5, {}}, {"decode", 1 + below(100), 0.25, 0.125, 0.5, 0.75}};
    if (!coin()) return out;
    out.status.observed_generation = below(9);
    out.status.calibration.last_update_time = "2026-01-31T10:00:00Z";
    out.status.calibration.prefill = {1 + fraction(), fraction(), 100, 3, 1};
    out.status.calibration.decode.samples = below(10000);
    out.status.conditions = {condition("Ready")};
    return out;
  }

 private:
  int below(int bound) { return static_cast<int>(random_() % static_cast<std::uint64_t>(bound)); }
  bool coin() { return below(2) == 0; }

  ObjectMeta meta() {
    ObjectMeta out;
    out.name = "object-" + std::to_string(below(1000));
    if (coin()) out.labels = {{"team", "a"}, {"windlass.dev/x", "yes"}};
    if (coin()) {
      out.uid = "0123";
      out.resource_version = "17";
      out.generation = 1 + below(9);
      out.creation_timestamp = "2026-01-31T10:00:00Z";
      out.finalizers = {"windlass.dev/drain"};
      out.annotations = {{"note", "a: b # c"}};
      out.owner_references = {{"v1", "ConfigMap", "owner", "77", true, coin()}};
    }
    return out;
  }

  Condition condition(const std::string& type) {
    return {
        type, static_cast<ConditionStatus>(below(3)), below(5), "2026-01-31T10:00:00Z", "BecauseOfThis", "a message: \"x\""};
  }

  ModelServiceStatus status() {
    ModelServiceStatus out;
    out.observed_generation = below(9);
    out.served_name = "team-a/chat";
    out.selector = "windlass.dev/service=a";
    out.plan.strategy = Strategy::kReplicated;
    out.plan.pools = {{"main", PoolRole::kUnified, "h100", 2, below(9), ""}, {"p", PoolRole::kPrefill, "a100", 1, 1, "0-15"}};
    out.plan.predicted = {{0.43, 0.0123, 12.5}, 0.987, "Measured", {0.4, 0.011, 11.5}, {0.47, 0.0135, 13.5}};
    out.plan.reasons = {{"RateNeeds", "needs 3", {{"requestsPerSecond", "12.5"}}}, {"Held", "held", {}}};
    if (coin()) {
      out.plan.strategies = {{"vidur", "4 x h100-1", 16.5, "none is cheaper"},
                             {"mix", "", std::nullopt, "no kind meets \"x\""}};
      out.plan.offer = R"({"strategy":"vidur","pools":[]})";
    }
    out.workers = {below(9), below(9), below(9), below(9), below(9)};
    out.gpus = below(99);
    if (coin()) out.cost_per_hour = 12.25;
    out.load = {1.5, 200, 33.25, below(9)};
    out.slo = {0.9876, 0.5, 0.05, static_cast<Bound>(below(3)), static_cast<Bound>(below(3))};
    out.conditions = {condition(kReady), condition(kSloMet)};
    return out;
  }

  std::mt19937_64 random_;
};

// Given random services; expects each back from its JSON and its YAML, and the output to pass the validator.
TEST(RoundTrip, ModelServices) {
  for (std::uint64_t seed = 0; seed < effort(60U, 200U); ++seed) {
    const ModelService service = Maker(seed).service();
    const nlohmann::json printed = to_json(service);
    const auto errors = validate(printed);
    EXPECT_TRUE(errors.empty()) << "seed " << seed << ": " << errors[0].text();
    const auto back = model_service_from_json(with_defaults(printed));
    ASSERT_TRUE(back.ok()) << "seed " << seed << ": " << back.error().message;
    EXPECT_EQ(to_json(*back), printed) << "seed " << seed;
    EXPECT_TRUE(*back == service) << "seed " << seed << "\n" << printed.dump(2);
    const auto from_yaml = load_objects(to_yaml(printed), "printed.yaml");
    ASSERT_TRUE(from_yaml.ok()) << "seed " << seed << ": " << from_yaml.error().message << "\n" << to_yaml(printed);
    EXPECT_TRUE(std::get<ModelService>(from_yaml->front().value) == service) << "seed " << seed << "\n" << to_yaml(printed);
  }
}

// Given random classes; expects the same.
TEST(RoundTrip, AcceleratorClasses) {
  for (std::uint64_t seed = 0; seed < effort(60U, 200U); ++seed) {
    const AcceleratorClass accelerator = Maker(seed).accelerator();
    const nlohmann::json printed = to_json(accelerator);
    const auto errors = validate(printed);
    EXPECT_TRUE(errors.empty()) << "seed " << seed << ": " << errors[0].text();
    const auto from_yaml = load_objects(to_yaml(printed), "printed.yaml");
    ASSERT_TRUE(from_yaml.ok()) << "seed " << seed << ": " << from_yaml.error().message << "\n" << to_yaml(printed);
    EXPECT_TRUE(std::get<AcceleratorClass>(from_yaml->front().value) == accelerator) << "seed " << seed << "\n"
                                                                                     << to_yaml(printed);
  }
}

// Given random profiles; expects the same, with learned corrections exact to the last digit.
TEST(RoundTrip, PerformanceProfiles) {
  for (std::uint64_t seed = 0; seed < effort(60U, 200U); ++seed) {
    const PerformanceProfile profile = Maker(seed).profile();
    const nlohmann::json printed = to_json(profile);
    const auto errors = validate(printed);
    EXPECT_TRUE(errors.empty()) << "seed " << seed << ": " << errors[0].text();
    const auto from_yaml = load_objects(to_yaml(printed), "printed.yaml");
    ASSERT_TRUE(from_yaml.ok()) << "seed " << seed << ": " << from_yaml.error().message;
    const auto& back = std::get<PerformanceProfile>(from_yaml->front().value);
    EXPECT_EQ(to_json(back), printed) << "seed " << seed;
    EXPECT_TRUE(back.metadata == profile.metadata && back.status == profile.status) << "seed " << seed;
    EXPECT_TRUE(std::get<planner::FittedLines>(back.spec.fit) == std::get<planner::FittedLines>(profile.spec.fit))
        << "seed " << seed;
    EXPECT_EQ(back.spec.errors, profile.spec.errors) << "seed " << seed;
    EXPECT_EQ(back.spec.transfer, profile.spec.transfer) << "seed " << seed;
  }
}

// Given JSON that no API server would send; expects an error with the object and the field's path.
TEST(RoundTrip, NamesTheFieldThatDoesNotFit) {
  nlohmann::json object = to_json(Maker(1).service());
  object["metadata"]["name"] = "bad";
  object["spec"]["slo"]["window"] = "soon";
  const auto back = model_service_from_json(object);
  ASSERT_FALSE(back.ok());
  EXPECT_EQ(back.error().message,
            "ModelService team-a/bad: spec.slo.window: must be a duration such as 500ms, 30s, 5m or 1h30m (got 'soon')");
}

// Given an invalid coefficient in a profile; expects the same.
TEST(RoundTrip, NamesTheCoefficientThatDoesNotFit) {
  PerformanceProfile profile = Maker(1).profile();
  profile.metadata.name = "bad";
  nlohmann::json object = to_json(profile);
  object["spec"]["fit"]["linear"]["decode"]["constantSeconds"] = "slow";
  const auto spec = performance_profile_from_json(object);
  ASSERT_FALSE(spec.ok());
  EXPECT_EQ(spec.error().message.find("PerformanceProfile team-a/bad: spec.fit.linear.decode.constantSeconds: "), 0U)
      << spec.error().message;
  object = to_json(profile);
  object["status"]["calibration"] = {{"lastUpdateTime", "2026-01-31T10:00:00Z"}, {"decode", {{"scale", "one"}}}};
  const auto status = performance_profile_from_json(object);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message,
            "PerformanceProfile team-a/bad: status.calibration.decode.scale: must be a decimal number (got \"one\")");
}

// Given conditions that are set again; expects the time to change only with the status.
TEST(Conditions, KeepTheTimeOfTheLastTransition) {
  std::vector<Condition> conditions;
  EXPECT_TRUE(set_condition(conditions, {kReady, ConditionStatus::kFalse, 1, "", "Starting", "x"}, "t1"));
  EXPECT_FALSE(set_condition(conditions, {kReady, ConditionStatus::kFalse, 1, "", "Starting", "x"}, "t2"));
  EXPECT_EQ(conditions[0].last_transition_time, "t1");
  EXPECT_TRUE(set_condition(conditions, {kReady, ConditionStatus::kFalse, 1, "", "Draining", "x"}, "t3"));
  EXPECT_EQ(conditions[0].last_transition_time, "t1");
  EXPECT_TRUE(set_condition(conditions, {kReady, ConditionStatus::kTrue, 1, "", "Ready", "x"}, "t4"));
  EXPECT_EQ(conditions[0].last_transition_time, "t4");
  ASSERT_NE(find_condition(conditions, kReady), nullptr);
  EXPECT_EQ(find_condition(conditions, kSloMet), nullptr);
}

}  // namespace
}  // namespace windlass::api
