// `windlass chain compose`: what it prints for good instances, and that every mistake is named with exit code 2.
#include <gmock/gmock.h>

#include "planner/chain/compose.h"
#include "planner/chain/instance_yaml.h"
#include "tests/paths.h"
#include "tests/unit/controller/cli/chain/chain_command.h"

namespace windlass::cli {
namespace {

using testing::HasSubstr;
using testing::Not;

// Given the paper's Fig. 2 with c = 1: the placement, disjoint chains, chains, capacities and rates of its text, under the
// agreed names.
TEST(ChainCompose, PrintsFigure2) {
  const TempFolder folder;
  const auto outcome = run_chain({"compose", "-f", folder.file("f.yaml", kFigure2), "--capacity", "1", "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  EXPECT_EQ(outcome.err, "");
  const auto json = outcome.json();
  EXPECT_EQ(json.at("capacity"), 1);
  EXPECT_EQ(json.at("disjointChains"), nlohmann::json::parse(R"([["j1", "j2"], ["j3", "j4", "j5"]])"));
  EXPECT_EQ(json.at("placement")[1], nlohmann::json::parse(R"({"server": "j2", "firstBlock": 2, "blocks": 2})"));
  ASSERT_EQ(json.at("chains").size(), 3u);
  EXPECT_EQ(json.at("chains")[1].at("servers"), nlohmann::json::parse(R"(["j1", "j4", "j5"])"));
  for (const auto& chain : json.at("chains")) EXPECT_EQ(chain.at("capacity"), 5);
  EXPECT_EQ(json.at("totalCapacity"), 15);
  EXPECT_NEAR(json.at("totalServiceRatePerSecond").get<double>(), 5 / 3.05 + 5 / 3.10 + 5 / 3.12, 1e-12);
  EXPECT_EQ(json.at("stable"), true);
  EXPECT_LT(json.at("bounds").at("meanResponseTimeLowerSeconds"), json.at("bounds").at("meanResponseTimeUpperSeconds"));
}

// Given an example and the library's own answer: each way of tuning gives the library's c, and numbers come back as the same
// doubles.
TEST(ChainCompose, AgreesWithTheLibrary) {
  const std::ifstream file(kBloom);
  std::ostringstream text;
  text << file.rdbuf();
  const auto instance = chain::instance_from_yaml(text.str(), kBloom);
  ASSERT_TRUE(instance.ok()) << instance.error().message;
  for (const auto tuning : {chain::Tuning::kLowerBound, chain::Tuning::kUpperBound, chain::Tuning::kSurrogate}) {
    const auto expected = chain::compose(*instance, tuning);
    ASSERT_TRUE(expected.ok());
    const auto outcome = run_chain({"compose", "-f", kBloom, "--tune", chain::to_string(tuning), "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    const auto json = outcome.json();
    EXPECT_EQ(json.at("capacity"), expected->capacity);
    EXPECT_EQ(json.at("totalServiceRatePerSecond").get<double>(), expected->total_service_rate_per_s);
    EXPECT_EQ(json.at("bounds").at("meanResponseTimeLowerSeconds").get<double>(), *expected->mean_response_lower_s);
    EXPECT_EQ(json.at("chains").size(), expected->chains.size());
    EXPECT_EQ(json.at("algorithm").at("tuning"), chain::to_string(tuning));
  }
  EXPECT_EQ(run_chain({"compose", "-f", kBloom, "-o", "json"}).out,
            run_chain({"compose", "-f", kBloom, "--tune", "lower-bound", "--capacity", "auto", "-o", "json"}).out);
}

// Given a demand above what the servers can serve: exit code 0, stable and meetsMaxLoad false, bounds null, and the table says
// so. Given one that is served, but not with the wanted margin: stable, with bounds, and meetsMaxLoad false.
TEST(ChainCompose, TooMuchDemandIsAnAnswer) {
  const TempFolder folder;
  const std::string file = folder.file("f.yaml", kFigure2);
  const auto json = run_chain({"compose", "-f", file, "--arrival-rate", "1000", "-o", "json"});
  ASSERT_EQ(json.code, kDone) << json.err;
  EXPECT_EQ(json.json().at("stable"), false);
  EXPECT_EQ(json.json().at("meetsMaxLoad"), false);
  EXPECT_TRUE(json.json().at("bounds").is_null());
  EXPECT_EQ(json.json().at("arrivalRate"), 1000);
  EXPECT_THAT(run_chain({"compose", "-f", file, "--arrival-rate", "1000"}).out,
              HasSubstr("NOT STABLE: 1000 requests/s arrive"));

  const auto tight = run_chain({"compose", "-f", file, "--capacity", "1", "--arrival-rate", "4.5", "-o", "json"});
  ASSERT_EQ(tight.code, kDone) << tight.err;
  EXPECT_EQ(tight.json().at("stable"), true);
  EXPECT_EQ(tight.json().at("meetsMaxLoad"), false);
  EXPECT_TRUE(tight.json().at("bounds").is_object());
  const auto wide =
      run_chain({"compose", "-f", file, "--capacity", "1", "--arrival-rate", "4.5", "--max-load", "0.99", "-o", "json"});
  EXPECT_EQ(wide.json().at("meetsMaxLoad"), true);
  EXPECT_THAT(run_chain({"compose", "-f", file, "--capacity", "1", "--arrival-rate", "4.5"}).out,
              HasSubstr("above the wanted load"));
}

// Given servers whose memory cannot hold the model under each placement: exit code 2 and one line with the missing GB.
TEST(ChainCompose, NoFullChainNamesTheMissingMemory) {
  const TempFolder folder;
  const std::string file = folder.file("f.yaml", replaced(kFigure2, "blocks: 3,", "blocks: 300,"));
  for (const std::vector<std::string>& more : {std::vector<std::string>{},
                                               {"--capacity", "1"},
                                               {"--placement", "cg-bp"},
                                               {"--placement", "cg-bp", "--design-load", "3"},
                                               {"--placement", "petals"}}) {
    std::vector<std::string> arguments = {"compose", "-f", file, "-o", "json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const auto outcome = run_chain(arguments);
    EXPECT_EQ(outcome.code, kUsage) << testing::PrintToString(more);
    EXPECT_EQ(outcome.out, "");
    EXPECT_THAT(outcome.err, HasSubstr(file + ": no full chain can be placed")) << testing::PrintToString(more);
    EXPECT_THAT(outcome.err, HasSubstr("GB of memory are missing"));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
  }
  const auto too_many = run_chain({"compose", "-f", folder.file("g.yaml", kFigure2), "--capacity", "1000"});
  EXPECT_EQ(too_many.code, kUsage);
  EXPECT_THAT(too_many.err, HasSubstr("GB of memory are missing"));
}

// Given the baselines' placements: chains that cover the model, and the placement's name; CG-BP takes a design load.
TEST(ChainCompose, BaselinePlacements) {
  for (const char* placement : {"cg-bp", "petals"}) {
    const auto outcome = run_chain({"compose", "-f", kBloom, "--placement", placement, "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    const auto json = outcome.json();
    EXPECT_EQ(json.at("algorithm").at("placement"), placement);
    EXPECT_TRUE(json.at("algorithm").at("tuning").is_null());
    ASSERT_FALSE(json.at("chains").empty());
    for (const auto& chain : json.at("chains")) {
      int blocks = 0;
      for (const auto& hop : chain.at("blocks")) blocks += hop.get<int>();
      EXPECT_EQ(blocks, 70);
    }
  }
  const auto seven = run_chain({"compose", "-f", kBloom, "--placement", "cg-bp", "--design-load", "7", "-o", "json"});
  ASSERT_EQ(seven.code, kDone) << seven.err;
  const auto answer = seven.json();
  EXPECT_EQ(answer.at("capacity"), 7);
  for (const auto& placed : answer.at("placement")) {
    EXPECT_EQ(placed.at("blocks"), placed.at("server").get<std::string>().starts_with("big") ? 19 : 9);
  }
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--placement", "cg-bp"}).out,
              HasSubstr("placement: CG-BP for a design load of"));
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--placement", "petals"}).out, HasSubstr("placement: PETALS"));
}

// Given --optimal: no more capacities than without it, the wanted load is still met; where the demand cannot be met, the chains
// keep what they have, with a note and exit code 0.
TEST(ChainCompose, OptimalCaches) {
  const auto greedy = run_chain({"compose", "-f", kBloom, "--capacity", "7", "-o", "json"}).json();
  const auto outcome = run_chain({"compose", "-f", kBloom, "--capacity", "7", "--optimal", "-o", "json"});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  const auto optimal = outcome.json();
  EXPECT_EQ(optimal.at("algorithm").at("caches"), "ilp");
  EXPECT_EQ(optimal.at("algorithm").at("proved"), true);
  EXPECT_LE(optimal.at("totalCapacity"), greedy.at("totalCapacity"));
  EXPECT_GE(optimal.at("totalServiceRatePerSecond").get<double>(), 0.2 / 0.7);
  EXPECT_EQ(optimal.at("meetsMaxLoad"), true);
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--optimal"}).out, HasSubstr("caches: the fewest"));

  const auto much = run_chain({"compose", "-f", kBloom, "--optimal", "--arrival-rate", "1000", "-o", "json"});
  ASSERT_EQ(much.code, kDone) << much.err;
  EXPECT_EQ(much.json().at("algorithm").at("caches"), "gca");
  EXPECT_THAT(much.json().at("note").get<std::string>(), HasSubstr("--optimal changes nothing"));
}

// Given a demand that few of the servers meet: the rest stay empty, and the table says why; --all-servers places them.
TEST(ChainCompose, AllServers) {
  const auto few = run_chain({"compose", "-f", kBloom, "--capacity", "1", "--arrival-rate", "0.01"});
  EXPECT_THAT(few.out, HasSubstr("; the chains above already meet the wanted load; --all-servers places them too"));
  const auto all =
      run_chain({"compose", "-f", kBloom, "--capacity", "1", "--arrival-rate", "0.01", "--all-servers", "-o", "json"});
  ASSERT_EQ(all.code, kDone) << all.err;
  EXPECT_TRUE(all.json().at("unplacedServers").empty());
  EXPECT_EQ(all.json().at("algorithm").at("servers"), "all");
  EXPECT_EQ(run_chain({"compose", "-f", kBloom, "--placement", "cg-bp", "--all-servers"}).code, kUsage);
}

// Given the example as a table: how c was chosen with its runners-up, chains with servers and blocks, totals, load, bounds.
TEST(ChainCompose, TableTellsTheStory) {
  const auto outcome = run_chain({"compose", "-f", kBloom});
  ASSERT_EQ(outcome.code, kDone) << outcome.err;
  for (const char* expected :
       {"placement: GBP-CR, memory reserved for c = ", "by the lower bound on the mean response time: ", "next best: c = ",
        "SERVERS AND THEIR BLOCKS", " > ", "total: ", "load: ", "mean response time under JFFC: "}) {
    EXPECT_THAT(outcome.out, HasSubstr(expected));
  }
  EXPECT_THAT(outcome.out, Not(HasSubstr("nan")));
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--capacity", "7"}).out,
              HasSubstr("c = 7 requests at once on every block (given)"));
  EXPECT_THAT(run_chain({"compose", "-f", kBloom, "--tune", "surrogate"}).out, HasSubstr("by the surrogate c K(c): "));
}

// Given wrong command lines and files: exit code 2, nothing on the output, and words that name what is wrong.
TEST(ChainCompose, MistakesAreNamed) {
  const TempFolder folder;
  const std::string file = folder.file("f.yaml", kFigure2);
  const std::string bad = folder.file("bad.yaml", replaced(kFigure2, "memoryGB: 3", "memoryGB: abc"));
  const std::string empty = folder.file("empty.yaml", "");
  const std::vector<std::pair<std::vector<std::string>, std::string>> table = {
      {{}, "windlass chain: "},
      {{"nonsense"}, "windlass chain: found 'nonsense', allowed are the commands compose, simulate, recompose"},
      {{"compose"}, "windlass chain compose: --file is required"},
      {{"compose", "-f"}, "--file"},
      {{"compose", file}, "windlass chain compose: "},
      {{"compose", "-f", file, "-f", file}, "--file"},
      {{"compose", "-f", "/no/such.yaml"}, "/no/such.yaml: cannot be read: "},
      {{"compose", "-f", folder.path().string()}, "cannot be read: it is a folder; allowed is a YAML file"},
      {{"compose", "-f", bad}, bad + ":6: servers[1].memoryGB: found 'abc', allowed is a number from 1e-09 to 1000000000"},
      {{"compose", "-f", empty}, empty + ":1: found no value"},
      {{"compose", "-f", file, "--capacity", "0"}, "--capacity: found '0', allowed is auto or a whole number from 1 to "},
      {{"compose", "-f", file, "--capacity", "many"}, "--capacity: found 'many'"},
      {{"compose", "-f", file, "--capacity", "1.5"}, "--capacity: found '1.5'"},
      {{"compose", "-f", file, "--arrival-rate", "0"}, "--arrival-rate: found '0', allowed is a number from"},
      {{"compose", "-f", file, "--arrival-rate", "nan"}, "--arrival-rate: found 'nan'"},
      {{"compose", "-f", file, "--arrival-rate", "-1"}, "--arrival-rate"},
      {{"compose", "-f", file, "--arrival-rate", "1e400"}, "--arrival-rate: found '1e400'"},
      {{"compose", "-f", file, "--max-load", "1.5"}, "--max-load: found '1.5', allowed is a number from 1e-09 to 1"},
      {{"compose", "-f", file, "--max-load", "inf"}, "--max-load: found 'inf'"},
      {{"compose", "-f", file, "--tune", "best"}, "best"},
      {{"compose", "-f", file, "--tune", "surrogate", "--capacity", "3"}, "--tune: belongs to --capacity auto"},
      {{"compose", "-f", file, "--placement", "best"}, "best"},
      {{"compose", "-f", file, "--placement", "cg-bp", "--capacity", "3"}, "--capacity: belongs to --placement gbp-cr"},
      {{"compose", "-f", file, "--placement", "petals", "--tune", "surrogate"}, "--tune: belongs to --placement gbp-cr"},
      {{"compose", "-f", file, "--design-load", "3"}, "--design-load: belongs to --placement cg-bp"},
      {{"compose", "-f", file, "-o", "xml"}, "xml"},
      {{"compose", "-f", file, "extra"}, "extra"},
  };
  expect_mistakes(table);
}

// Given --help on each level: exit code 0, and the options with their values.
TEST(ChainCompose, Help) {
  EXPECT_THAT(run_chain({"--help"}).out, HasSubstr("recompose"));
  EXPECT_THAT(run_chain({"compose", "--help"}).out, HasSubstr("--design-load"));
  EXPECT_THAT(run_chain({"simulate", "--help"}).out, HasSubstr("--replications"));
  EXPECT_THAT(run_chain({"recompose", "--help"}).out, HasSubstr("--horizon"));
  EXPECT_EQ(run_chain({"compose", "--help"}).code, kDone);
}

// Given every example: it composes, is stable within its wanted load, and its text reads.
TEST(ChainCompose, ExamplesCompose) {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(source_path("/examples/chains"))) {
    ++files;
    const auto outcome = run_chain({"compose", "-f", entry.path().string(), "-o", "json"});
    ASSERT_EQ(outcome.code, kDone) << outcome.err;
    EXPECT_EQ(outcome.json().at("meetsMaxLoad"), true) << entry.path();
  }
  EXPECT_EQ(files, 3);
}

}  // namespace
}  // namespace windlass::cli
