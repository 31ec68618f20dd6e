// Tests scenarios on accelerators that the catalog does not know, and with a model's config in the file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "planner/whatif/plan_scenario.h"
#include "tests/says.h"
#include "tests/unit/planner/whatif/scenario_text.h"
#include "tests/unit/profile_text.h"

namespace windlass::sim {
namespace {

using testing::HasSubstr;

constexpr const char* kConfig =
    "{inline: {model_type: llama, architectures: [LlamaForCausalLM], hidden_size: 4096, intermediate_size: 14336, "
    "num_hidden_layers: 32, num_attention_heads: 32, num_key_value_heads: 8, vocab_size: 128256, torch_dtype: bfloat16, "
    "max_position_embeddings: 8192, rope_theta: 500000.0, tie_word_embeddings: false}}";

planner::AcceleratorSpec own_class() {
  planner::AcceleratorSpec spec = *planner::KnownAccelerators().find("a100-80gb");
  spec.name = "my-gpu";
  spec.price_per_hour = 7;
  return spec;
}

// The small scenario on a GPU that the catalog does not know, with a profile of it.
std::string measured(const std::string& fields) {
  const std::string quiet = with(kSmall, "requestsPerSecond: 4", "requestsPerSecond: 0.2");
  return with(with(quiet, "a100-80gb", "my-gpu" + fields), "source: linear", "source: linear, file: p.yaml");
}

std::string refusal(const std::string& yaml, const std::string& profile) {
  const auto made = prepared(yaml, {{"p.yaml", profile}});
  return made.ok() ? "" : made.error().message;
}

// Given a class of the user's own with the figures of an A100; expects the results of an A100 at the class's price.
TEST(OwnAccelerator, AClassOfTheFilesIsKnown) {
  auto scenario = parse_scenario(with(kSmall, "a100-80gb", "my-gpu"), "s.yaml", planner::KnownAccelerators({own_class()}));
  ASSERT_TRUE(scenario.ok()) << scenario.error().message;
  EXPECT_EQ(scenario->services[0].pools[0].price_per_gpu_hour, 7);
  const auto made = PreparedScenario::make(*std::move(scenario), {});
  const auto catalog = prepared(kSmall);
  ASSERT_TRUE(made.ok() && catalog.ok());
  EXPECT_EQ(run(*made, 1).ttft.mean_s, run(*catalog, 1).ttft.mean_s);
}

// Given only a profile of the GPU, with its memory or the tokens of its KV cache; expects the profile's times.
TEST(OwnAccelerator, AProfileAloneIsEnough) {
  const std::string profile = profile_text("llama3-8b", "my-gpu", 1, "");
  for (const char* fields : {", memoryGB: 80, pricePerGpuHour: 2", ", pricePerGpuHour: 2"}) {
    const bool memory = std::string(fields).find("memory") != std::string::npos;
    const std::string yaml = measured(fields);
    const auto made = prepared(memory ? yaml : with(yaml, "p.yaml", "p.yaml, kvCapacityTokens: 90000"), {{"p.yaml", profile}});
    ASSERT_TRUE(made.ok()) << made.error().message;
    // 500 tokens at 0.1 ms, and 10 ms.
    EXPECT_NEAR(run(*made, 1).ttft.mean_s, 0.07, 0.03);
  }
}

// Given a profile and not enough else; expects an error that names what is missing, or the GPU that was measured.
TEST(OwnAccelerator, MissingFieldsAreNamed) {
  const std::string profile = profile_text("llama3-8b", "my-gpu", 1, "");
  EXPECT_THAT(refusal(measured(""), profile), Says("s.yaml:11: cluster.pools[0].pricePerGpuHour: must be set*(got 'my-gpu')"));
  EXPECT_THAT(refusal(measured(", pricePerGpuHour: 2"), profile),
              Says("s.yaml:11: cluster.pools[0]: must have memoryGB*my-gpu"));
  EXPECT_THAT(refusal(measured(", pricePerGpuHour: 2, memoryGB: 80"), profile_text("llama3-8b", "other-gpu", 1, "")),
              Says("cluster.pools[0]: must be 1 x other-gpu, on which p.yaml was fitted (got 1 x my-gpu)"));
  EXPECT_THAT(refusal(measured(", pricePerGpuHour: 2, memoryGB: 0"), profile),
              Says("cluster.pools[0].memoryGB: must*(got '0')"));
  EXPECT_THAT(
      refusal(with(with(measured(", pricePerGpuHour: 2, memoryGB: 80"), "linear", "operators"), "p.yaml", "tables"), ""),
      Says("cluster.pools[0]: must have a data sheet for latency.source operators"));
  const std::string scaled =
      with(measured(", pricePerGpuHour: 2, memoryGB: 80"), "cluster:\n", "cluster:\n  autoscaling: {}\n");
  EXPECT_THAT(refusal(scaled, profile), Says("cluster.pools[0].accelerator: must be one of*with autoscaling*(got 'my-gpu')"));
}

// Given an unknown name without a profile; expects both places to look, and the classes of the files first.
TEST(OwnAccelerator, UnknownNamesListBothPlaces) {
  const std::string yaml = with(kSmall, "a100-80gb", "your-gpu");
  EXPECT_THAT(
      parse_scenario(yaml, "s.yaml").error().message,
      Says("accelerator: must be one of v100-32gb*(the catalog), or an AcceleratorClass of the files*(got 'your-gpu')"));
  EXPECT_THAT(parse_scenario(yaml, "s.yaml", planner::KnownAccelerators({own_class()})).error().message,
              Says("must be one of my-gpu (AcceleratorClasses of the files), v100-32gb*(got 'your-gpu')"));
}

// Given a plan on a profile alone; expects workers of that GPU, and an error while the network is unknown.
TEST(OwnAccelerator, PlansTakeAProfileAlone) {
  const std::string yaml = R"(model: {name: llama3-8b}
latency: {source: linear, file: p.yaml}
workload: {inputTokens: 500, outputTokens: 20, requestsPerSecond: 4}
accelerators:
- {accelerator: my-gpu, memoryGB: 80, pricePerGpuHour: 2}
network: {withinNodeGBps: 16, betweenNodesGBps: 1}
slo: {timeToFirstToken: 500ms, timePerOutputToken: 50ms}
)";
  const std::map<std::string, std::string> texts = {{"p.yaml", profile_text("llama3-8b", "my-gpu", 1, "")}};
  const auto question = [&](const std::string& text) {
    auto plan = search::parse_plan_scenario(text, "s.yaml");
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return search::question_of(*std::move(plan), texts);
  };
  const auto made = question(yaml);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_EQ(made->problem().kinds.size(), 1u);
  EXPECT_EQ(made->problem().spec(made->problem().kinds[0]).price_per_hour, 2);
  const auto unknown = question(with(yaml, "network: {withinNodeGBps: 16, betweenNodesGBps: 1}\n", ""));
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, HasSubstr("network: must have withinNodeGBps and betweenNodesGBps"));
}

