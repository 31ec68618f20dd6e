// DistServe's results at a small scale, on the authors' profiles: the order of systems, and the effort of its search.
#include "planner/strategies/distserve/distserve.h"

#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/bench/planner/distserve_setting.h"
#include "tests/paths.h"

namespace windlass::bench {
namespace {

const std::string kData = source_path("/../shared/data");

// Given OPT-13B and OPT-66B on four nodes, with ShareGPT's lengths and those of the authors' own run; expects Algorithm 1 on a
// fast network to find at least the goodput per GPU that Algorithm 2 finds on a slow one, within the search's tolerance,
// prefills to get at least as much tensor parallelism as decodes, and a search without finals to end within 100 trials of 300
// requests.
TEST(DistServeResults, FewerConstraintsAreNoWorse) {
  if (!std::filesystem::exists(kData + "/profiles/distserve")) GTEST_SKIP() << "no " << kData << "/profiles/distserve";
  constexpr std::int64_t kFew = 300;
  for (const char* model : {"opt-13b", "opt-66b"}) {
    for (const DistServeLengths lengths : {DistServeLengths::kShareGpt, DistServeLengths::kMeasured}) {
      DistServeSpec spec;
      spec.model = model;
      spec.lengths = lengths;
      auto setting = distserve_setting(kData, spec);
      ASSERT_TRUE(setting.ok()) << setting.error().message;
      search::Problem& problem = setting->problem;
      const auto goodput = [&](search::NodeAffinity affinity, std::int64_t requests) {
        search::DistServeOptions options;
        options.affinity = affinity;
        options.requests_per_probe = requests;
        if (requests == kFew) options.finals = 0;
        const auto choice = search::distserve_choice(problem, {}, options);
        EXPECT_TRUE(choice.ok());
        if (!choice.ok()) return 0.0;
        EXPECT_TRUE(requests > kFew || choice->trials < 100) << choice->trials;
        const auto& prefill = problem.kinds[static_cast<std::size_t>(choice->prefill_kind)];
        const auto& decode = problem.kinds[static_cast<std::size_t>(choice->decode_kind)];
        EXPECT_GE(prefill.tensor_parallel, decode.tensor_parallel) << model;
        return choice->goodput_per_worth(prefill.gpus(), decode.gpus());
      };
      const double low = goodput(search::NodeAffinity::kLow, 2000);
      (void)goodput(search::NodeAffinity::kLow, kFew);
      problem.between_nodes.bandwidth_bytes_per_s = 100e9;
      const double high = goodput(search::NodeAffinity::kHigh, 2000);
      EXPECT_GT(low, 0) << model;
      EXPECT_GE(high, 0.98 * low) << model;
    }
  }
}

}  // namespace
}  // namespace windlass::bench
