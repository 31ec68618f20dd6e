// What `windlass plan --strategy auto` costs for the shipped examples, frozen: it may become cheaper, never dearer.
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/paths.h"
#include "tests/unit/controller/cli/run.h"

namespace windlass::cli {
namespace {

struct Frozen {
  int code = kDone;
  double cost_per_hour = 0;  // kInfeasible: of the nearest plan, which says nothing
};

// By `--strategy auto --time-limit 60s`, 2026-11-29, before auto searched in slices.
const std::map<std::string, Frozen> kFrozen = {
    {"cluster/4-h100-4-a100.yaml", {kInfeasible}},
    {"cluster/hexgen2-homogeneous.yaml", {kDone, 29.52}},
    {"cluster/hexgen2-setting-1.yaml", {kInfeasible}},
    {"cluster/hexgen2-setting-2.yaml", {kInfeasible}},
    {"cluster/hexgen2-setting-3.yaml", {kInfeasible}},
    {"cluster/hexgen2-setting-4.yaml", {kInfeasible}},
    {"cluster/hexgen2-setting-5.yaml", {kInfeasible}},
    {"cluster/llama3-70b-l40s-a6000.yaml", {kInfeasible}},
    {"llama3-8b.yaml", {kDone, 2}},
    {"plan/llama3-8b.yaml", {kDone, 3}},
    {"qwen-vllm.yaml", {kDone, 0.5}},
    {"tiny.yaml", {kDone, 0.05}},
};

// Files without one question that `plan --strategy` takes, smollm2.yaml, whose class is the machine of the test, and
// those whose model fits no worker.
const std::set<std::string> kNoQuestion = {"chained.yaml", "llama3.1-405b.yaml", "performance-profile.yaml",
                                           "qwen-vllm-zero.yaml", "smollm2.yaml"};

// Given each shipped example that `auto` takes; expects a plan that holds where one did before, at no higher cost; and a frozen
// cost for each example.
TEST(AutoExamples, CostNoMoreThanFrozen) {
  for (const std::string folder : {"", "plan/", "cluster/"}) {
    for (const auto& entry : std::filesystem::directory_iterator(source_path("/examples/" + folder))) {
      if (entry.path().extension() != ".yaml") continue;
      const std::string name = folder + entry.path().filename().string();
      if (kNoQuestion.contains(name)) continue;
      ASSERT_TRUE(kFrozen.contains(name)) << name << ": freeze its cost in this file";
      const Frozen& frozen = kFrozen.at(name);
      const Outcome outcome = run({"plan", "-f", entry.path().string(), "--strategy", "auto", "-o", "json"});
      if (frozen.code == kInfeasible) {
        EXPECT_TRUE(outcome.code == kInfeasible || outcome.code == kDone) << name << outcome.err;
        continue;
      }
      ASSERT_EQ(outcome.code, kDone) << name << outcome.err;
      EXPECT_LE(outcome.json().at("costPerHour").get<double>(), frozen.cost_per_hour * (1 + 1e-9)) << name;
    }
  }
}

}  // namespace
}  // namespace windlass::cli