// Given a model's config in the file; expects the model of that name. Given wrong ones; expects the line and the field.
TEST(OwnAccelerator, ConfigsMayBeInline) {
  const auto made = prepared(with(kSmall, "name: llama3-8b", std::string("config: ") + kConfig));
  const auto named = prepared(kSmall);
  ASSERT_TRUE(made.ok()) << made.error().message;
  ASSERT_TRUE(named.ok());
  EXPECT_EQ(run(*made, 1).ttft.mean_s, run(*named, 1).ttft.mean_s);
  const auto wrong = [](const std::string& config) {
    return refusal(with(kSmall, "name: llama3-8b", "config: " + config), "");
  };
  EXPECT_THAT(wrong("{}"), Says("s.yaml:2: model.config.inline: missing, must be a map with the fields of a Hugging Face"));
  EXPECT_THAT(wrong("{inlined: {}}"), Says("s.yaml:2: model.config.*inline"));
  EXPECT_THAT(wrong("{inline: [1]}"), Says("s.yaml:2: model.config.inline: "));
  EXPECT_THAT(wrong(with(kConfig, "hidden_size: 4096, ", "")), Says("s.yaml:2: model.config.inline: *hidden_size"));
  EXPECT_THAT(wrong(with(kConfig, "hidden_size: 4096", "hidden_size: '4096'")), Says("model.config.inline: *hidden_size"));
}

}  // namespace
}  // namespace windlass::sim
