// Tests `windlass chain recompose`: the transition between two instances as JSON and as text, and mistakes on the command line.
#include <map>

#include <gmock/gmock.h>

#include "tests/paths.h"
#include "tests/unit/controller/cli/chain/chain_command.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;

const std::string kBusy = source_path("/examples/chains/bloom-176b-busy.yaml");

// Given the same instance twice; expects no change and no proposal.
TEST(ChainRecompose, NothingToDo) {
  const auto outcome = run_chain({"recompose", "-f", kBloom, "-f", kBloom, "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const auto json = outcome.json();
  EXPECT_EQ(json.at("proposed"), false);
  EXPECT_TRUE(json.at("changes").empty());
  EXPECT_TRUE(json.at("waves").empty());
  EXPECT_EQ(json.at("seconds"), 0);
  EXPECT_EQ(json.at("current").at("placement"), json.at("next").at("placement"));
  EXPECT_EQ(json.at("horizonSeconds"), 3600);
  EXPECT_THAT(run_chain({"recompose", "-f", kBloom, "-f", kBloom}).out, HasSubstr("Stay: "));
}

// Given the examples, more demand and other servers; expects that applying the waves to the old placement gives the new one,
// that a step takes its blocks' bytes over its bandwidth, a wave its longest step, and that the removed server is named.
TEST(ChainRecompose, WavesLeadToTheNewPlacement) {
  const auto outcome = run_chain({"recompose", "-f", kBloom, "-f", kBusy, "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const auto json = outcome.json();
  EXPECT_EQ(json.at("gone"), nlohmann::json::parse(R"(["small-3"])"));
  std::map<std::string, std::set<int>> held;
  const auto apply = [&](const std::string& server, const nlohmann::json& range, bool load) {
    const int first = range.at("firstBlock");
    for (int block = first; block < first + range.at("blocks").get<int>(); ++block) {
      load ? static_cast<void>(held[server].insert(block)) : static_cast<void>(held[server].erase(block));
    }
  };
  for (const auto& placed : json.at("current").at("placement")) apply(placed.at("server"), placed, true);
  double seconds = 0;
  for (const auto& wave : json.at("waves")) {
    double longest = 0;
    for (const auto& step : wave.at("steps")) {
      int loaded = 0;
      for (const auto& range : step.at("drops")) apply(step.at("server"), range, false);
      for (const auto& range : step.at("loads")) {
        apply(step.at("server"), range, true);
        loaded += range.at("blocks").get<int>();
      }
      EXPECT_NEAR(step.at("seconds").get<double>(), loaded * 1.32 / 1.25, 1e-9);
      longest = std::max(longest, step.at("seconds").get<double>());
    }
    EXPECT_NEAR(wave.at("seconds").get<double>(), longest, 1e-9);
    seconds += longest;
  }
  EXPECT_NEAR(json.at("seconds").get<double>(), seconds, 1e-9);
  std::map<std::string, std::set<int>> wanted;
  held.swap(wanted);
  for (const auto& placed : json.at("next").at("placement")) apply(placed.at("server"), placed, true);
  held.swap(wanted);
  std::erase_if(held, [](const auto& server) { return server.second.empty(); });
  EXPECT_EQ(held, wanted);

  const auto text = run_chain({"recompose", "-f", kBloom, "-f", kBusy}).out;
  EXPECT_THAT(text, HasSubstr(json.at("proposed").get<bool>() ? "Recompose: " : "Stay: "));
  EXPECT_THAT(text, HasSubstr("removed servers: small-3"));
  EXPECT_THAT(text, HasSubstr("current chains: "));
  EXPECT_THAT(text, HasSubstr("new chains: "));
}

// Given wrong command lines and files; expects exit code 2, no output, and a message that names the mistake.
TEST(ChainRecompose, MistakesAreNamed) {
  const TempFolder folder;
  const std::string file = folder.file("f.yaml", kFigure2);
  const std::string large = folder.file("large.yaml", replaced(kFigure2, "blocks: 3,", "blocks: 300,"));
  const std::string bad = folder.file("bad.yaml", replaced(kFigure2, "maxLoad: 0.7", "maxLoad: 7"));
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{"recompose"}, "windlass chain recompose: --file is required"},
      {{"recompose", "-f", file}, "--file: must be given twice: -f OLD -f NEW (got 1)"},
      {{"recompose", "-f", file, "-f", file, "-f", file}, "--file: must be given twice: -f OLD -f NEW (got 3)"},
      {{"recompose", "-f", file, "-f", "/no/such.yaml"}, "/no/such.yaml"},
      {{"recompose", "-f", bad, "-f", file}, bad + ":3: maxLoad: must be a number from 1e-09 to 1 (got '7')"},
      {{"recompose", "-f", file, "-f", bad}, bad + ":3: maxLoad: must be a number from 1e-09 to 1 (got '7')"},
      {{"recompose", "-f", file, "-f", large}, large + ": "},
      {{"recompose", "-f", large, "-f", large}, large + ": no full chain can be placed"},
      {{"recompose", "-f", file, "-f", file, "--horizon", "soon"}, "soon"},
      {{"recompose", "-f", file, "-f", file, "--horizon", "0s"}, "must be a duration above 0"},
      {{"recompose", "-f", file, "-f", file, "--tune", "best"}, "best"},
      {{"recompose", "-f", file, "-f", file, "-o", "yaml"}, "yaml"},
  };
  expect_mistakes(table);
}

}  // namespace
}  // namespace windlass::cli
